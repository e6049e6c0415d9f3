"""distribute: the same global batches for every world, each row once, with every stage before it."""

# ruff: noqa: E501  # Tables read best with a case a line.
import itertools
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.chains import Model, chains
from tests.conformance import assert_same
from tests.stages.distribute.dealing import check_elastic, check_parts, global_batches, part_of

import penstock as ps

NUM_ROWS = 101
X = np.arange(NUM_ROWS * 3, dtype="f4").reshape(NUM_ROWS, 3)
Y = np.arange(NUM_ROWS)
TEXTS = [f"row {number}" for number in range(NUM_ROWS)]
LISTS = [np.arange(number % 5) for number in range(NUM_ROWS)]


def noisy(x: Any, y: Any, random: np.random.Generator) -> Any:
    return x + random.random(3, dtype="f4"), y


def centred(x: Any, y: Any) -> Any:
    return x - x.mean(), y


def is_kept(x: Any, y: Any) -> bool:
    return bool(y % 3)


def is_kept_batch(x: Any, y: Any) -> bool:
    return bool(y[0] % 8)


def rows() -> ps.Dataset:
    # No processes: which functions go to them is measured, and tested elsewhere.
    return ps.from_arrays((X, Y)).with_options(processes=0)


def saved(folder: Path) -> ps.Dataset:
    if not (folder / "x.npy").exists():
        np.save(folder / "x.npy", np.repeat(X, 30, axis=0))
    return ps.from_files(folder / "x.npy")


Build = Callable[[Path], ps.Dataset]
BATCHED: dict[str, Build] = {
    "arrays": lambda _: rows().batch(12),
    "shuffled": lambda _: rows().shuffle(seed=1).batch(12),
    "texts": lambda _: ps.from_arrays({"t": TEXTS, "y": Y}).shuffle().batch(12),
    "no remainder": lambda _: rows().batch(12, drop_remainder=True),
    "map": lambda _: rows().shuffle().map(centred).batch(12),
    "map with a seed": lambda _: rows().map(noisy, seed=3).batch(12),
    "map of batches": lambda _: rows().batch(12).map(centred),
    "map of batches with a seed": lambda _: rows().batch(12).map(lambda x, y, r: (x + r.random(), y), seed=1),
    "take, skip and shard": lambda _: rows().skip(5).shard(2, 1).take(41).batch(12),
    "enumerate": lambda _: rows().shuffle().enumerate().batch(12),
    "repeat": lambda _: rows().shuffle().repeat(3).batch(12),
    "repeat of batches": lambda _: rows().shuffle().batch(12).repeat(3),
    "batches taken, skipped, sharded": lambda _: rows().batch(12).skip(1).shard(2, 0).take(3),
    "shuffle of batches": lambda _: rows().batch(12).shuffle(seed=4),
    "batches of batches": lambda _: rows().batch(4, drop_remainder=True).batch(12),
    "padded": lambda _: ps.from_arrays((LISTS, Y)).shuffle().padded_batch(12),
    "padded, with lengths": lambda _: ps.from_arrays(LISTS).padded_batch(12, lengths=True),
    "window": lambda _: rows().window(3, 1).shuffle().batch(12),
    "unbatch": lambda _: rows().batch(6).unbatch().batch(12),
    "zip": lambda _: ps.zip(rows(), ps.from_arrays(TEXTS)).shuffle().batch(12),
    "zip of batches": lambda _: ps.zip(rows().batch(12), ps.from_arrays(TEXTS).batch(12)),
    "concatenate": lambda _: ps.concatenate(rows().shuffle(), rows()).batch(12),
    "concatenate of batches": lambda _: ps.concatenate(rows().batch(12), rows().shuffle().batch(12)),
    "mix": lambda _: ps.mix([rows(), rows().map(centred)], weights=[2, 1], seed=0, stop="all").batch(12),
    "mix of batches": lambda _: ps.mix([rows().batch(12), rows().shuffle().batch(12)], seed=0, stop="all"),
    "cache": lambda _: rows().shuffle().cache().shuffle(seed=5).batch(12),
    "cache of batches": lambda _: rows().shuffle().batch(12, drop_remainder=True).cache(),
    "cache on disk": lambda path: rows().cache(path / "cache").shuffle().batch(12),
    "filter": lambda _: rows().shuffle().filter(is_kept).batch(12),
    "filter, then shuffle": lambda _: rows().filter(is_kept).shuffle().batch(12),
    "filter, then cache": lambda _: rows().filter(is_kept).cache().shuffle().batch(12),
    "filter of batches": lambda _: rows().batch(12).filter(is_kept_batch),
    "generator": lambda _: ps.from_generator(
        lambda: iter(Y), spec=ps.ArraySpec((), "int64")
    ).batch(12),
    "generator, shuffled": lambda _: ps.from_generator(
        lambda: iter(Y), spec=ps.ArraySpec((), "int64")
    ).shuffle().batch(12),
    "bad rows skipped": lambda path: saved(path).batch(12).with_options(on_error="skip"),
    "file": lambda path: saved(path).batch(120),
    "file, windows": lambda path: saved(path).shuffle(window=3000).batch(120),
    "file, windows, taken from": lambda path: saved(path).shuffle(window=3000).skip(7).take(2000).batch(120),
    "file, windows, in shards": lambda path: saved(path).shuffle(window=3000).shard(3, 1).repeat(2).skip(1).batch(120),
    "file, windows, one after the other": lambda path: ps.concatenate(saved(path).shuffle(window=3000), saved(path)).repeat(2).batch(120),
    "file, exact, twice": lambda path: saved(path).shuffle(exact=True, window=3000).repeat(2).batch(120),
    "file, windows, twice": lambda path: saved(path).shuffle(window=3000).repeat(2).batch(120),
    "files, windows, side by side": lambda path: ps.zip(saved(path), saved(path)).shuffle(window=3000).map(
        lambda a, b: (a, b + 1)
    ).batch(120),
    "file, exact": lambda path: saved(path).shuffle(exact=True, window=3000).batch(120),
}  # fmt: skip


@pytest.fixture
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a small file has many windows."""
    monkeypatch.setattr("penstock.sources.reading.read_blocks.READ_NBYTES", 64)
    monkeypatch.setattr("penstock.engine.plan.plan.BLOCK_NBYTES", 1024)
    monkeypatch.setattr("penstock.stages.shuffle.on_storage._PIECE_NBYTES", 1 << 12)
    monkeypatch.setattr("penstock.stages.shuffle.on_storage._RANK_NBYTES", 512)
    monkeypatch.setattr("penstock.stages.shuffle.scatter._BUCKET_NBYTES", 8192)
    monkeypatch.setattr("penstock.stages.shuffle.scatter._CHUNK_NBYTES", 2048)


@pytest.mark.usefixtures("_small_blocks")
def test_the_files_of_these_tests_have_many_windows(tmp_path: Path) -> None:
    assert "windowed: 13 windows" in str(BATCHED["file, windows"](tmp_path).explain())


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
@pytest.mark.parametrize("name", BATCHED)
def test_each_rank_gets_its_rows_of_every_global_batch(name: str, tmp_path: Path) -> None:
    ds = BATCHED[name](tmp_path)
    size = 120 if name.startswith("file") else 12
    for world, uneven, static in [
        (1, "drop", False), (2, "drop", False), (3, "pad", False), (4, "pad", False), (6, "pad", True), (12, "pad", True),
    ]:  # fmt: skip
        check_parts(ds, size, world, uneven=uneven, static=static, epoch=world % 2)


@pytest.mark.usefixtures("_small_blocks")
@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
@pytest.mark.parametrize("name", BATCHED)
def test_a_state_of_any_rank_goes_on_in_any_world(name: str, tmp_path: Path) -> None:
    ds = BATCHED[name](tmp_path)
    size = 120 if name.startswith("file") else 12
    check_elastic(ds, size, (4, 3, 1, 2), (2, 1, 3), uneven="pad")
    check_elastic(ds, size, (2, 6), (1, 4), uneven="drop")


@given(
    chains(),
    st.sampled_from([1, 2, 3, 6]),
    st.sampled_from(["drop", "pad"]),
    st.booleans(),
    st.integers(0, 2),
)
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_any_chain_is_dealt_to_any_world(
    chain: tuple[ps.Dataset, Model], world: int, uneven: str, static: bool, epoch: int
) -> None:
    ds = chain[0]
    try:
        batched = ds.batch(6)
    except ValueError:
        batched = ds.padded_batch(6)
    static = static and uneven == "pad"
    check_parts(batched, 6, world, uneven=uneven, static=static, epoch=epoch)
    check_elastic(batched, 6, (world, 1), (1, 2), uneven=uneven)


def test_a_state_goes_from_one_process_to_many_and_back() -> None:
    plain = rows().shuffle().batch(12)
    whole = global_batches(plain)
    with plain.stream() as stream:
        for _ in range(3):
            next(stream)
        state = stream.state()
    with plain.distribute(rank=1, world=2, uneven="pad").stream(state=state) as stream:
        assert_same([next(stream)], [part_of(whole[3], 1, 2, 12)])
        state = stream.state()
    with plain.stream(state=state) as stream:
        assert_same([next(stream)], [whole[4]])


def test_dropping_is_what_drop_remainder_does() -> None:
    for rest in (
        lambda ds: ds,
        lambda ds: ds.shuffle(),
        lambda ds: ds.skip(1).repeat(2),
        lambda ds: ds.map(centred),
    ):
        dropped = rest(rows().batch(12)).distribute(rank=0, world=1, uneven="drop")
        assert_same(
            global_batches(dropped), global_batches(rest(rows().batch(12, drop_remainder=True)))
        )


def test_an_endless_dataset_is_dealt_as_well() -> None:
    for ds in (rows().shuffle().repeat().batch(12), rows().batch(12).repeat()):
        whole = global_batches(ds, most=30)
        for uneven, rank in itertools.product(("drop", "pad"), range(3)):
            if uneven == "drop":
                expected = [part_of(b, rank, 3, 12)[0] for b in whole if len(b[1]) == 12][:20]
            else:
                expected = [part_of(batch, rank, 3, 12) for batch in whole][:20]
            part = ds.distribute(rank=rank, world=3, uneven=uneven)
            assert_same(global_batches(part, most=20), expected)


def test_fewer_rows_than_ranks_are_padded_and_no_rows_give_no_batches() -> None:
    for total in (0, 1, 5, 11):
        ds = ps.from_arrays((X[:total], Y[:total])).batch(12)
        for uneven in ("pad", "drop"):
            check_parts(ds, 12, 12, uneven=uneven)
    ds = ps.from_arrays(Y[:1]).batch(4)
    assert_same(
        global_batches(ds.distribute(rank=3, world=4, uneven="pad")),
        [(np.array([0]), np.array([0], "f4"))],
    )


def test_weights_make_the_mean_over_ranks_that_of_one_process() -> None:
    ds = rows().shuffle().batch(24)
    parts = [global_batches(ds.distribute(rank=r, world=4, uneven="pad")) for r in range(4)]
    for number, whole in enumerate(global_batches(ds)):
        means = [np.mean(weight * batch[1]) for batch, weight in (part[number] for part in parts)]
        assert np.isclose(np.mean(means), whole[1].mean())


def test_devices_of_a_rank_share_its_rows_evenly() -> None:
    from penstock.dataset import Dataset
    from penstock.stages.distribute import Distribute

    ds = ps.from_arrays(Y[:29]).batch(24)
    stage = Distribute(1, 3, "pad", replicas=4)
    sizes = [len(weight) for _, weight in Dataset(stage.build(ds.node), ds.options)]
    assert sizes == [8, 4]  # 5 rows are filled up to 12: each of 3 ranks has 4 devices.
    with pytest.raises(
        ValueError, match=r"divides by 16 \(4 ranks of 4 devices each\), got batch\(24\)"
    ):
        Distribute(1, 4, "pad", replicas=4).build(ds.node)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda ds: ds.distribute(rank=0, world=2), "cuts global batches, and from_arrays.* gives none"),
        (lambda ds: ds.batch(4).enumerate().distribute(rank=0, world=2), r"enumerate\(\) gives none(.|\n)*right: ds.batch\(64\).distribute\(\).enumerate\(\)"),
        (lambda ds: ps.zip(ds.batch(4), ds.take(26)).distribute(rank=0, world=2), "combine rows first, then batch them"),
        (lambda ds: ps.zip(ds.batch(14), ds.take(98).repeat(2).take(112).batch(14)).distribute(rank=0, world=2, uneven="drop"), "leaves a short batch out, and then the inputs .* differ: zip needs datasets of the same length"),
        (lambda ds: ds.batch(4).unbatch().distribute(rank=0, world=2), r"unbatch\(\) gives none"),
        (lambda ds: ds.batch(32).distribute(rank=0, world=2), "has only 5 of 32 rows, of 101 in all"),
        (lambda ds: ds.filter(is_kept).batch(4).distribute(rank=0, world=2), "how many there are is not known"),
        (lambda ds: ds.batch(32).distribute(rank=0, world=3), r"divides by 3 \(3 ranks\), got batch\(32\); the nearest that do are 30 or 33"),
        (lambda ds: ds.batch(2).distribute(rank=0, world=3), "the nearest that does is 3"),
        (lambda ds: ds.batch(4).distribute(rank=2, world=2), "0 <= rank < world, got rank=2 and world=2"),
        (lambda ds: ds.batch(4).distribute(rank=-1, world=2), "rank must be at least 0, got -1"),
        (lambda ds: ds.batch(4).distribute(rank=0, world=0), "world must be at least 1, got 0"),
        (lambda ds: ds.batch(4).distribute(rank=0), "takes rank and world together"),
        (lambda ds: ds.batch(4).distribute(rank=0, world=2, uneven="keep"), 'uneven must be "drop" or "pad"'),
        (lambda ds: ds.batch(4).distribute(rank=0, world=2, static=True), "static=True fills a short batch up"),
        (lambda ds: ds.batch(4).cache().distribute(rank=0, world=2, uneven="drop"), "Leave it out before: batch"),
        (lambda ds: ds.batch(4, drop_remainder=True).map(lambda x, y: (x, y.sum())).distribute(rank=0, world=2), "its first axis is not that of the rows"),
        (lambda ds: ps.zip(ds.batch(4), ds.batch(8).repeat(2).take(26)).distribute(rank=0, world=2), "batches of one size, got 4 and 8"),
        (lambda ds: ds.shuffle(seed=None).take(96).batch(4).distribute(rank=0, world=2), r"shuffle\(seed=\d+\) drew its seed, .* such as seed=0"),
        (lambda ds: ps.mix([ds, ds], seed=None).batch(4).distribute(rank=0, world=2, uneven="drop"), "mix.* drew its seed"),
        (lambda ds: ds.batch(4).shuffle(seed=None).distribute(rank=0, world=2, uneven="drop"), "drew its seed"),
        (lambda ds: _distributed(ds).shuffle(), r"shuffle\(seed=0\) can't follow distribute"),
        (lambda ds: _distributed(ds).filter(is_kept), "can't follow distribute"),
        (lambda ds: _distributed(ds).batch(2), r"can't follow distribute.*\n.*\n  right: ds.batch\(2\).distribute\(\)"),
        (lambda ds: _distributed(ds).padded_batch(2), r"\n  right: ds.padded_batch\(2\).distribute\(\)"),
        (lambda ds: _distributed(ds).cache(), "can't follow distribute"),
        (lambda ds: _distributed(ds).unbatch(), "can't follow distribute"),
        (lambda ds: _distributed(ds).shard(2, 0), "can't follow distribute"),
        (lambda ds: _distributed(ds).distribute(rank=0, world=2), "this is rank 0 of 2 already. Call it once"),
        (lambda ds: ps.zip(_distributed(ds), _distributed(ds)), "can't follow distribute"),
        (lambda ds: ps.concatenate(_distributed(ds), _distributed(ds)), "can't follow distribute"),
        (lambda ds: ps.mix([_distributed(ds), _distributed(ds)]), "can't follow distribute"),
        (lambda ds: _distributed(ds).map(lambda x, y: y).with_options(on_error="skip"), "ranks would differ in their number of steps"),
    ],
)  # fmt: skip
def test_what_can_not_be_dealt_is_told_when_the_chain_is_built(
    build: Callable[[ps.Dataset], Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        build(rows())


def test_a_drawn_seed_is_one_of_all_ranks_if_it_was_handed_on() -> None:
    ds = ps.from_arrays(Y[:96]).shuffle(seed=None).batch(4)
    assert len(ds.distribute(rank=0, world=1)) == 24
    code = "import pickle, sys; ds = pickle.load(sys.stdin.buffer); print(len(ds.distribute(rank=1, world=2)))"
    ended = subprocess.run(
        [sys.executable, "-c", code], input=pickle.dumps(ds), capture_output=True, check=False
    )
    assert ended.stdout.split() == [b"24"], ended.stderr.decode()


def _distributed(ds: ps.Dataset) -> ps.Dataset:
    return ds.batch(4).distribute(rank=0, world=2, uneven="drop")


def test_a_short_batch_that_is_taken_away_is_none() -> None:
    ds = rows().batch(12)  # 8 whole ones, and one of 5 rows.
    for build in (lambda ds: ds.take(8), lambda ds: ds.map(centred).skip(2).take(3)):
        part = build(ds).distribute(rank=1, world=2)
        expected = [part_of(batch, 1, 2, 12)[0] for batch in global_batches(build(ds))]
        assert_same(global_batches(part), expected)
        dropped = build(ds).distribute(rank=1, world=2, uneven="drop")
        assert_same(global_batches(dropped), expected)
        assert "left out" not in str(dropped.explain())
    for build in (
        lambda ds: ds.take(9),
        lambda ds: ds.shuffle().take(8),
        lambda ds: ds.repeat(2).take(10),
    ):
        with pytest.raises(ValueError, match="has only 5 of 12 rows"):
            build(ds).distribute(rank=1, world=2)


def test_static_must_be_true_or_false() -> None:
    with pytest.raises(TypeError, match="static must be True or False, got 'no'"):
        rows().batch(12).distribute(rank=0, world=2, uneven="pad", static="no")  # type: ignore[arg-type]


def test_rows_lost_by_a_function_are_told_where_batches_are_filled_up_too() -> None:
    spec = (ps.ArraySpec((None, 3), "f4"), ps.ArraySpec((None,), "int64"))
    for lose in (lambda x, y: (x[1:], y[1:]), lambda x, y: (x[:0], y[:0])):
        ds = rows().batch(12).map(lose, spec=spec).distribute(rank=0, world=2, uneven="pad")
        with pytest.raises(ps.SpecMismatchError, match="must keep the number of rows"):
            global_batches(ds)


@pytest.mark.parametrize("kind", ["rows", "map", "filter"])
def test_the_memory_that_is_named_will_do_for_the_longest_text_in_a_batch_that_is_filled_up(
    kind: str,
) -> None:
    ds = ps.from_arrays((["a"] * 100 + ["b" * 1_000_000], np.arange(101)))
    ds = ds.filter(lambda text, y: True).batch(100) if kind == "filter" else ds.batch(100)
    ds = ds.map(lambda text, y: (text, y)) if kind == "map" else ds
    ds = ds.distribute(rank=0, world=2, uneven="pad", static=True)
    ds = ds.with_options(threads=1, processes=0)
    memory = ds.explain().need_nbytes
    if kind != "rows":  # What functions make is not known before.
        with pytest.raises(ps.BudgetError, match=r"memory=\d+") as refused:
            global_batches(ds.with_options(memory=memory))
        (memory,) = map(int, re.findall(r"memory=(\d+)", str(refused.value)))
    batches = global_batches(ds.with_options(memory=memory))
    assert [len(weight) for _, weight in batches] == [50, 50]


def test_a_function_that_loses_rows_of_a_batch_is_told_by_name() -> None:
    spec = (ps.ArraySpec((None, 3), "f4"), ps.ArraySpec((None,), "int64"))
    ds = rows().batch(12).map(lambda x, y: (x[1:], y[1:]), spec=spec)
    with pytest.raises(
        ps.SpecMismatchError,
        match=r"map\(.*gave a batch of 11 rows, and distribute cuts batches of 12",
    ):
        list(ds.distribute(rank=0, world=2, uneven="drop"))
    ds = rows().batch(12).map(lambda x, y: (x[1:], y), spec=spec)
    with pytest.raises(ps.SpecMismatchError, match="differ in their number of rows"):
        list(ds.distribute(rank=0, world=2, uneven="drop"))


def test_stages_that_may_follow_it_see_the_part_of_the_rank() -> None:
    ds = rows().batch(12).distribute(rank=1, world=3, uneven="drop")
    parts = [part_of(batch, 1, 3, 12)[0] for batch in global_batches(rows().batch(12))[:-1]]
    assert_same(global_batches(ds.map(lambda x, y: y)), [y for _, y in parts])
    assert_same(global_batches(ds.take(2)), parts[:2])
    assert_same(global_batches(ds.skip(3)), parts[3:])
    assert_same(global_batches(ds.repeat(2)), parts * 2)
    assert_same(global_batches(ds.enumerate()), [(np.int64(i), p) for i, p in enumerate(parts)])
    assert len(ds) == 8
    assert_same(global_batches(pickle.loads(pickle.dumps(ds))), parts)


def test_ranks_and_worlds_are_in_no_fingerprint() -> None:
    ds = rows().shuffle().batch(12)
    states = {
        world: ds.distribute(rank=world - 1, world=world, uneven="pad").stream().state()
        for world in (1, 2, 3)
    }
    assert states[1] == states[2] == states[3] == ds.stream().state()
    dropped = ds.distribute(rank=0, world=2, uneven="drop").stream().state()
    assert dropped == rows().shuffle().batch(12, drop_remainder=True).stream().state()
    assert dropped["fingerprint"] != states[1]["fingerprint"]
    with pytest.raises(ps.StateError):
        ds.distribute(rank=0, world=2, uneven="pad").stream(state=dropped)
