"""What is measured of a stream, where the time went, and what that costs."""

import threading
import time
from itertools import pairwise

import numpy as np
import pytest

import penstock as ps
from penstock.core.clock import Clock

X = np.arange(900, dtype="f4").reshape(300, 3)


def test_the_report_counts_elements_bytes_blocks_and_rows_a_stage():
    ds = ps.from_arrays((X, np.arange(300))).shuffle().map(lambda x, y: (x * 2, y)).batch(8)
    with ds.stream(epoch=3) as stream:
        empty = stream.report()
        assert (empty.num_elements, empty.nbytes, empty.num_blocks) == (0, 0, 0)
        for _ in stream:
            pass
        report = stream.report()
    assert report.epoch == 3
    assert report.num_elements == 38
    assert report.nbytes >= 300 * (12 + 8)
    assert report.num_blocks >= 1
    rows = {stage.call: stage.num_rows for stage in report.stages}
    assert rows["batch(8)"] == 38
    assert rows["map(<lambda>)"] == rows["shuffle(seed=0)"] == 300
    assert all(stage.seconds >= 0 for stage in report.stages)
    assert 0 <= report.waited_seconds <= report.seconds
    assert 0 < report.peak_nbytes <= report.budget_nbytes
    assert report.elements_per_second > 0
    assert report.bottleneck
    text = str(report)
    for word in (
        "epoch 3: 38 batches with 300 rows",
        "waited for data",
        "map(<lambda>), 300 rows",
        "memory",
        "peak",
        "bottleneck",
    ):
        assert word in text
    later = stream.report()
    assert later.seconds == report.seconds or later.seconds >= report.seconds


@pytest.mark.parametrize("threads", [0, 2])
def test_the_report_has_the_time_and_rows_of_every_stage_that_only_flows(threads):
    def rows():
        for number in range(100):
            time.sleep(0.001)
            yield number

    def slowly(number):
        time.sleep(0.002)
        return number

    ds = ps.from_generator(rows, ps.ArraySpec((), "int64")).skip(10).shuffle(seed=1)
    ds = ds.filter(lambda number: number % 2 == 0).map(slowly).batch(5).enumerate().repeat(2)
    # What they wait for is not theirs. In one of several runs: a busy machine may stop any stage at its work.
    for _ in range(10):
        with ds.with_options(threads=threads, processes=0).stream() as stream:
            assert sum(1 for _ in stream) == 18
            report = stream.report()
        found = {stage.call.split("(")[0]: stage for stage in report.stages}
        others = [one for name, one in found.items() if name not in ("from_generator", "map")]
        if all(stage.seconds < 0.1 for stage in others):
            break
    assert all(0 < stage.seconds < 0.1 for stage in others)
    assert {name: stage.num_rows for name, stage in found.items()} == {
        "from_generator": 200,
        "skip": 180,
        "shuffle": 180,
        "filter": 90,
        "map": 90,
        "batch": 18,
        "enumerate": 18,
        "repeat": 18,
    }
    assert 0.2 <= found["from_generator"].seconds < report.seconds
    assert 0.18 <= found["map"].seconds < report.seconds


def test_the_report_of_a_resumed_stream_counts_what_it_did_itself():
    ds = ps.from_arrays(X).batch(10)
    with ds.stream() as stream:
        for _ in range(20):
            next(stream)
        state = stream.state()
    with ds.stream(state=state) as stream:
        next(stream)
        assert stream.report().num_elements == 1
        assert stream.state()["element"] == 21


def test_measuring_takes_two_looks_at_the_clock_a_block_and_stage_and_none_a_row(
    monkeypatch: pytest.MonkeyPatch,
):
    """Two readings of 50 ns a block that takes 100 us or more to make are 0.1 %: no timed test is needed."""
    calls = []
    enter = Clock.enter
    monkeypatch.setattr(Clock, "enter", lambda self: (calls.append(1), enter(self))[1])
    ds = ps.from_arrays(np.zeros((200_000, 8))).shuffle().batch(32)
    with ds.stream() as stream:
        num_batches = sum(1 for _ in stream)
        report = stream.report()
    assert num_batches == 6250
    assert len(calls) <= 4 * report.num_blocks  # One a stage and block, and one for the wait.
    assert report.num_blocks < num_batches / 10


def test_rows_are_counted_as_they_are_handed_out_batch_after_batch():
    ds = ps.from_arrays(np.arange(100)).batch(32)
    with ds.stream() as stream:
        for rows in (32, 64, 96, 100):
            next(stream)
            assert stream.report().num_rows == rows
        assert stream.report().num_expected == 4
    assert stream.report().num_rows == 100
    with ds.stream() as stream:
        next(stream)
    report = stream.report()
    assert (report.num_rows, report.num_batches, report.state) == (32, 1, "closed")


@pytest.mark.parametrize(
    ("ds", "rows", "batches"),
    [
        (ps.from_arrays([np.arange(n % 7) for n in range(50)]).padded_batch(8), 50, 7),
        (ps.from_arrays(["a"] * 50).batch(8, drop_remainder=True), 48, 6),
        (ps.from_arrays(np.arange(50)).batch(8).map(lambda x: x.sum()), 7, 7),
        (ps.from_arrays(np.arange(50)).filter(lambda x: x % 2 == 0).batch(8), 25, 4),
        (ps.from_arrays(np.arange(50)), 50, 0),
        (ps.from_arrays((["a"] * 50, np.zeros((50, 2)))).batch(8), 50, 7),
    ],
)
def test_rows_are_counted_in_batches_of_any_kind(ds: ps.Dataset, rows: int, batches: int):
    with ds.stream() as stream:
        for _ in stream:
            pass
        report = stream.report()
    assert (report.num_rows, report.num_batches, report.state) == (rows, batches, "ended")
    assert report.timeline[-1].num_rows == rows


def test_an_error_is_in_the_report():
    def fails(x: int) -> int:
        if x == 50:
            raise ValueError("no\nmore")
        return x

    for ds in (
        ps.from_arrays(np.arange(99)).map(fails),
        ps.from_arrays(np.arange(99)).map(fails).batch(3),
    ):
        with ds.stream() as stream:
            with pytest.raises(ps.FunctionError):
                list(stream)
            report = stream.report()
        assert report.state == "failed"
        assert report.error.startswith("FunctionError: map(fails)")
        assert report.error.endswith("ValueError: no")


def test_the_timeline_goes_on_and_ends_with_what_the_report_says():
    ds = ps.from_arrays(np.zeros((60_000, 500), "f4")).shuffle().batch(32)
    with ds.stream() as stream:
        for number, _ in enumerate(stream):
            if number % 400 == 0:
                time.sleep(0.01)  # The first samples are 6 ms apart.
        report = stream.report()
    assert len(report.timeline) > 2
    for one, two in pairwise(report.timeline):
        assert one.seconds < two.seconds
        assert one.num_rows <= two.num_rows
        assert one.waited_seconds <= two.waited_seconds
        assert all(a <= b for a, b in zip(one.stage_seconds, two.stage_seconds, strict=True))
        assert 0 < one.ledger_nbytes <= report.peak_nbytes
        assert one.threads > 0
    last = report.timeline[-1]
    assert (last.num_rows, last.num_elements) == (60_000, report.num_elements)
    assert (last.seconds, last.waited_seconds) == (report.seconds, report.waited_seconds)
    assert list(last.stage_seconds) == [stage.seconds for stage in report.stages]
    assert report.stages[-1].queue is not None
    assert report.stages[0].queue is None
    names = " ".join(report.thread_names)
    assert "MainThread" in names
    assert "penstock-" in names
    assert report == stream.report()  # Once it is closed, nothing changes.


@pytest.mark.parametrize("threads", [0, 2])
def test_bytes_read_from_files_are_counted_for_the_stream_that_reads_them(tmp_path, threads):
    x = np.random.default_rng(0).random((5000, 20))
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "x.txt").write_text("".join(f"line {number}\n" for number in range(50_000)))
    ps.from_arrays({"x": x}).write(tmp_path / "x.tfrecord", format="tfrecord")
    ps.from_arrays(np.arange(500_000)).write(tmp_path / "x.zarr", format="zarr")
    packed = sum(one.stat().st_size for one in (tmp_path / "x.zarr").rglob("*") if one.is_file())
    sizes = {
        ps.from_files(tmp_path / "x.npy"): x.nbytes,
        ps.from_files(tmp_path / "x.npy").shuffle(window=50_000): x.nbytes,
        ps.from_files(tmp_path / "x.txt"): (tmp_path / "x.txt").stat().st_size,
        ps.from_tfrecord(tmp_path / "x.tfrecord"): 5000 * 160,
        ps.from_files(tmp_path / "x.zarr"): packed // 2,
    }
    for ds, nbytes in sizes.items():
        other = ds.batch(10).with_options(threads=threads).stream()
        next(other)
        with other, ds.batch(10).with_options(threads=threads).stream() as stream:
            for _ in stream:
                pass
            report = stream.report()
        # Lines, and chunks, are read again for the next block if one ends within them.
        assert nbytes <= report.read_nbytes <= 2 * nbytes, ds
    with ps.from_arrays(x).stream() as stream:
        next(stream)
        assert stream.report().read_nbytes == 0


def test_a_report_may_be_asked_for_on_another_thread_while_the_stream_runs():
    ds = ps.from_arrays(np.arange(300_000)).map(lambda x: x + 1).batch(32).with_options(processes=0)
    reports, is_over = [], threading.Event()

    def look() -> None:
        while not is_over.is_set():
            reports.append(stream.report())

    with ds.take(1500).stream() as stream:
        watcher = threading.Thread(target=look)
        watcher.start()
        count = sum(1 for _ in stream)
        is_over.set()
        watcher.join()
    assert count == 1500
    assert reports
    assert all(one.num_rows <= two.num_rows for one, two in pairwise(reports))
    assert sum(stage.num_rows for stage in stream.report().stages if stage.is_function) == 48_000


def slow_rows():
    for number in range(20):
        time.sleep(0.01)
        yield number


SLOW = ps.ArraySpec((), "int64")


@pytest.mark.parametrize("threads", [0, 2])
def test_who_asks_for_the_state_of_a_flow_waits_as_much_as_who_does_not(threads):
    # Only the next block tells whether there are more rows: it is asked for, and waited for, by state().
    ds = ps.from_generator(slow_rows, spec=SLOW).batch(1).with_options(threads=threads)
    with ds.stream() as stream:
        for _ in stream:
            stream.state()
        report = stream.report()
    assert report.waited_share > 0.5
    assert report.bottleneck.startswith("from_generator")
    assert len(report.timeline) > 3


@pytest.mark.parametrize("threads", [0, 2])
def test_a_wait_that_ends_in_an_error_was_one(threads):
    def fails():
        yield 0
        time.sleep(0.3)
        raise ValueError("no")

    ds = ps.from_generator(fails, spec=SLOW).batch(1).with_options(threads=threads)
    with ds.stream() as stream:
        with pytest.raises(ps.FunctionError):
            list(stream)
        report = stream.report()
    assert report.state == "failed"
    assert 0.3 <= report.waited_seconds <= report.seconds


def test_a_wait_that_another_thread_ends_was_one():
    let_go = threading.Event()

    def stuck():
        yield 0
        let_go.wait()
        yield 1

    stream = ps.from_generator(stuck, spec=SLOW).batch(1).stream()
    next(stream)
    closer = threading.Timer(0.3, stream.close)
    releaser = threading.Timer(0.6, let_go.set)
    closer.start()
    releaser.start()
    with pytest.raises(ps.StreamClosedError):
        next(stream)
    closer.join()
    releaser.join()
    report = stream.report()
    assert (report.state, report.error) == ("closed", "")
    assert 0.2 < report.waited_seconds <= report.seconds


def test_a_closed_stream_that_is_asked_for_more_is_still_closed():
    stream = ps.from_arrays(X).batch(8).stream()
    next(stream)
    stream.close()
    with pytest.raises(ps.StreamClosedError):
        next(stream)
    assert (stream.report().state, stream.report().error) == ("closed", "")


def test_a_dataset_that_is_used_twice_is_counted_once():
    base = ps.from_arrays(X).map(lambda x: x + 1)
    with ps.zip(base, base).batch(10).with_options(threads=0).stream() as stream:
        list(stream)
        report = stream.report()
    assert sum(stage.seconds for stage in report.stages) <= report.seconds
    assert sorted(stage.num_rows for stage in report.stages if stage.call.startswith("map")) == [
        0,
        600,
    ]
    assert [one > 0 for one in report.timeline[-1].stage_seconds] == [
        stage.seconds > 0 for stage in report.stages
    ]


def more(batch):
    return np.concatenate([batch, batch])


def fewer(batch):
    return batch[:2]


def fewer_of_dict(batch):
    return {"n": np.int64(len(batch)), "x": {"y": batch[:2]}}


def slowly(batch):
    time.sleep(0.005)
    return batch[:2]


@pytest.mark.parametrize(
    ("function", "given"), [(more, 600), (fewer, 60), (fewer_of_dict, 60), (slowly, 60)]
)
def test_rows_are_those_of_the_batches_that_the_consumer_has(function, given):
    ds = ps.from_arrays(X).batch(10).map(function)
    with ds.stream() as stream:
        for number, _ in enumerate(stream):
            if number == 9:
                part = stream.report().num_rows
        report = stream.report()
    assert report.num_rows == given == report.timeline[-1].num_rows
    assert part == {more: 200}.get(function, 20)


def test_an_endless_flow_keeps_no_count_of_threads_that_ended():
    ds = ps.from_generator(lambda: iter(range(4)), spec=SLOW).repeat().batch(4)
    with ds.stream() as stream:
        for _ in range(50):
            next(stream)
        assert len(stream._engine.clock._of_all) < 10
        (source, *_) = stream.report().stages
        assert source.num_rows >= 200
