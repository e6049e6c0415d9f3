"""The index of lines: runs of whole rows, found in pieces, saved, and made anew when a file changes."""

import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import run
from tests.native import twins

import penstock as ps
from penstock import _native
from penstock.core.progress import Step
from penstock.errors import FileChangedError
from penstock.io.formats.lines import TEXT, Dialect
from penstock.io.paths import expand
from penstock.sources.reading import line_index
from penstock.sources.reading.line_index import LineIndex, index_lines, length_sums
from penstock.sources.reading.saved_indexes import Scan

CSV = Dialect(ord(","))
PIECES = [b"a", b"\n", b"\r\n", b'"', b",", b'"b,\n""c"', b"dd", b"x" * 30]


@given(
    st.lists(st.sampled_from(PIECES), max_size=40).map(b"".join),
    st.sampled_from([TEXT, CSV]),
    st.integers(1, 80),
    st.integers(1, 80),
    st.integers(0, 5),
)
def test_runs_of_a_file_are_those_of_the_twin_however_it_is_read(
    data: bytes, dialect: Dialect, run_nbytes: int, piece_nbytes: int, start: int
) -> None:
    import tempfile

    start = min(start, len(data))
    found, faults, unclosed = twins.records(data[start:], dialect.separator, dialect.quote)
    ends, runs = twins.runs(data[start:], dialect.separator, dialect.quote, run_nbytes)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(line_index, "RUN_NBYTES", run_nbytes)
        patch.setattr(line_index, "PIECE_NBYTES", piece_nbytes)
        patch.setattr(line_index, "_SAVED_NBYTES", 0)
        patch.setenv("XDG_CACHE_HOME", folder)
        (Path(folder) / "a.txt").write_bytes(data)
        locations = expand(Path(folder) / "a.txt")
        indexes = index_lines(locations, [start], dialect, direct=False)
        if faults or unclosed >= 0:
            assert indexes is None
            return
        assert indexes is not None
        (index,) = indexes
        assert index.num_rows == len(found)
        assert np.diff(index.rows).tolist() == [len(run) for run in runs]
        assert index.edges[:-1].tolist() == [start + end for end in [0, *ends][:-1]]
        again = LineIndex.of(index.numbers(), start, locations[0])
        assert again is not None
        assert all(np.array_equal(*pair) for pair in zip(parts(again), parts(index), strict=True))
        patch.setattr(line_index, "_scan", lambda *_, **__: pytest.fail("scanned again"))
        (saved,) = index_lines(locations, [start], dialect, direct=False) or []
        assert all(np.array_equal(*pair) for pair in zip(parts(saved), parts(index), strict=True))


def parts(index: LineIndex) -> list[object]:
    return [index.edges, index.rows, index.lengths, index.flags, index.is_open]


def test_numbers_that_are_no_index_of_this_file_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n")
    (location,) = expand(path)
    index = line_index._scan(
        location, 0, TEXT, direct=False, all_files=Scan(Step(), threading.Event())
    )
    assert index is not None
    numbers = index.numbers()
    assert LineIndex.of(numbers, 0, location) is not None
    assert LineIndex.of(numbers, 1, location) is None
    assert LineIndex.of(numbers[:-1], 0, location) is None
    assert LineIndex.of(numbers[:2], 0, location) is None
    for at in range(len(numbers)):
        if at not in (0, 1):  # What the text has, and whether its end is open.
            other = numbers.copy()
            other[at] += 1
            assert LineIndex.of(other, 0, location) is None, at


def test_large_files_are_scanned_once_and_again_when_they_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "a.txt"
    path.write_text("some text\n" * 200_000)
    scanned = []
    real = line_index._scan

    def scan(location, *args, **options):
        scanned.append(location.name)
        return real(location, *args, **options)

    monkeypatch.setattr(line_index, "_scan", scan)
    assert len(ps.from_files(path)) == len(ps.from_files(path)) == 200_000
    assert scanned == ["a.txt"]
    assert len(list((tmp_path / "cache" / "penstock" / "lines-index").glob("*.npy"))) == 1
    path.write_text("more of it\n" * 200_001)
    assert len(ps.from_files(path)) == 200_001
    # With another dialect it is another index.
    assert len(ps.from_files(path, format="csv")) == 200_000
    assert len(scanned) == 3


def test_a_file_that_changes_while_it_is_scanned_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("some text\n" * 10)
    (location,) = expand(path)
    path.write_text("some other\n" * 10)
    with pytest.raises(FileChangedError, match="changed"):
        index_lines([location], [0], TEXT, direct=False)


def test_a_line_longer_than_any_is_no_row_of_an_index(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    with path.open("wb") as file:
        file.write(b"a\n")
        file.truncate(70_000_000)
    assert index_lines(expand(path), [0], TEXT, direct=False) is None
    assert "read forward" in str(ps.from_files(path).explain())
    assert run(ps.from_files(path).take(1)) == ["a"]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=50))
def test_sums_of_lengths_are_never_too_small_and_hardly_too_large(lengths: list[int]) -> None:
    text = b"".join(b"x" * length + b"\n" for length in lengths)
    ends, rows = np.zeros(50, np.int64), np.zeros(50, np.int64)
    counts = np.zeros(_native.NUM_LENGTHS, np.int64)
    _native.scan_lines(text, -1, ord('"'), 1 << 20, True, ends, rows, counts)
    longest = sorted(lengths, reverse=True)
    sums = length_sums(counts)
    assert len(sums) == (len(lengths) - 1).bit_length() + 1
    for power, nbytes in enumerate(sums):
        wanted = sum(longest[: 1 << power])
        assert wanted <= nbytes <= wanted * 9 / 8
