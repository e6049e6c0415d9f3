"""A stream that is refused names a budget with which it runs to its end, and a cure that helps."""

import contextlib
import gc
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.chains import any_chain

import penstock as ps
from penstock.engine.plan import need


def named(error: ps.BudgetError) -> int:
    """The budget that a refusal names."""
    return int(re.findall(r"memory=(\d+)", str(error))[-1])


def run(ds: ps.Dataset, memory: int | str) -> int:
    """Run a dataset to its end; return how many elements it has."""
    with ds.with_options(memory=memory, processes=0).stream() as stream:
        count = sum(1 for _ in stream)
        assert stream.report().peak_nbytes <= stream.report().budget_nbytes
    return count


def hold_to_it(seed: int, folder: Path, *, regroups: bool = False) -> None:
    """Run a random chain with a random budget, and with what the refusal names."""
    rng = random.Random(seed)
    ds, text = any_chain(rng, folder, regroups=regroups)
    ds = ds.with_options(threads=rng.choice([0, 1, 3]))
    memory = rng.choice([1, 1 << rng.randint(12, 24)])
    try:
        run(ds, memory)
    except ps.BudgetError as error:
        message, budget = str(error), named(error)
    else:
        return
    assert memory < budget < 4 << 30, (seed, message, text)
    gc.collect()
    try:
        # Fields of different lengths can't be unbatched, with any budget.
        with contextlib.suppress(ps.SpecMismatchError):
            run(ds, budget)
    except ps.BudgetError as error:
        pytest.fail(f"seed {seed}: {message}\n{error}\n{text}")


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_a_random_chain_runs_to_its_end_with_the_budget_that_its_refusal_names(
    part: int, tmp_path: Path
) -> None:
    for seed in range(30 * part, 30 * (part + 1)):
        hold_to_it(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_a_random_chain_that_regroups_rows_runs_with_the_budget_that_its_refusal_names(
    tmp_path: Path,
) -> None:
    for seed in range(30):
        hold_to_it(seed, tmp_path, regroups=True)


@pytest.mark.soak
@pytest.mark.parametrize("part", range(40))
@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_four_thousand_random_chains_run_with_the_budgets_that_are_named(
    part: int, tmp_path: Path
) -> None:
    for seed in range(1000 + 100 * part, 1000 + 100 * (part + 1)):
        hold_to_it(seed, tmp_path)


def three_rows(kind: str) -> ps.Dataset:
    x = np.arange(12, dtype="f4").reshape(3, 4)
    if kind == "arrays":
        return ps.from_arrays(x)
    if kind == "taken":
        return ps.from_arrays(np.zeros((5000, 4), "f4")).take(3)
    if kind == "filtered":
        return ps.from_arrays(np.zeros((6, 4), "f4")).enumerate().filter(lambda i, _: i < 3)
    if kind == "texts":
        return ps.from_arrays(["a", "bb", "ccc"])
    spec = ps.ArraySpec((4,), "f4") if kind != "generated texts" else ps.ArraySpec((), str)
    rows = iter if kind != "generated texts" else lambda _: iter(["a", "bb", "ccc"])
    return ps.from_generator(lambda: rows(x), spec, length=3 if kind == "of known length" else None)


KINDS = ["arrays", "taken", "filtered", "texts", "generated", "generated texts", "of known length"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("threads", [0, 2])
def test_a_batch_of_a_billion_takes_what_its_three_rows_take(kind: str, threads: int) -> None:
    ds = three_rows(kind).with_options(threads=threads)
    for made, lengths in [
        (ds.batch(10**9), [3]),
        (ds.padded_batch(10**9), [3]),
        (ds.batch(10**9, drop_remainder=True), []),
        (ds.batch(1, drop_remainder=True).batch(10**9), [3]),
        (ds.shuffle(window="1TB").batch(10**9), [3]),
        (ds.repeat(10**6).take(2).batch(10**9), [2]),
    ]:
        assert made.explain().need_nbytes < 400_000_000, made.explain()
        with made.with_options(memory="400MB").stream() as stream:
            batches = [batch[-1] if isinstance(batch, tuple) else batch for batch in stream]
            assert [len(batch) for batch in batches] == lengths
            assert stream.report().peak_nbytes < 200_000_000


def test_a_batch_of_more_rows_than_were_planned_for_names_what_all_of_them_take():
    ds = ps.from_generator(
        lambda: (np.full(250, row, "f4") for row in range(20_000)), ps.ArraySpec((250,), "f4")
    ).batch(10**9)
    with pytest.raises(ps.BudgetError) as refused:
        run(ds, "4MB")
    assert 20_000_000 < named(refused.value) < 400_000_000
    assert run(ds, named(refused.value)) == 1


@pytest.mark.parametrize("where", ["before", "within"])
def test_a_cache_of_nobody_knows_how_many_rows_counts_them_before_it_names_a_budget(where: str):
    ds = ps.from_generator(
        lambda: (np.full(250, row, "f4") for row in range(5000)), ps.ArraySpec((250,), "f4")
    ).cache()
    with pytest.raises(ps.BudgetError) as refused:
        run(ds, 1 if where == "before" else "2MB")
    assert 5_000_000 < named(refused.value) < 30_000_000
    assert run(ds, named(refused.value)) == 5000


def test_a_refusal_does_not_look_at_rows_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(need, "LOOK_SECONDS", 0.2)

    def endless() -> Iterator[np.ndarray]:
        while True:
            yield np.zeros(1000, "f4")

    ds = ps.from_generator(endless, ps.ArraySpec((1000,), "float32")).cache()
    message = r"or more at least, since there may be more rows than were looked at"
    for memory in (1, "2MB"):
        with pytest.raises(ps.BudgetError, match=message):
            run(ds, memory)
