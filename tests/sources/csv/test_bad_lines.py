"""on_error="skip" for CSV: lines that do not parse are left out, counted and named."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from tests.conformance import run
from tests.sources.bad_files import THREADS, read, skipping

import penstock as ps
from penstock.errors import DataError


def test_lines_of_csv_that_do_not_parse_are_left_out(tmp_path: Path) -> None:
    lines = [f"{number},{number / 2},name {number}" for number in range(4000)]
    bad = {
        7: "7,3.5",
        8: "8,4,too,many",
        100: "one hundred,50,x",
        2000: '2000,1,"never closed',
        2500: "99999999999999999999,1,x",
        3000: "",
        3999: '3999,2,a "quote" in "it',
    }
    for number, line in bad.items():
        lines[number] = line
    data = ("y,half,name\n" + "\n".join(lines) + "\n").encode()
    path = tmp_path / "a.csv"
    path.write_bytes(data.replace(b"name 1234\n", b"name \xff\n"))
    spec = {"y": "int64", "half": "float64"}
    with pytest.raises(DataError, match=r"a\.csv") as caught:
        ps.from_files(path, spec=spec)
    assert "on_error='skip'" in caught.value.__notes__[0]
    good = [number for number in range(4000) if number not in {*bad, 1234}]
    ds = ps.from_files(path, spec=spec, on_error="skip")
    # The empty line is nobody's row, and a quote within a cell is fine.
    good = sorted([*good, 3999])
    for threads in THREADS:
        found, report = read(skipping(ds, threads=threads))
        assert found == good
        assert report.num_skipped == 6
    told = "\n".join(report.skipped)
    for line in (9, 10, 102, 1236, 2002, 2502):
        assert f"line {line}" in told
    with skipping(ds).batch(100).stream() as stream:
        states = [stream.state() for _ in stream]
    for done in (1, 13, 20, 21, 39):
        rest = run(skipping(ds).batch(100), state=json.loads(json.dumps(states[done - 1])))
        assert np.concatenate([one["y"] for one in rest]).tolist() == good[done * 100 :]
    with pytest.raises(DataError, match="line 10"):
        read(skipping(ds, max_errors=1))
    with pytest.raises(DataError, match="line"):
        run(ds)


def test_a_quote_that_is_never_closed_costs_its_line_in_a_long_file(tmp_path: Path) -> None:
    lines = [f'{number},"a name, and more of it {number}"' for number in range(60_000)]
    lines[20_000] = '20000,"never closed'
    lines[20_001] = '20001,"nor this'
    path = tmp_path / "a.csv"
    path.write_text("y,name\n" + "\n".join(lines) + "\n")
    ds = skipping(ps.from_files(path, "y"))
    with ds.batch(1000).stream() as stream:
        batches, states = [], []
        for batch in stream:
            batches.append(batch)
            states.append(stream.state())
        report = stream.report()
    found = np.concatenate(batches).tolist()
    assert found == [number for number in range(60_000) if number not in (20_000, 20_001)]
    assert report.num_skipped == 2
    for done in (19, 20, 21, 40):
        rest = run(ds.batch(1000), state=json.loads(json.dumps(states[done - 1])))
        assert np.concatenate(rest).tolist() == found[done * 1000 :]


def test_types_of_csv_are_found_in_its_good_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n1,2\n3\n5,\n7,8\n")
    ds = skipping(ps.from_files(tmp_path / "a.csv", on_error="skip"))
    assert ds.spec["b"].dtype == np.float64  # One number is missing.
    assert [int(row["a"]) for row in run(ds)] == [1, 5, 7]
    with ds.stream() as stream:
        list(stream)
        told = stream.report().skipped
    assert [re.findall(r"line \d", one) for one in told] == [["line 3"]]


def test_a_header_with_a_quote_that_is_never_closed_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('a,"b\n1,2\n3,4\n')
    with pytest.raises(DataError, match=r"a\.csv.*line 1: .*quote"):
        ps.from_files(tmp_path / "a.csv")
    ds = ps.from_files(tmp_path / "a.csv", on_error="skip")
    with pytest.raises(TypeError, match="length"):
        len(ds)
