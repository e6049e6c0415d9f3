"""shuffle: the order of each epoch, after rows, flows, batches and caches."""

from typing import Any

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import NUM_ROWS, ROWS, StageConformance, batches, keep, numbered

import penstock as ps
from penstock.core.order import Permutation


def order(words: tuple[int, ...], num_rows: int = NUM_ROWS) -> list[int]:
    return [int(i) for i in Permutation(num_rows, words).rows(np.arange(num_rows))]


def shuffled(seed: int, epoch: int, *more: int) -> list[Any]:
    return [ROWS[i] for i in order((seed, epoch, 0, *more))]


EPOCHS: dict[str, Case] = {
    "shuffle": Case(lambda: numbered().shuffle(seed=5), shuffled(5, 0), shuffled(5, 1)),
    "shuffle of a flow": Case(
        lambda: numbered().filter(keep).shuffle(seed=5),
        shuffled(5, 0, 0),
        shuffled(5, 1, 0),
        has_length=False,
    ),
    "shuffle of a cache": Case(
        lambda: numbered().filter(keep).cache().shuffle(seed=5),
        shuffled(5, 0),
        shuffled(5, 1),
        has_length=False,
    ),
    "shuffle, then batch": Case(
        lambda: numbered().shuffle(seed=5).batch(4),
        batches(shuffled(5, 0), 4),
        batches(shuffled(5, 1), 4),
    ),
    "shuffle of batches": Case(
        lambda: numbered().batch(4, drop_remainder=True).shuffle(seed=5),
        [batches(ROWS, 4)[i] for i in order((5, 0, 0), 5)],
        [batches(ROWS, 4)[i] for i in order((5, 1, 0), 5)],
    ),
    "shuffle, then repeat": Case(
        lambda: numbered().shuffle(seed=5).repeat(2),
        shuffled(5, 0) + shuffled(5, 1),
        shuffled(5, 2) + shuffled(5, 3),
    ),
    "shuffle, frozen by a cache": Case(
        lambda: numbered().shuffle(seed=5).cache(), shuffled(5, 0), shuffled(5, 0)
    ),
}


class TestShuffle(StageConformance):
    @pytest.fixture(params=EPOCHS)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return EPOCHS[request.param]

    def test_stages_may_follow_it(self, case: Case) -> None:
        ds = case.make()
        assert_same(run(ds.take(3), epoch=1), case.following[:3])
        assert_same(run(ds.map(lambda *p: p), epoch=1), case.following)
        assert_same(run(ps.zip(ds, ds), epoch=1), [(row, row) for row in case.following])
        assert_same(run(ds.cache(), epoch=1), case.elements)
