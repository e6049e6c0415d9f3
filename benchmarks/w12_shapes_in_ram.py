"""W12: arrays in RAM of other shapes than W1's: large rows, large batches, many columns; and what two threads gain."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import Sample, throughput


@dataclass(frozen=True, slots=True)
class Shape:
    """Columns of float32, all but the first of numbers; the last is the row's number."""

    name: str
    title: str
    num_rows: int
    width: int
    num_columns: int
    batch_size: int

    def make(self) -> tuple[np.ndarray, ...]:
        rng = np.random.default_rng(0)
        shapes = [(self.num_rows, self.width)] if self.width > 1 else [(self.num_rows,)]
        shapes += [(self.num_rows,)] * (self.num_columns - 2)
        columns = [rng.random(shape, np.float32) for shape in shapes]
        number = np.arange(self.num_rows, dtype=np.float32)
        columns[0].reshape(self.num_rows, -1)[:, 0] = number
        return (*columns, number)

    @property
    def row_nbytes(self) -> int:
        return 4 * (self.width + self.num_columns - 1)


SHAPES = (
    Shape("w12-4k-32", "rows of 4 KB, batch 32", 100_000, 1_000, 2, 32),
    Shape("w12-48k-32", "rows of 48 KB, batch 32", 8_000, 12_000, 2, 32),
    Shape("w12-400-1024", "rows of 400 bytes, batch 1,024", 500_000, 100, 2, 1_024),
    Shape("w12-columns-32", "50 columns of numbers, batch 32", 200_000, 1, 50, 32),
    Shape("w12-columns-1024", "50 columns of numbers, batch 1,024", 200_000, 1, 50, 1_024),
)


def _check(shape: Shape) -> Callable[[Iterable], None]:
    def check(batches: Iterable) -> None:
        found = []
        for batch in batches:
            first = np.asarray(batch[0]).reshape(len(batch[-1]), -1)[:, 0]
            if not np.array_equal(first, batch[-1]):
                raise AssertionError("columns do not belong together")
            found.append(np.array(batch[-1]))
        if not np.array_equal(np.sort(np.concatenate(found)), np.arange(shape.num_rows)):
            raise AssertionError("not every row once")

    return check


def _round(shape: Shape, start: Callable[[], Iterable]) -> Round:
    return throughput(
        start, num_rows=shape.num_rows, batch_size=shape.batch_size, check=_check(shape)
    )


def _penstock(shape: Shape, threads: int | None = None) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        import penstock as ps

        ds = ps.from_arrays(shape.make()).shuffle(seed=0).batch(shape.batch_size)
        return _round(shape, ds.with_options(threads=threads).__iter__)

    return start


def _numpy(shape: Shape) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        columns = shape.make()
        rng = np.random.default_rng(0)

        def epoch() -> Iterable:
            order = rng.permutation(shape.num_rows)
            for first in range(0, shape.num_rows, shape.batch_size):
                rows = order[first : first + shape.batch_size]
                yield tuple([column.take(rows, axis=0) for column in columns])

        return _round(shape, epoch)

    return start


def _memcpy(shape: Shape, threads: int) -> Callable[[Path], Round]:
    """Return a round that copies as many bytes in order, 2 MB at a time, on so many threads."""

    def start(_: Path) -> Round:
        source = np.ones(shape.num_rows * shape.row_nbytes, np.uint8)

        def copy(part: np.ndarray) -> None:
            out = np.empty(2 << 20, np.uint8)
            for first in range(0, len(part), len(out)):
                piece = part[first : first + len(out)]
                np.copyto(out[: len(piece)], piece)

        def one_round() -> Sample:
            began, rounds = time.perf_counter(), 0
            while time.perf_counter() - began < 1.0:
                parts = np.array_split(source, threads)
                workers = [threading.Thread(target=copy, args=(part,)) for part in parts]
                for worker in workers:
                    worker.start()
                for worker in workers:
                    worker.join()
                rounds += 1
            return Sample(rounds * shape.num_rows / (time.perf_counter() - began))

        return one_round

    return start


def _shape_case(shape: Shape) -> Case:
    return Case(
        name=shape.name,
        title=f"arrays in RAM: {shape.title}, full shuffle",
        unit="rows/s",
        contenders=(
            Contender(
                "penstock", f"from_arrays.shuffle.batch({shape.batch_size})", _penstock(shape)
            ),
            Contender("plain NumPy", "permutation, a take a column a batch", _numpy(shape)),
            Contender(
                "memcpy", "the bare limit: as many bytes, in order, two threads", _memcpy(shape, 2)
            ),
        ),
        bars=(times_as_fast(1.0, "plain NumPy"),),
    )


def _threads_case(shape: Shape) -> Case:
    return Case(
        name=shape.name.replace("w12-", "w12-threads-"),
        title=f"two threads against one: {shape.title}",
        unit="rows/s",
        contenders=(
            Contender("penstock", "with_options(threads=2)", _penstock(shape, 2)),
            Contender("one thread", "with_options(threads=1)", _penstock(shape, 1)),
            Contender(
                "memcpy, two threads", "the limit: as many bytes, in order", _memcpy(shape, 2)
            ),
            Contender("memcpy, one thread", "the same, on one", _memcpy(shape, 1)),
        ),
        bars=(
            times_as_fast(1.6, "one thread"),
            times_as_fast(1.6, "memcpy, one thread", subject="memcpy, two threads"),
        ),
    )


CASES = (*map(_shape_case, SHAPES), *map(_threads_case, SHAPES[:3]))
