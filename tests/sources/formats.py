"""What every file format must do: inherit `FormatSuite`, and say how its files are written."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance

import penstock as ps
from penstock.errors import DataError, PenstockError

Columns = dict[str, Any]
CLEAR = PenstockError
"""The errors that name a file and a cure; anything else from a bad file is a bug."""


def sample(num_rows: int, start: int = 0) -> Columns:
    """Return columns in which every row can be told from every other."""
    number = np.arange(start, start + num_rows)
    return {"x": (number[:, None] * 10 + np.arange(3)).astype("float32"), "y": number.astype("i8")}


def joined(columns: list[Columns]) -> Columns:
    return {name: np.concatenate([one[name] for one in columns]) for name in columns[0]}


def rows_of(columns: Columns) -> list[Any]:
    if list(columns) == [""]:
        return list(columns[""])
    names = sorted(columns)
    return [{name: columns[name][i] for name in names} for i in range(len(columns[names[0]]))]


def in_memory(columns: Columns) -> ps.Dataset:
    return ps.from_arrays(columns[""] if list(columns) == [""] else columns)


def numbers(batches: list[Any]) -> list[int]:
    """Return the numbers of all rows, in the order they came."""
    values = [b["y"] if isinstance(b, dict) else b[..., 0] // 10 for b in batches]
    return np.concatenate(values).astype(int).tolist()


def assert_names(error: Exception, file: str) -> None:
    """Assert that an error names the file, or the budget that what it claims does not fit."""
    assert file in str(error) or "memory" in str(error)


@contextlib.contextmanager
def as_nobody(folder: Path):
    """Run as a user who may not read what is root's."""
    if os.geteuid() != 0:
        yield
        return
    for parent in [folder, *folder.parents]:
        if parent.stat().st_uid == 0 and str(parent).startswith("/tmp/"):
            parent.chmod(0o755)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


class FormatSuite(SourceConformance):
    """The tests of a format. `write(path, columns)` writes a file of it."""

    suffix: str
    options: ClassVar[dict[str, Any]] = {}
    is_folder = False
    damage_is_found = True
    """Whether a file that is cut anywhere is always noticed."""

    def write(self, path: Path, columns: Columns) -> None:
        raise NotImplementedError

    def columns(self, num_rows: int, start: int = 0) -> Columns:
        return sample(num_rows, start)

    def open(self, path: Any) -> ps.Dataset:
        return ps.from_files(path, **self.options)

    def files(self, folder: Path, lengths: tuple[int, ...]) -> Columns:
        """Write files of these lengths, and return all their rows."""
        written, start = [], 0
        for number, length in enumerate(lengths):
            written.append(self.columns(length, start))
            self.write(folder / f"part-{number}{self.suffix}", written[-1])
            start += length
        return joined(written)

    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        columns = self.files(tmp_path, (13, 8))
        return Case(lambda: self.open(f"{tmp_path}/*{self.suffix}"), rows_of(columns))

    def test_a_folder_of_files_of_different_lengths_is_one_dataset(self, tmp_path: Path) -> None:
        columns = self.files(tmp_path, (5, 1, 7, 2))
        assert_same(run(self.open(tmp_path)), rows_of(columns))

    def test_a_list_of_files_keeps_its_order(self, tmp_path: Path) -> None:
        columns = self.files(tmp_path, (4, 3))
        paths = [tmp_path / f"part-{number}{self.suffix}" for number in (1, 0)]
        rows = rows_of(columns)
        assert_same(run(self.open(paths)), rows[4:] + rows[:4])

    def test_chains_give_what_the_same_arrays_in_memory_give(self, tmp_path: Path) -> None:
        columns = self.files(tmp_path, (200, 37, 113))
        mine, theirs = self.open(tmp_path), in_memory(columns)
        for epoch in (0, 1):
            for threads in (0, 1, 3):
                got = run(mine.shuffle(seed=5).batch(16).with_options(threads=threads), epoch=epoch)
                assert_same(got, run(theirs.shuffle(seed=5).batch(16), epoch=epoch))
        assert_same(run(mine.skip(190).take(60).batch(7)), run(theirs.skip(190).take(60).batch(7)))

    def test_a_windowed_shuffle_is_a_permutation_whatever_the_threads_and_resumes_anywhere(
        self, tmp_path: Path
    ) -> None:
        columns = self.files(tmp_path, (30_000, 11_001))
        num_rows = len(next(iter(columns.values())))
        ds = self.open(tmp_path).shuffle(seed=2, window="200KB").batch(500)
        assert "windowed" in str(ds.explain())
        states = []
        with ds.with_options(threads=0).stream() as stream:
            batches = []
            for batch in stream:
                batches.append(batch)
                states.append(stream.state())
        assert sorted(numbers(batches)) == list(range(num_rows))
        assert numbers(batches) != list(range(num_rows))
        assert_same(run(ds.with_options(threads=3)), batches)
        for done in (1, 17, 40, len(states) - 1):
            state = json.loads(json.dumps(states[done - 1]))
            assert_same(run(ds.with_options(threads=2), state=state), batches[done:])

    def test_files_of_other_dtypes_are_refused_by_name(self, tmp_path: Path) -> None:
        columns = self.columns(4)
        name = next(iter(columns))
        self.write(tmp_path / f"a{self.suffix}", columns)
        other = columns | {name: columns[name].astype("float64")}
        self.write(tmp_path / f"b{self.suffix}", other)
        with pytest.raises(ValueError, match=r"float32.*a\.\w+.*float64.*b\."):
            self.open(tmp_path)

    def test_a_file_that_is_not_there_is_named(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=f"nowhere{self.suffix}"):
            self.open(tmp_path / f"nowhere{self.suffix}")

    def test_a_file_that_vanishes_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / f"a{self.suffix}"
        self.write(path, self.columns(50))
        ds = self.open(path).batch(10)
        shutil.rmtree(path) if self.is_folder else path.unlink()
        with pytest.raises(DataError, match=f"a{self.suffix}"):
            run(ds)

    def test_a_file_that_may_not_be_read_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / f"a{self.suffix}"
        self.write(path, self.columns(50))
        path.chmod(0)
        try:
            with as_nobody(tmp_path), pytest.raises(PermissionError, match="chmod"):
                self.open(path)
        finally:
            path.chmod(0o700)

    def test_a_file_that_is_cut_short_is_an_error(self, tmp_path: Path) -> None:
        whole = tmp_path / f"whole{self.suffix}"
        self.write(whole, self.columns(400))
        data = whole.read_bytes()
        cuts = sorted({0, 1, 5, 9, 40, 200, len(data) // 2, len(data) - 9, len(data) - 1})
        for cut in cuts:
            path = tmp_path / f"cut-{cut}{self.suffix}"
            path.write_bytes(data[:cut])
            with pytest.raises(CLEAR, match=f"cut-{cut}"):
                run(self.open(path).batch(32))

    def test_a_file_that_shrinks_while_it_is_read_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / f"a{self.suffix}"
        self.write(path, self.columns(60_000))
        ds = self.open(path).batch(100).with_options(threads=0)
        with ds.stream() as stream:
            next(stream)
            os.truncate(path, path.stat().st_size // 3)
            with pytest.raises(DataError, match=f"a{self.suffix}"):
                list(stream)

    def test_damaged_bytes_give_rows_or_a_clear_error(self, tmp_path: Path) -> None:
        whole = tmp_path / f"whole{self.suffix}"
        self.write(whole, self.columns(64))
        data = bytearray(whole.read_bytes())
        generator = np.random.default_rng(7)
        for number in range(120):
            damaged = data.copy()
            # The ends of a file hold its index: that is where damage is worst.
            reach = min(len(data), 300)
            where = generator.integers(0, reach) * (-1 if number % 2 else 1)
            damaged[int(where)] ^= 1 << int(generator.integers(0, 8))
            path = tmp_path / f"damaged{self.suffix}"
            path.write_bytes(damaged)
            try:
                rows = run(self.open(path).batch(16).with_options(memory="64MB", threads=0))
            except (CLEAR, ps.PenstockWarning) as error:
                # A warning: what is damaged may look like a field of a type that we do not read.
                assert_names(error, "damaged")
            else:
                assert len(rows) <= 100
