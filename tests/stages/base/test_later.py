"""Blocks that native jobs read: the same rows, and the same errors at the same rows, as those read in Python."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.rows import Rows
from penstock.sources.text import TextRows
from penstock.sources.tfrecord.rows import TFRecordRows

NUM_ROWS = 20_000
LINES = [f"line {number} " + "é" * (number % 50) for number in range(NUM_ROWS)]
FEATURES = {"x": ps.FixedFeature((3,), "float32"), "y": ps.FixedFeature((), "int64")}
SMALL = {"memory": "64MB", "threads": 2}


@pytest.fixture
def deferred(monkeypatch: pytest.MonkeyPatch) -> list[slice]:
    """Return the rows that were left to native jobs, span by span."""
    found: list[slice] = []

    def watch(kind: type[Rows]) -> None:
        before = kind.defers

        def defers(self: Any, rows: slice) -> bool:
            answer = before(self, rows)
            if answer:
                found.append(rows)
            return answer

        monkeypatch.setattr(kind, "defers", defers)

    watch(TextRows)
    watch(TFRecordRows)
    return found


def text(folder: Path) -> ps.Dataset:
    path = folder / "a.txt"
    path.write_text("\n".join(LINES))
    return ps.from_files(path)


def records(folder: Path) -> ps.Dataset:
    rows = {"x": np.arange(3 * NUM_ROWS, dtype="float32").reshape(-1, 3), "y": np.arange(NUM_ROWS)}
    ps.from_arrays(rows).write(folder / "records", format="tfrecord")
    return ps.from_tfrecord(folder / "records", FEATURES)


CHAINS: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "rows": lambda ds: ds,
    "batches": lambda ds: ds.batch(32),
    "whole batches": lambda ds: ds.batch(300, drop_remainder=True),
    "a part": lambda ds: ds.skip(17).take(15_000).batch(64),
    "without threads": lambda ds: ds.batch(32).prefetch(0),
    "one thread": lambda ds: ds.batch(32).with_options(threads=1),
}


def flat(rows: Any) -> list[Any]:
    return [
        {name: np.asarray(value).tolist() for name, value in row.items()}
        if isinstance(row, dict)
        else np.asarray(row, object).tolist()
        for row in rows
    ]


@pytest.mark.parametrize("make", [text, records])
@pytest.mark.parametrize("name", CHAINS)
def test_rows_are_those_that_python_reads(
    make: Any, name: str, tmp_path: Path, deferred: list[slice], monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = CHAINS[name](make(tmp_path))
    found = flat(ds.stream())
    assert deferred
    with ds.stream() as stream:
        for _ in range(len(found) // 2):
            next(stream)
        state = stream.state()
    assert flat(ds.stream(state=state)) == found[len(found) // 2 :]
    for kind in (TextRows, TFRecordRows):
        monkeypatch.setattr(kind, "defers", lambda self, rows: False)
    assert flat(ds.stream()) == found


@pytest.mark.parametrize("make", [text, records])
def test_stages_that_need_other_rows_read_them_in_python(
    make: Any, tmp_path: Path, deferred: list[slice]
) -> None:
    ds = make(tmp_path)
    for other in (ds.shuffle().batch(32), ds.shard(3, 1), ds.batch(2).batch(2), ds.repeat(2)):
        assert sum(1 for _ in other)
    assert not deferred


def test_a_block_across_files_is_read_in_python(tmp_path: Path, deferred: list[slice]) -> None:
    for number in range(40):
        (tmp_path / f"{number:02d}.txt").write_text("".join(f"{number} {k}\n" for k in range(50)))
    found = [line for batch in ps.from_files(tmp_path).batch(7) for line in batch]
    assert found == [f"{number} {k}" for number in range(40) for k in range(50)]
    assert not any(rows.start // 50 != (rows.stop - 1) // 50 for rows in deferred)


def test_a_bad_row_is_an_error_at_its_turn(tmp_path: Path, deferred: list[slice]) -> None:
    """Rows before its block come first, though blocks are made ahead; the error is that of the careful way."""
    path = tmp_path / "a.txt"
    lines = [line.encode() for line in LINES]
    lines[15_000] = b"\xff\xfe"
    path.write_bytes(b"\n".join(lines))
    ds = ps.from_files(path).with_options(**SMALL)
    seen = 0
    with pytest.raises(ps.DataError, match=r"a.txt.*line 15001"):
        for _ in ds:
            seen += 1
    assert 0 < seen <= 15_000
    assert deferred
    kept = list(ds.with_options(on_error="skip"))
    assert kept == LINES[:15_000] + LINES[15_001:]


def test_a_damaged_record_is_an_error_at_its_turn(tmp_path: Path, deferred: list[slice]) -> None:
    ds = records(tmp_path)
    (path,) = (tmp_path / "records").glob("*.tfrecord")
    data = bytearray(path.read_bytes())
    size = len(data) // NUM_ROWS
    data[15_000 * size + 20] ^= 1
    stamp = path.stat()
    path.write_bytes(data)
    import os

    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    seen = 0
    with pytest.raises(ps.DataError, match=r"the record's data must match its checksum"):
        for batch in ds.batch(100).with_options(**SMALL):
            seen += len(batch["y"])
    assert 0 < seen <= 15_100
    assert deferred


@pytest.mark.parametrize("make", [text, records])
def test_a_file_that_changes_while_it_is_read_is_an_error(make: Any, tmp_path: Path) -> None:
    ds = make(tmp_path).batch(10).with_options(**SMALL)
    path = next(path for path in tmp_path.rglob("*") if path.suffix in (".txt", ".tfrecord"))
    stream = ds.stream()
    next(stream)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(ps.FileChangedError, match="changed after it was listed"), stream:
        list(stream)


def test_lines_too_long_for_a_job_are_read_in_python(tmp_path: Path, deferred: list[slice]) -> None:
    path = tmp_path / "a.txt"
    lines = ["short", "x" * 300_000, "", "last"]
    path.write_text("\r\n".join(lines))
    assert list(ps.from_files(path)) == lines
    assert not deferred


def test_a_file_that_is_gone_is_an_error_at_its_turn(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text("".join(f"{name}{k}\n" for k in range(20_000)))
    ds = ps.from_files(tmp_path).with_options(**SMALL)
    (tmp_path / "b.txt").unlink()
    seen = []
    with pytest.raises(ps.MissingFileError, match=r"b.txt"):
        for line in ds:
            seen.append(line)
    assert seen[:3] == ["a0", "a1", "a2"]
    assert len(seen) > 10_000
