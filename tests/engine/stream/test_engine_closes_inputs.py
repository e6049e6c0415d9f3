"""After an error, or a break, all inputs of a stream are closed at once, however long the error lives."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import FunctionError

SCALAR = ps.ArraySpec((), "int64")


class Source:
    """Generators of numbers, and how many of them were begun and ended."""

    def __init__(self) -> None:
        self.num_begun = self.num_ended = 0

    def __call__(self) -> Iterator[np.int64]:
        self.num_begun += 1
        try:
            yield from np.arange(1000)
        finally:
            self.num_ended += 1

    def dataset(self) -> ps.Dataset:
        return ps.from_generator(self, spec=SCALAR)


def failing(x: Any) -> Any:
    if x == 60:
        raise ValueError("sixty")
    return x


STAGES: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "nothing": lambda ds: ds,
    "batch": lambda ds: ds.batch(4),
    "unbatch": lambda ds: ds.batch(4).unbatch(),
    "filter": lambda ds: ds.filter(lambda x: x >= 0),
    "map": lambda ds: ds.map(lambda x: x + 0, spec=SCALAR),
    "shuffle": lambda ds: ds.shuffle(seed=0, window="1KB"),
    "take": lambda ds: ds.take(900),
    "skip": lambda ds: ds.skip(3),
    "shard": lambda ds: ds.shard(2, 0),
    "repeat": lambda ds: ds.repeat(2),
    "enumerate": lambda ds: ds.enumerate(),
    "zip": lambda ds: ps.zip(ds, ds),
    "concatenate": lambda ds: ps.concatenate(ds, ds),
    "mix": lambda ds: ps.mix([ds, ds], seed=0),
    "cache": lambda ds: ds.cache(),
}


def is_left(ds: ps.Dataset, *, by: str) -> BaseException | None:
    """Read some of a dataset; return the error that it ended with."""
    try:
        for number, _ in enumerate(ds):
            if by == "break" and number == 5:
                break
    except FunctionError as error:
        return error
    return None


@pytest.mark.parametrize("num_threads", [0, 2])
@pytest.mark.parametrize("stage", STAGES.values(), ids=STAGES)
def test_generators_are_closed(stage: Callable[[ps.Dataset], ps.Dataset], num_threads: int) -> None:
    source = Source()
    options = {"threads": num_threads, "processes": 0}
    inner = source.dataset().map(failing, spec=SCALAR)
    error = is_left(stage(inner).with_options(**options), by="error")
    assert error is not None
    assert source.num_begun == source.num_ended > 0
    outer = stage(source.dataset())
    is_left(outer.with_options(**options), by="break")
    assert source.num_begun == source.num_ended
    # The function fails behind the stage, which still has rows.
    behind = outer.map(lambda *row: failing(int(np.max(row[0]))), spec=SCALAR)
    later = is_left(behind.filter(lambda x: True).with_options(**options), by="error")
    assert source.num_begun == source.num_ended
    del error, later


@pytest.mark.parametrize("num_threads", [0, 2])
def test_a_cache_on_disk_can_be_filled_again_while_the_error_lives(
    tmp_path: Any, num_threads: int
) -> None:
    cached = (
        ps.from_arrays(np.arange(5000)).filter(lambda x: True).cache(tmp_path / "cache", key="x")
    )
    behind = cached.map(failing, spec=SCALAR).filter(lambda x: True)
    with pytest.raises(FunctionError) as caught:
        list(behind.with_options(threads=num_threads, processes=0))
    assert sum(len(batch) for batch in cached.batch(10)) == 5000
    assert caught.value is not None
