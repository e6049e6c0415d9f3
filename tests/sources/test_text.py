"""Text: a row a line, and lines that are no text left out on demand."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import Case, Conformance, assert_same, run
from tests.sources.bad_files import THREADS, read, skipping

import penstock as ps
from penstock.core.rows import Rows, plain_context
from penstock.errors import DataError
from penstock.sources.reading import line_index, line_rows

LINES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n\r")))


class TestText(Conformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        lines = [f"líne {i}" * (i % 3) for i in range(21)]
        (tmp_path / "a.txt").write_text("\n".join(lines[:13]) + "\n")
        (tmp_path / "b.txt").write_text("\n".join(lines[13:]))
        return Case(lambda: ps.from_files(tmp_path), lines)


@given(LINES, st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_lines_come_back_without_their_ends(lines: list[str], end: str, is_ended: bool) -> None:
    import tempfile

    text = end.join(lines) + (end if is_ended and lines else "")
    if lines and not is_ended and not lines[-1]:
        lines = lines[:-1]  # What follows the last end is no line if it is empty.
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "a.txt").write_bytes(text.encode())
        assert run(ps.from_files(f"{folder}/a.txt")) == lines


ENDS = st.sampled_from([b"\n", b"\r\n"])
FILES = st.lists(st.tuples(LINES, ENDS, st.booleans()), min_size=1, max_size=4)


@given(FILES, st.integers(1, 100), st.data())
def test_any_lines_of_any_files_are_read_by_their_numbers(
    files: list[tuple[list[str], bytes, bool]], nbytes: int, data: st.DataObject
) -> None:
    import tempfile

    expected: list[str] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_index, "RUN_NBYTES", nbytes)
        patch.setattr(line_rows, "RUN_NBYTES", nbytes)
        patch.setattr(line_rows, "PIECE_NBYTES", 3 * nbytes)
        patch.setattr(line_index, "PIECE_NBYTES", 2 * nbytes)
        for number, (lines, end, is_ended) in enumerate(files):
            text = end.join(line.encode() for line in lines) + (end if is_ended and lines else b"")
            (Path(folder) / f"{number}.txt").write_bytes(text)
            expected += lines if not lines or is_ended or lines[-1] else lines[:-1]
        ds = ps.from_files(folder)
        assert len(ds) == len(expected)
        assert run(ds) == expected
        assert sorted(run(ds.shuffle(seed=1, window=500))) == sorted(expected)
        if expected:
            rows = np.array(
                data.draw(st.lists(st.integers(0, len(expected) - 1), max_size=20)), np.int64
            )
            context = plain_context()
            block = context.block(ds.node, len(rows))
            assert isinstance(ds.node, Rows)
            ds.node.read(rows, block, context)
            context.resources.close()
            found = [one for (one,) in map(block.finish().row, range(len(rows)))]
            assert found == [expected[row] for row in rows.tolist()]


def test_bytes_of_two_lines_are_not_taken_for_one_character(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"fine\nbad \xc3\n\xa9 bad, too\nfine again\n")
    ds = ps.from_files(tmp_path / "a.txt")
    assert len(ds) == 4
    with pytest.raises(DataError, match=r"a\.txt, byte 9: line 2 is not UTF-8"):
        run(ds)
    with pytest.raises(DataError, match=r"a\.txt, byte 11: line 3 is not UTF-8"):
        run(ds.skip(2))
    assert run(ds.skip(3)) == ["fine again"]
    assert run(ds.with_options(on_error="skip")) == ["fine", "fine again"]


def test_long_files_are_resumed_at_any_batch(tmp_path: Path) -> None:
    lines = [f"{i} " + "x" * (i % 50) for i in range(30_000)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    ds = ps.from_files(tmp_path / "a.txt").batch(700)
    states = []
    with ds.stream() as stream:
        batches = []
        for batch in stream:
            batches.append(batch)
            states.append(stream.state())
    assert [line for batch in batches for line in batch] == lines
    for done in (1, 20, len(states) - 1):
        assert_same(run(ds.with_options(threads=2), state=states[done - 1]), batches[done:])


def test_a_line_longer_than_a_piece_is_whole(tmp_path: Path) -> None:
    long = "x" * 1_000_000
    (tmp_path / "a.txt").write_text(f"a\n{long}\nb")
    assert run(ps.from_files(tmp_path / "a.txt")) == ["a", long, "b"]


@pytest.mark.parametrize(
    ("encoding", "name"),
    [
        ("utf-16", "utf-16"),
        ("utf-16-le", "utf-16le"),
        ("utf-16-be", "utf-16be"),
        ("utf-32", "utf-32"),
        ("latin-1", "latin1"),
    ],
)
@pytest.mark.parametrize("letter", ["e", "\xe9"])
@pytest.mark.parametrize("ending", ["txt", "csv", "jsonl"])
def test_another_encoding_is_named_as_iconv_calls_it(
    tmp_path: Path, encoding: str, name: str, letter: str, ending: str
) -> None:
    text = {
        "txt": "caf*\nnoir\n\n",
        "csv": "caf*, price\n1, 2\n",
        "jsonl": '{"a": "caf*"}\n' * 2,
    }
    data = text[ending].replace("*", letter).encode(encoding)
    path = tmp_path / f"a.{ending}"
    path.write_bytes(data)
    if name == "latin1" and letter == "e":
        assert len(run(ps.from_files(path))) > 0
        return
    with pytest.raises(DataError, match=rf"line 1 is not UTF-8 text. .* iconv -f {name} -t utf-8"):
        run(ps.from_files(path))
    path.write_text(data.decode(name), "utf-8")
    assert len(run(ps.from_files(path))) > 0


def test_a_few_nuls_are_text(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\0b\0\n\0\0\0\0\0\0\0\0\0\0\0\0\0\0\n")
    assert run(ps.from_files(tmp_path / "a.txt")) == ["a\0b\0", "\0" * 14]


def test_bytes_that_are_no_text_are_named_by_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\nb\n\xff\xfe")
    with pytest.raises(DataError, match="line 3 is not UTF-8"):
        run(ps.from_files(tmp_path / "a.txt"))
    (tmp_path / "a.txt").write_bytes(b"")
    assert run(ps.from_files(tmp_path / "a.txt")) == []


def test_lines_that_are_no_text_are_left_out(tmp_path: Path) -> None:
    lines = [f"line {number}".encode() for number in range(50_000)]
    for number in (3, 49_999, 20_000, 20_001):
        lines[number] = b"line \xff\xfe"
    (tmp_path / "a.txt").write_bytes(b"\n".join(lines))
    ds = ps.from_files(tmp_path / "a.txt")
    good = [number for number in range(50_000) if number not in (3, 49_999, 20_000, 20_001)]
    for threads in THREADS:
        found, report = read(skipping(ds, threads=threads))
        assert found == good
        assert report.num_skipped == 4
        assert "line 4 is not UTF-8" in report.skipped[0]
        assert "line 20001 is not UTF-8" in report.skipped[1]
    with skipping(ds).stream() as stream:
        for _ in range(20_005):
            next(stream)
        state = json.loads(json.dumps(stream.state()))
    assert read(skipping(ds), state=state)[0] == good[20_005:]
    with pytest.raises(DataError, match="line 4 is not UTF-8"):
        run(ds)


def test_a_line_too_long_for_the_budget_is_named_with_one_that_will_do(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"a\n" + b"x" * 3_000_000 + b"\nb\n")
    ds = ps.from_files(tmp_path / "a.txt").with_options(memory=20_000_000)
    with pytest.raises(
        ps.BudgetError, match=r"row 1 of .*a\.txt, byte 2, has 3 MB.*memory=(\d+)\)"
    ) as caught:
        run(ds)
    budget = int(str(caught.value).partition("memory=")[2].partition(")")[0])
    assert [len(line) for line in run(ds.with_options(memory=budget))] == [1, 3_000_000, 1]


def test_a_line_without_an_end_is_skipped_alone(tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("wb") as file:
        file.write(b"a\n")
        file.seek(70_000_000, 1)
        file.write(b"\nb\n")
    ds = ps.from_files(tmp_path / "a.txt")
    with pytest.raises(DataError, match=r"a\.txt.*line 2 has no end within 67108864 bytes"):
        run(ds)
    assert run(ds.with_options(on_error="skip")) == ["a", "b"]
