"""The suite that every stage passes, after rows with random access and after rows that are read forward."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from tests.conformance import ALIGNMENT, Case, Conformance, assert_same, run

import penstock as ps
from penstock.core.nest import flatten

NUM_ROWS = 23
X = np.arange(NUM_ROWS * 3, dtype="f4").reshape(NUM_ROWS, 3)
Y = np.arange(NUM_ROWS)
ROWS: list[Any] = [(X[i], Y[i]) for i in range(NUM_ROWS)]


def keep(*_: Any) -> bool:
    return True


def is_odd(x: Any, y: Any) -> bool:
    return bool(y % 2)


def scaled(x: Any, y: Any) -> dict[str, Any]:
    return {"sum": x.sum(), "x": x * 2, "name": str(y)}


def ragged(x: Any, y: Any) -> Any:
    return np.arange(y % 4)


ODD = [row for row in ROWS if row[1] % 2]
MAPPED = [scaled(*row) for row in ROWS]
RAGGED_SPEC = ps.ArraySpec((None,), "int64")
RAGGED_ROWS = [np.arange(y % 4) for y in Y]


def numbered() -> ps.Dataset:
    """Rows with random access."""
    # No processes: which functions go to them is measured, and tested elsewhere.
    return ps.from_arrays((X, Y)).with_options(processes=0)


def flowing() -> ps.Dataset:
    """The same rows, which can only be read forward."""
    return numbered().filter(keep)


def narrow() -> ps.Dataset:
    """The same rows in parcels of a few rows each, as a tight budget makes them."""
    return flowing().with_options(memory=default_need(flowing()))


def default_need(ds: ps.Dataset) -> int:
    return max(ds.explain().need_nbytes, 1 << 20)


INPUTS: dict[str, Callable[[], ps.Dataset]] = {"rows": numbered, "flow": narrow}


@dataclass(frozen=True)
class Chain:
    """Stages after one of the inputs, and in plain Python what they make of its rows, in every epoch."""

    build: Callable[[ps.Dataset], ps.Dataset]
    elements: list[Any]
    is_pickled: bool = True


def cases(chains: dict[str, Chain]) -> Any:
    """The fixture `case` for a suite: each chain, after each of the inputs."""
    every = {f"{name}, {kind}": (chain, kind) for name, chain in chains.items() for kind in INPUTS}

    @pytest.fixture(params=every)
    def case(self: Any, request: pytest.FixtureRequest) -> Case:
        chain, kind = every[request.param]
        return Case(
            lambda: chain.build(INPUTS[kind]()),
            chain.elements,
            has_length=False,
            is_pickled=chain.is_pickled,
        )

    return case


def check(chain: Chain, kind: str) -> None:
    """For a chain that differs from another only in an argument: what it gives is right."""
    for threads in (0, 2):
        assert_same(run(chain.build(INPUTS[kind]()).with_options(threads=threads)), chain.elements)


def stack(rows: list[Any]) -> Any:
    """The batch of some rows."""
    first, structure = flatten(rows[0])
    columns = zip(*(flatten(row)[0] for row in rows), strict=True)
    return structure.unflatten(
        [_stacked(example, column) for example, column in zip(first, columns, strict=True)]
    )


def _stacked(example: Any, values: tuple[Any, ...]) -> Any:
    if not isinstance(example, bytes | str):
        return np.stack(values)
    out = np.empty(len(values), object)
    out[:] = values
    return out


def batches(rows: list[Any], size: int, *, drop: bool = False) -> list[Any]:
    groups = [rows[i : i + size] for i in range(0, len(rows), size)]
    return [stack(group) for group in groups if not drop or len(group) == size]


class StageConformance(Conformance):
    """What a stage must do beyond what every dataset must: stand anywhere in a chain."""

    def test_stages_may_follow_it(self, case: Case) -> None:
        ds = case.make()
        elements = case.elements
        assert_same(run(ds.take(3)), elements[:3])
        assert_same(run(ds.skip(2).take(2)), elements[2:4])
        assert_same(run(ds.shard(2, 1)), elements[1::2])
        assert_same(run(ds.map(same)), elements)
        assert_same(run(ds.filter(keep)), elements)
        assert_same(run(ds.enumerate(5)), [(np.int64(i), row) for i, row in enumerate(elements, 5)])
        assert_same(run(ds.prefetch(3)), elements)
        assert_same(run(ps.zip(ds, ds)), [(row, row) for row in elements])
        assert_same(run(ps.concatenate(ds, ds)), elements + elements)
        cached = ds.cache()
        assert_same(run(cached), elements)
        assert_same(run(cached, epoch=1), elements)

    def test_a_shuffle_after_it_gives_each_element_once(self, case: Case) -> None:
        ds = case.make().shuffle(seed=2).with_options(memory="256MB")  # A window takes 64 MB.
        found = sorted(map(_key, run(ds)))
        assert found == sorted(map(_key, case.elements))

    def test_repeat_after_it_is_one_epoch_after_the_other(self, case: Case) -> None:
        assert_same(run(case.make().repeat(2)), case.elements + case.following)

    def test_its_batches_start_on_64_bytes(self, case: Case) -> None:
        ds = case.make()
        if not ds.node.is_batched:
            return
        for batch in run(ds):
            for leaf in flatten(batch)[0]:
                is_batch = isinstance(leaf, np.ndarray) and leaf.size and not leaf.dtype.hasobject
                assert not is_batch or leaf.ctypes.data % ALIGNMENT == 0

    def test_the_smallest_budget_that_it_names_does(self, case: Case) -> None:
        ds = case.make().with_options(threads=2)
        if 0 in ds.node.cache_nbytes().values():
            return  # Nobody can know how much such a cache will keep.
        ds = ds.with_options(memory=ds.explain().need_nbytes)
        with ds.stream() as stream:
            for expected in case.elements:
                assert_same([next(stream)], [expected])  # Nothing is kept: that would be said.
            assert next(stream, None) is None
            assert stream.report().peak_nbytes <= ds.explain().budget_nbytes


def same(*parts: Any) -> Any:
    return parts if len(parts) != 1 else parts[0]


def _key(element: Any) -> list[Any]:
    return [
        leaf if isinstance(leaf, bytes | str) else np.asarray(leaf).tolist()
        for leaf in flatten(element)[0]
    ]
