"""The parts of a split, after any rows and before any stage."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import INPUTS, NUM_ROWS, ROWS, Chain, StageConformance, cases, keep

import penstock as ps
from penstock.memory import process_ledger
from penstock.stages.split.dealing import deal_of

OWNERS = deal_of([0.7, 0.2], 4).owners(np.arange(NUM_ROWS), None)


def part(number: int) -> list[Any]:
    return [row for row, owner in zip(ROWS, OWNERS, strict=True) if owner == number]


CHAINS: dict[str, Chain] = {
    # Of 20 rows: the last run is whole, so that rows with and without a length are dealt alike.
    "split": Chain(
        lambda ds: ds.take(20).split(0.7, 0.2, seed=4)[0],
        [row for row in part(0) if row[1] < 20],
    ),
}


class TestSplit(StageConformance):
    case = cases(CHAINS)


def numbers(ds: ps.Dataset, **options: Any) -> list[int]:
    return [
        int(np.asarray(row if not isinstance(row, tuple) else row[0]).flat[0])
        for row in run(ds, **options)
    ]


def saved(folder: Path, kind: str, num_rows: int) -> ps.Dataset:
    """Rows of 3 numbers that begin with the row's own, on storage."""
    x = np.arange(num_rows * 3).reshape(num_rows, 3)
    x[:, 0] = np.arange(num_rows)
    if kind == "npy":
        np.save(folder / "x.npy", x)
        return ps.from_files(folder / "x.npy")
    if kind == "several":
        for number, piece in enumerate(np.array_split(x, 5)):
            np.save(folder / f"x-{number}.npy", piece)
        return ps.from_files(folder / "x-*.npy")
    if kind == "hdf5":
        with h5py.File(folder / "x.h5", "w") as file:
            file.create_dataset("x", data=x, chunks=(64, 3), compression="gzip")
        return ps.from_files(folder / "x.h5", fields="x")
    if kind == "shards":
        ps.from_arrays(x).write(folder / "out", shard_rows=700)
        return ps.from_files(folder / "out")
    if kind == "text":
        (folder / "x.txt").write_text(
            "\n".join(f"{number} {'a' * (number % 50)}" for number in range(num_rows))
        )
        return ps.from_files(folder / "x.txt")
    return ps.from_arrays(x)


def first(row: Any) -> int:
    return int(row.split()[0]) if isinstance(row, str) else int(row[0])


STORED = ["memory", "npy", "several", "hdf5", "shards", "text"]


@pytest.mark.parametrize("kind", STORED)
def test_parts_on_storage_have_the_rows_that_parts_in_memory_have(tmp_path: Path, kind: str):
    whole = saved(tmp_path, kind, 5000)
    expected = [numbers(one) for one in ps.from_arrays(np.arange(5000)).split(0.85, 0.1, seed=2)]
    for one, rows in zip(whole.split(0.85, 0.1, seed=2), expected, strict=True):
        assert len(one) == len(rows)
        assert [first(row) for row in run(one)] == rows
        for epoch in (0, 1):
            found = [first(row) for row in run(one.shuffle(seed=3, window=20_000), epoch=epoch)]
            assert found != rows
            assert sorted(found) == rows


@pytest.mark.parametrize("kind", STORED)
def test_a_part_resumes_in_the_middle_of_its_windows(tmp_path: Path, kind: str):
    ds = saved(tmp_path, kind, 3000).split(0.9)[0].shuffle(seed=1, window=20_000).padded_batch(64)
    with ds.stream(epoch=2) as stream:
        rest = list(stream)
    with ds.stream(epoch=2) as stream:
        for _ in range(17):
            next(stream)
        state = json.loads(json.dumps(stream.state()))
    assert_same(run(pickle.loads(pickle.dumps(ds)), state=state), rest[17:])


@pytest.mark.parametrize("kind", ["npy", "hdf5", "shards", "text"])
@pytest.mark.parametrize("number", [0, 1])
def test_the_smallest_budget_that_a_part_on_storage_names_does(
    tmp_path: Path, kind: str, number: int
):
    ds = (
        saved(tmp_path, kind, 5000)
        .split(0.9)[number]
        .shuffle(window=20_000)
        .with_options(threads=2)
    )
    ds = ds.with_options(memory=ds.explain().need_nbytes)
    with ds.stream() as stream:
        assert sum(1 for _ in stream) == len(ds)
        assert stream.report().peak_nbytes <= ds.explain().budget_nbytes


@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("kind", ["memory", "npy", "hdf5"])
def test_ranks_share_the_batches_of_a_part(tmp_path: Path, kind: str, world: int):
    ds = saved(tmp_path, kind, 2000).split(0.9)[0].shuffle(seed=1, window=20_000).batch(24, True)
    ranks = [run(ds.distribute(rank=rank, world=world)) for rank in range(world)]
    for number, batch in enumerate(run(ds)):
        mine = np.empty_like(batch)
        for rank in range(world):
            mine[rank::world] = ranks[rank][number]
        np.testing.assert_array_equal(mine, batch)


def test_parts_are_the_same_in_every_epoch_and_no_row_leaks():
    train, valid = ps.from_arrays(np.arange(200)).split(0.9, seed=5)
    train, valid = train.shuffle(seed=1), valid.shuffle(seed=1)
    held = set(numbers(valid))
    for epoch in range(3):
        assert set(numbers(valid, epoch=epoch)) == held
        assert not set(numbers(train, epoch=epoch)) & held


def test_a_part_of_a_part_is_apart_from_the_rest():
    train, test = ps.from_arrays(np.arange(1000)).split(0.8)
    train, valid = train.split(0.9)
    found = [set(numbers(one)) for one in (train, valid, test)]
    assert [len(one) for one in found] == [720, 80, 200]
    assert len(set.union(*found)) == 1000


def test_rows_without_a_length_are_dealt_run_by_run():
    parts = ps.from_arrays(np.arange(1007)).filter(keep).split(0.9)
    found = [numbers(one) for one in parts]
    assert sorted(found[0] + found[1]) == list(range(1007))
    assert abs(len(found[1]) - 100.7) < 7
    with pytest.raises(TypeError, match="the length can't be known"):
        len(parts[0])


def test_a_generator_that_says_its_length_has_parts_of_exact_length():
    def generate() -> Any:
        return iter(np.arange(25))

    ds = ps.from_generator(generate, ps.ArraySpec((), "int64"), length=25)
    parts = ds.split(0.9)
    assert [len(one) for one in parts] == [22, 3]
    assert [numbers(one) for one in parts] == [
        numbers(one) for one in ps.from_arrays(np.arange(25)).split(0.9)
    ]


def test_bad_rows_are_dealt_to_nobody():
    def broken(x: Any) -> Any:
        if x % 10 == 3:
            raise ValueError("bad")
        return x

    for ds in (
        ps.from_arrays(np.arange(100)).map(broken).with_options(on_error="skip").split(0.9)[0],
        ps.from_arrays(np.arange(100)).map(broken).split(0.9)[0].with_options(on_error="skip"),
    ):
        found = numbers(ds)
        assert len(found) == 81
        assert found == sorted(found)


BEHIND: dict[str, tuple[Callable[[ps.Dataset], ps.Dataset], str]] = {
    "shuffle": (lambda ds: ds.shuffle(), "split can't follow shuffle: rows change their places"),
    "shuffle, map": (lambda ds: ds.shuffle().map(lambda x: x), "split can't follow shuffle"),
    "shuffled flow": (lambda ds: ds.filter(keep).shuffle(), "split can't follow shuffle"),
    "repeat": (lambda ds: ds.repeat(2), "split can't follow repeat: a row that is there several"),
    "endless": (lambda ds: ds.repeat(), "split can't follow repeat"),
    "repeat, cache": (lambda ds: ds.repeat(2).cache(), "split can't follow repeat"),
    "batch": (lambda ds: ds.batch(4), "split can't follow batch"),
    "a map of batches": (lambda ds: ds.batch(4).map(lambda *row: row), "split can't follow batch"),
    "padded_batch": (
        lambda ds: ds.padded_batch(4),
        r"can't follow padded_batch: .*\n  wrong: ds.padded_batch\(...\).split",
    ),
    "window": (lambda ds: ds.window(4, shift=1), "split can't follow window: windows share rows"),
    "resample": (lambda ds: ds.resample(by="value"), "split can't follow resample"),
    "random filter": (
        lambda ds: ds.map(lambda x, rng: x + rng.integers(9), seed=0).filter(lambda x: x % 2 == 0),
        "depends on the epoch",
    ),
    "distribute": (
        lambda ds: ds.batch(4).distribute(rank=0, world=2),
        "split can't follow batch|can't follow distribute",
    ),
}


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("options", [{}, {"stratify": "value"}])
def test_behind_what_changes_or_repeats_rows_it_is_refused(name: str, options: Any):
    build, message = BEHIND[name]
    ds = build(ps.from_arrays(np.arange(100)))
    with pytest.raises(ValueError, match=message):
        ds.split(0.9, **options)


def test_behind_a_cache_a_shuffle_has_one_order_for_good():
    train, valid = ps.from_arrays(np.arange(50)).shuffle().cache().split(0.8)
    assert sorted(numbers(train) + numbers(valid, epoch=1)) == list(range(50))


def test_behind_a_map_with_a_seed_rows_stay_where_they_are():
    def noisy(x: Any, rng: Any) -> Any:
        return x, rng.random()

    train, valid = ps.from_arrays(np.arange(50)).map(noisy, seed=0).split(0.8)
    assert sorted(numbers(train) + numbers(valid, epoch=1)) == list(range(50))


def test_a_part_without_rows_is_refused():
    with pytest.raises(ValueError, match=r"split\(0.9, seed=0\) of 1 rows would leave part 0"):
        ps.from_arrays(np.arange(1)).split(0.9)
    with pytest.raises(
        ValueError, match=r"leave part 1 without any: its sizes would be \[4, 0, 1\]"
    ):
        ps.from_arrays(np.arange(5)).split(0.8, 0.1)
    assert [len(one) for one in ps.from_arrays(np.arange(0)).split(0.9)] == [0, 0]


def test_explain_tells_the_shares():
    train, valid = ps.from_arrays(np.arange(1000)).split(0.9, seed=3)
    assert "split(0.9, seed=3)[0]" in str(train.explain())
    assert "9 of every 10 rows, by a seeded hash: 900 of 1000 rows" in str(train.explain())
    assert "1 of every 10 rows, by a seeded hash: 100 of 1000 rows" in str(valid.explain())


def test_it_holds_no_memory_and_reads_nothing():
    def generate() -> Any:
        raise AssertionError("read")
        yield

    before = process_ledger.granted
    ps.from_generator(generate, ps.ArraySpec((), "int64")).split(0.9)
    assert len(ps.from_arrays(np.broadcast_to(np.int8(1), (10**12,))).split(0.9)[0]) == 9 * 10**11
    assert process_ledger.granted == before


@pytest.mark.parametrize("kind", INPUTS)
def test_parts_of_one_split_have_states_of_their_own(kind: str):
    train, valid = INPUTS[kind]().split(0.5)
    state = train.stream().state()
    for other in (valid, INPUTS[kind]().split(0.5, seed=1)[0], INPUTS[kind]().split(0.6)[0]):
        with pytest.raises(ps.StateError, match="another pipeline"):
            other.stream(state=state)
