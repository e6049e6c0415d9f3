"""Files of formats that are not read: the error names what reads them."""

import gzip
from pathlib import Path

import pytest
from tests.conformance import assert_same, run

import penstock as ps
from penstock.errors import DataError


@pytest.mark.parametrize(
    ("name", "cure"),
    [
        (
            "a.json",
            r'Give format="jsonl" if each of its lines is an object; .* a.json > a.jsonl\.$',
        ),
        ("a.json.gz", r'Give format="jsonl" if each of its lines is an object\.$'),
        ("a.pt", r"Read it into memory: ps.from_arrays\(torch.load\('.*a.pt'\)\)\.$"),
        ("a.PKL", r"ps.from_arrays\(pandas.read_pickle\('.*a.PKL'\)\)"),
        ("a.xlsx", r"ps.from_arrays\(pandas.read_excel\('.*a.xlsx'\)\)"),
        ("a.csv.zip", r"Unpack it once: unzip a.csv.zip\.$"),
        ("a.csv.bz2", r"Unpack it once: bunzip2 a.csv.bz2\.$"),
        ("a.jsonl.zst", r"Unpack it once: unzstd a.jsonl.zst\.$"),
        ("a.npy.gz", r"Unpack it once: gunzip a.npy.gz\.$"),
        ("a.pq", r'Give format="parquet"\.$'),
        ("a.array_record", "write it as TFRecord"),
        ("a.mp4", r"ps.from_arrays\(\[str\(path\) for path in paths\]\).map\(function\)"),
    ],
)
def test_a_format_that_is_not_read_is_told_with_what_reads_it(
    tmp_path: Path, name: str, cure: str
) -> None:
    (tmp_path / name).write_bytes(b"")
    with pytest.raises(DataError, match=rf"its format can't be told from '\..*'. .*{cure}"):
        ps.from_files(tmp_path / name)


def test_json_lines_of_another_ending_are_read_as_the_error_says(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"a": 1}\n{"a": 2}\n')
    assert_same(run(ps.from_files(tmp_path / "a.json", "a", format="jsonl")), [1, 2])
    (tmp_path / "a.json.gz").write_bytes(gzip.compress((tmp_path / "a.json").read_bytes()))
    assert_same(run(ps.from_files(tmp_path / "a.json.gz", "a", format="jsonl")), [1, 2])


def test_a_pickled_table_is_read_as_the_error_says(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pandas.DataFrame({"a": [1, 2]}).to_pickle(tmp_path / "a.pkl")
    with pytest.raises(DataError) as raised:
        ps.from_files(tmp_path / "a.pkl")
    cure = str(raised.value).partition("memory: ")[2].rstrip(".")
    assert [int(row["a"]) for row in eval(cure, {"ps": ps, "pandas": pandas})] == [1, 2]
