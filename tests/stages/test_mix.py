"""mix: which input each row comes from, and where it ends."""

import numpy as np
import pytest
from tests.conformance import Case, run
from tests.stages.conformance import INPUTS, StageConformance

import penstock as ps

MIXES = {f"{stop}, {kind}": (stop, kind) for stop in ("first", "all") for kind in ("rows", "flow")}


class TestMix(StageConformance):
    @pytest.fixture(params=MIXES)
    def case(self, request: pytest.FixtureRequest) -> Case:
        stop, kind = MIXES[request.param]

        def make(kind: str = kind) -> ps.Dataset:
            ds = INPUTS[kind]()
            return ps.mix(
                [ds, ds.map(lambda x, y: (x, y + 100)).take(9)], weights=[3, 1], stop=stop
            )

        # The flow must give what the rows give: those are found from the pattern, row by row.
        return Case(make, run(make("rows")), has_length=False, is_pickled=False)


def owners(ds: ps.Dataset) -> list[int]:
    return [int(y) // 1_000_000 for y in ds]


def parts(*lengths: int) -> list[ps.Dataset]:
    return [ps.from_arrays(np.arange(n) + 1_000_000 * i) for i, n in enumerate(lengths)]


def test_mix_gives_each_input_in_its_own_order():
    found = [int(y) for y in ps.mix(parts(300, 200), weights=[2, 1], stop="all")]
    assert [y for y in found if y < 1_000_000] == list(range(300))
    assert [y - 1_000_000 for y in found if y >= 1_000_000] == list(range(200))


def test_mix_takes_datasets_of_a_generator():
    assert len(ps.mix(ds for ds in parts(10, 10))) == len(ps.mix(parts(10, 10)))


def test_mix_follows_its_weights_everywhere():
    found = np.array(owners(ps.mix(parts(90_000, 30_000), weights=[3, 1])))
    for start in range(0, 60_000, 10_000):
        assert abs((found[start : start + 10_000] == 0).mean() - 0.75) < 0.02


def test_mix_until_the_first_ends_stops_where_a_row_is_missing():
    ds = ps.mix(parts(10, 500), stop="first")
    found = owners(ds)
    assert found.count(0) == 10
    assert len(ds) == len(found)
    longer = owners(ps.mix(parts(11, 500), stop="first"))
    assert longer[: len(found)] == found
    assert longer[len(found)] == 0


def test_mix_until_all_end_gives_every_row_once():
    ds = ps.mix(parts(10, 50, 7), weights=[0.2, 5, 1], stop="all", seed=3)
    assert len(ds) == 67
    found = sorted(divmod(int(y), 1_000_000) for y in ds)
    assert found == [(i, row) for i, n in enumerate((10, 50, 7)) for row in range(n)]


def test_mix_depends_on_its_seed_and_not_on_the_epoch():
    make = {seed: ps.mix(parts(50, 50), seed=seed) for seed in (0, 1)}
    assert owners(make[0]) == owners(make[0])
    assert owners(make[0]) != owners(make[1])


def test_mix_with_what_never_ends_stops_with_the_first_or_never():
    a, b = parts(20, 5)
    found = owners(ps.mix([a, b.repeat()]))
    assert found.count(0) == 20
    with pytest.raises(TypeError, match="infinite"):
        len(ps.mix([a, b.repeat()], stop="all"))
    assert len(list(ps.mix([a, b.repeat()], stop="all").take(200))) == 200
