"""What every rank must get of the batches of one process, in plain Python."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tests.conformance import assert_same

import penstock as ps
from penstock.core.nest import flatten


def part_of(batch: Any, rank: int, world: int, size: int, *, static: bool = False) -> Any:
    """One rank's part of a global batch, filled up; with the weights of its rows."""
    leaves, structure = flatten(batch)
    m = len(leaves[0])
    filled = size if static else -(-m // world) * world
    filled = m if m == size else filled
    places = [place % m for place in range(rank, filled, world)]
    weights = np.array([filled / m if p < m else 0 for p in range(rank, filled, world)], "f4")
    return structure.unflatten([leaf[places] for leaf in leaves]), weights


def global_batches(ds: ps.Dataset, epoch: int = 0, most: int | None = None) -> list[Any]:
    with ds.stream(epoch=epoch) as stream:
        return [batch for batch, _ in zip(stream, range(most or 10**9), strict=False)]


def num_rows(batch: Any) -> int:
    return len(flatten(batch)[0][0])


def declared_batches(ds: ps.Dataset, size: int, uneven: str | None, epoch: int = 0) -> list[Any]:
    """The global batches: those of one process; without short ones if these are dropped, before later stages."""
    if uneven != "drop":
        return global_batches(ds, epoch)
    whole = global_batches(ds.distribute(rank=0, world=1, uneven="drop"), epoch)
    assert all(num_rows(batch) == size for batch in whole)
    return whole


def check_parts(
    ds: ps.Dataset,
    size: int,
    world: int,
    *,
    uneven: str | None,
    static: bool = False,
    epoch: int = 0,
) -> None:
    """Every rank gets its part of every global batch of `ds`."""
    whole = declared_batches(ds, size, uneven, epoch)
    for rank in range(world):
        part = ds.distribute(rank=rank, world=world, uneven=uneven, static=static)
        expected = [part_of(batch, rank, world, size, static=static) for batch in whole]
        if uneven != "pad":
            expected = [rows for rows, _ in expected]
        assert_same(global_batches(part, epoch), expected)


def check_elastic(
    ds: ps.Dataset, size: int, worlds: Sequence[int], steps: Sequence[int], *, uneven: str | None
) -> None:
    """Worlds take turns, each for some steps, from a state of any rank before: no row is lost or repeated."""
    whole = declared_batches(ds, size, uneven)
    state, done, turn = None, 0, 0
    while done < len(whole):
        world, count = worlds[turn % len(worlds)], steps[turn % len(steps)]
        states = []
        for rank in range(world):
            part = ds.distribute(rank=rank, world=world, uneven=uneven)
            with part.stream(state=state) as stream:
                for batch in whole[done : done + count]:
                    expected = part_of(batch, rank, world, size)
                    assert_same([next(stream)], [expected if uneven == "pad" else expected[0]])
                states.append(stream.state())
        assert all(one == states[0] for one in states), states
        state = states[turn % world]
        done, turn = done + count, turn + 1
    assert state is None or (state["epoch"], state["element"]) == (1, 0)
