"""Windows of rows in memory: loaded in pieces, by any threads, whole before a row of them is used."""

import contextlib
import itertools
import random
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run

import penstock as ps
from penstock.core.blocks import Block
from penstock.core.columns import Fixed, Text
from penstock.core.rows import bounds
from penstock.core.rows import count as num_of
from penstock.engine.plan.plan import chosen_nbytes, make_plan
from penstock.memory import Pool
from penstock.stages.shuffle import loading
from penstock.stages.shuffle import on_storage as window


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("piece", [1, 5_000, 1 << 22])
def test_rows_of_many_files_come_in_the_very_order_whatever_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, piece: int
) -> None:
    monkeypatch.setattr(window, "_PIECE_NBYTES", piece)
    x = np.random.default_rng(0).random((9000, 40), np.float32)
    y = np.arange(9000)
    edges = np.cumsum([0, 1000, 37, 5000, 1, 2962])
    for number, (start, stop) in enumerate(itertools.pairwise(edges)):
        np.savez(tmp_path / f"{number}.npz", x=x[start:stop], y=y[start:stop])
    ds = ps.from_files(tmp_path / "*.npz", fields=("x", "y")).shuffle(seed=2, window="300KB")
    node = ds.node
    assert isinstance(node, window.WindowedRows)
    assert node.order(0).num_windows > 3
    for epoch in (0, 1):
        rows = node.order(epoch).rows(np.arange(9000))
        found = list(ds.batch(64).with_options(threads=threads).stream(epoch=epoch))
        np.testing.assert_array_equal(np.concatenate([b[1] for b in found]), y[rows])
        np.testing.assert_array_equal(np.concatenate([b[0] for b in found]), x[rows])


@pytest.mark.parametrize("threads", [0, 1, 3])
@pytest.mark.parametrize("few", [0, 2, 8, 100])
def test_columns_of_a_window_that_are_loaded_apart_are_those_loaded_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, few: int
) -> None:
    monkeypatch.setattr(loading, "_FEW_PIECES", few)
    columns = {f"c{number}": np.arange(5000) * (number + 1) for number in range(5)}
    np.savez(tmp_path / "a.npz", **columns)
    ds = ps.from_files(tmp_path / "a.npz").shuffle(seed=2).batch(64)
    wanted = ps.from_arrays(columns).shuffle(seed=2).batch(64)
    assert_same(run(ds.with_options(threads=threads)), run(wanted))
    with ds.with_options(threads=threads).stream() as stream:
        list(stream)
        assert "5000 rows" in str(stream.report())
        assert "10000 rows" not in str(stream.report())


@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("window_nbytes", ["40KB", "64MB"])
def test_narrow_columns_are_put_in_order_when_they_are_loaded(
    tmp_path: Path, threads: int, window_nbytes: str
) -> None:
    columns = {f"c{number}": np.arange(9000) * (number + 1) for number in range(9)}
    columns["c3"] = columns["c3"].astype("i1")
    columns["c5"] = np.stack([columns["c5"], columns["c6"]], axis=1)
    for number in range(3):
        some = {name: values[3000 * number :][:3000] for name, values in columns.items()}
        np.savez(tmp_path / f"{number}.npz", **some)
    ds = ps.from_files(tmp_path / "*.npz").shuffle(seed=2, window=window_nbytes)
    node = ds.node
    assert isinstance(node, window.WindowedRows)
    assert node.orders_columns
    assert node.order(0).is_whole == (window_nbytes == "64MB")
    rows = node.order(0).rows(np.arange(9000))
    batched = ds.batch(70).with_options(threads=threads)
    found = list(batched.stream())
    for name, values in columns.items():
        np.testing.assert_array_equal(np.concatenate([b[name] for b in found]), values[rows])
    with batched.stream() as stream:
        for _ in range(50):
            next(stream)
        state = stream.state()
    assert_same(list(batched.stream(state=state)), found[50:])
    wide = ps.from_files(tmp_path / "*.npz", fields=("c0", "c5")).shuffle(seed=2).node
    assert isinstance(wide, window.WindowedRows)
    assert not wide.orders_columns


@pytest.mark.parametrize("threads", [0, 1, 4])
@pytest.mark.parametrize("kind", ["rows", "texts", "exact"])
@pytest.mark.parametrize("fault", ["copy", "lease", "finish"])
def test_an_error_reaches_the_consumer_and_close_returns_while_the_error_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, threads: int, kind: str, fault: str
) -> None:
    x = np.arange(60_000, dtype="f4").reshape(3000, 20)
    if kind == "texts":
        ps.from_arrays(["ab" * (row % 90) for row in range(3000)]).write(tmp_path / "rows")
        ds = ps.from_files(tmp_path / "rows").shuffle(seed=0, window=20_000)
    else:
        np.save(tmp_path / "x.npy", x)
        ds = ps.from_files(tmp_path / "x.npy").shuffle(seed=0, exact=kind == "exact", window=40_000)
    ds = ds.batch(7).with_options(threads=threads, memory="400MB")
    where: dict[str, list[tuple[type, str]]] = {
        "copy": [(Fixed, "copy_from"), (Text, "take")],
        "lease": [(Pool, "lease")],
        "finish": [(Block, "finish")],
    }
    for count in (0, 1, 2, 3, 5, 8, 13):
        calls = itertools.count()
        with monkeypatch.context() as patch:
            for owner, name in where[fault]:
                patch.setattr(owner, name, _failing(getattr(owner, name), calls, count))
            stream = ds.stream()
            try:
                list(stream)
            except MemoryError as error:
                kept = error  # It refers to the window that it was raised in.
                assert "no memory here" in str(kept)
            stream.close()
        assert not [one for one in threading.enumerate() if one.name.startswith("penstock")]


def _failing(function: Any, calls: "itertools.count[int]", number: int) -> Any:
    def call(*arguments: Any, **options: Any) -> Any:
        if next(calls) == number:
            raise MemoryError("no memory here")
        return function(*arguments, **options)

    return call


def test_idle_threads_load_the_next_window_while_the_consumer_is_busy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(window, "_PIECE_NBYTES", 1 << 18)
    np.save(tmp_path / "x.npy", np.arange(10_000_000, dtype="f4").reshape(100_000, 100))
    ds = ps.from_files(tmp_path / "x.npy").shuffle(seed=1, window="16MB").batch(8)
    assert isinstance(ds.node.input, window.WindowedRows)
    second = ds.node.input.order(0).window(1)
    is_whole = threading.Event()
    left = second.num_rows
    load = window.WindowedRows.load

    def counted(self: Any, of: Any, rows: slice, *rest: Any) -> None:
        nonlocal left
        load(self, of, rows, *rest)
        if of.start == second.start:
            left -= rows.stop - rows.start
        if not left:
            is_whole.set()

    monkeypatch.setattr(window.WindowedRows, "load", counted)
    # Three blocks ahead: with two, there is room for half of it.
    with ds.with_options(threads=2, prefetch=1900).stream() as stream:
        next(stream)
        assert is_whole.wait(60)  # Long before the consumer asks for rows of it.
        assert stream.state()["element"] == 1


def test_what_goes_wrong_on_an_idle_thread_is_raised_by_the_batch_that_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.arange(10_000_000, dtype="f4").reshape(100_000, 100))
    ds = ps.from_files(tmp_path / "x.npy").shuffle(seed=1, window="16MB").batch(8)
    order = ds.node.input.order(0)
    second = order.window(1)
    has_failed = threading.Event()
    load = window.WindowedRows.load

    def failing(self: Any, of: Any, *rest: Any) -> None:
        if of.start == second.start:
            has_failed.set()
            raise OSError("the disk is gone")
        load(self, of, *rest)

    monkeypatch.setattr(window.WindowedRows, "load", failing)
    # The share that a block itself loads is left to idle threads here.
    monkeypatch.setattr(loading.Together, "num_begun", 1 << 30)
    with ds.with_options(threads=2, prefetch=1300).stream() as stream:
        next(stream)
        assert has_failed.wait(60)
        count = 1
        with pytest.raises(OSError, match="the disk is gone"):
            for _ in stream:
                count += 1
    # Blocks have a few batches, and the one that reaches into the second window is lost as a whole.
    assert second.start // 8 - 700 < count <= second.start // 8


def _two_blocks_ahead(ds: ps.Dataset) -> ps.Dataset:
    """Return the dataset with as much memory as two blocks ahead take, and no more."""
    whole = make_plan(ds.node, ds.options)
    (choice,) = {one for one in whole.choices if (one.ahead, one.block_nbytes) == (2, 1 << 21)}
    nbytes = chosen_nbytes(whole.node, whole.flow, choice)
    ds = ds.with_options(memory=nbytes)
    assert make_plan(ds.node, ds.options).ahead == 2
    return ds


@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize(
    "kind", ["one", "fields", "wide", "exact", "rank", "shard", "skip", "repeat", "batches"]
)
def test_a_window_of_which_half_is_loaded_ahead_has_the_same_rows_in_less_memory(
    tmp_path: Path, kind: str, threads: int
) -> None:
    num_rows = 130_000
    x = np.arange(num_rows * 100, dtype="f4").reshape(num_rows, 100)
    if kind == "wide":
        x = x.reshape(-1, 2000)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", np.arange(len(x), dtype="i2"))
    ds = ps.from_files(tmp_path / "x.npy")
    if kind == "fields":
        ds = ps.from_files({"x": tmp_path / "x.npy", "y": tmp_path / "y.npy"})
    if kind == "batches":
        ds = ds.batch(37)  # The last one is shorter.
    ds = ds.shuffle(seed=3, window="16MB", exact=kind == "exact")
    if kind == "shard":
        ds = ds.shard(2, 1)
    if kind == "skip":
        ds = ds.skip(7_000)
    if kind == "repeat":
        ds = ds.repeat(2)
    if kind != "batches":
        ds = ds.batch(48)
    if kind == "rank":
        ds = ds.distribute(rank=1, world=3, uneven="drop")
    wanted = run(ds.with_options(threads=0))
    small = _two_blocks_ahead(ds.with_options(threads=threads))
    first = len(wanted) // 3
    with small.stream() as stream:
        for number, batch in enumerate(stream):
            assert_same([batch], [wanted[number]])
            if number + 1 == first:
                state = stream.state()
        assert number == len(wanted) - 1
        report = stream.report()
    assert report.peak_nbytes <= report.budget_nbytes
    with small.stream(state=state) as stream:
        for number, batch in enumerate(stream, first):
            assert_same([batch], [wanted[number]])
        assert number == len(wanted) - 1


@pytest.mark.parametrize("ahead", [1, 2, 3, 6])
@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("kind", ["windows", "one window", "texts", "exact", "mapped"])
def test_passes_of_a_repeat_take_the_room_of_those_before(
    tmp_path: Path, kind: str, threads: int, ahead: int
) -> None:
    num_rows, num_passes, window_nbytes = 30_000, 5, "1MB"
    ds = _stored(tmp_path, num_rows, are_texts=kind == "texts")
    if kind == "one window":
        window_nbytes = "64MB"
    if kind == "mapped":
        ds = ds.map(np.negative)
    ds = ds.shuffle(seed=3, window=window_nbytes, exact=kind == "exact").repeat(num_passes)
    ds = (ds.batch(48) if kind != "texts" else ds.batch(64)).with_options(threads=threads)
    wanted = run(ds.with_options(threads=0))
    whole = make_plan(ds.node, ds.options)
    choice = next(one for one in whole.choices if one.ahead <= ahead)
    small = ds.with_options(memory=chosen_nbytes(whole.node, whole.flow, choice))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with small.with_options(scratch=scratch).stream() as stream:
        for number, batch in enumerate(stream):
            assert_same([batch], [wanted[number]])
            if number % 500 == 0:
                assert len(_open_under(scratch)) <= 4  # To write, and to read, in two ways each.
        assert number == len(wanted) - 1
        report = stream.report()
    assert report.peak_nbytes <= report.budget_nbytes


def _stored(folder: Path, num_rows: int, *, are_texts: bool) -> ps.Dataset:
    """Return rows of a file: of one size, or texts of any length."""
    if are_texts:
        ps.from_arrays([f"{row:05}" * (row % 30) for row in range(num_rows)]).write(folder / "x")
        return ps.from_files(folder / "x")
    np.save(folder / "x.npy", np.arange(num_rows * 100, dtype="f4").reshape(num_rows, 100))
    return ps.from_files(folder / "x.npy")


def _open_under(folder: Path) -> list[str]:
    """Return the files of a folder that this process has open, of which scratch files have no name any more."""
    found = []
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(one.readlink()).startswith(str(folder)):
                found.append(one.name)
    return found


def test_a_thread_that_is_late_reads_rows_of_a_window_whose_room_was_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save(tmp_path / "x.npy", np.arange(10_000_000, dtype="f4").reshape(100_000, 100))
    ds = ps.from_files(tmp_path / "x.npy").shuffle(seed=1, window="16MB").batch(8)
    wanted = run(ds.with_options(threads=0))
    small = _two_blocks_ahead(ds.with_options(threads=2))
    monkeypatch.setattr(loading, "_PATIENCE", 0.0)
    copy_all = loading.Windows.copy_all
    was_late = threading.Event()
    went_on = threading.Event()
    stop = ds.node.input.order(0).start_of(1)

    def late(self: Any, of: Any, rows: Any, numbers: range, out: Block) -> None:
        highest = bounds(rows)[1]
        if stop - 2 * num_of(rows) <= highest < stop and not was_late.is_set():
            was_late.set()
            assert went_on.wait(60)  # Until the other thread has rows of the next window.
        copy_all(self, of, rows, numbers, out)
        if highest >= stop:
            went_on.set()

    monkeypatch.setattr(loading.Windows, "copy_all", late)
    with small.stream() as stream:
        for number, batch in enumerate(stream):
            assert_same([batch], [wanted[number]])
    assert was_late.is_set()
    assert went_on.is_set()


@pytest.mark.parametrize("ahead", [2, 6])
@pytest.mark.parametrize("tail", ["repeat", "rank", "plain"])
@pytest.mark.parametrize("kind", ["windows", "texts", "exact"])
def test_threads_may_be_as_late_as_they_like(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, tail: str, ahead: int
) -> None:
    num_rows = 20_000
    ds = _stored(tmp_path, num_rows, are_texts=kind == "texts")
    ds = ds.shuffle(seed=3, window="1MB", exact=kind == "exact")
    ds = (ds.repeat(3) if tail == "repeat" else ds).batch(48)
    if tail == "rank":
        ds = ds.distribute(rank=1, world=3, uneven="drop")
    wanted = run(ds.with_options(threads=0))
    ds = ds.with_options(threads=4)
    whole = make_plan(ds.node, ds.options)
    choice = next(one for one in whole.choices if one.ahead <= ahead)
    small = ds.with_options(memory=chosen_nbytes(whole.node, whole.flow, choice))
    chance = random.Random(0)
    copy_all = loading.Windows.copy_all

    def late(*arguments: Any) -> None:
        if chance.random() < 0.3:
            threading.Event().wait(0.03 * chance.random())  # As on a busy machine.
        copy_all(*arguments)

    monkeypatch.setattr(loading, "_PATIENCE", 0.0)
    monkeypatch.setattr(loading.Windows, "copy_all", late)
    with small.stream() as stream:
        for number, batch in enumerate(stream):
            assert_same([batch], [wanted[number]])
        assert number == len(wanted) - 1
        assert stream.report().peak_nbytes <= stream.report().budget_nbytes
