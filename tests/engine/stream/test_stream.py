"""The stream: its state in another process, its report, what it explains, and who owns a batch."""

import json
import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.clock import Clock
from penstock.core.nest import flatten
from penstock.engine.stream.report import StageTime

X = np.arange(900, dtype="f4").reshape(300, 3)


def even(x: Any, y: Any) -> bool:
    return bool(y % 2 == 0)


CHAIN = """
import numpy as np, penstock as ps
def even(x, y):
    return bool(y % 2 == 0)
def made(kind):
    ds = ps.from_arrays((np.arange(900, dtype="f4").reshape(300, 3), np.arange(300)))
    ds = ds.shuffle(seed=4)
    if kind == "flow":
        ds = ds.filter(even).shuffle(seed=1, window="2KB")
    return ds.batch(7).repeat(2)
"""


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_state_goes_on_in_a_new_process_with_other_threads(kind: str):
    scope: dict[str, Any] = {}
    exec(CHAIN, scope)
    ds = scope["made"](kind)
    with ds.stream(epoch=2) as stream:
        batches, states = [], []
        for batch in stream:
            batches.append(batch[1].tolist())
            states.append(stream.state())
    picks = [0, 13, len(states) // 2, len(states) - 2]
    code = (
        CHAIN
        + """
import json, sys
states = json.load(sys.stdin)
for threads, state in zip((0, 1, 3, 2), states):
    ds = made(sys.argv[1]).with_options(threads=threads, memory="100MB")
    with ds.stream(state=state) as stream:
        print(json.dumps([batch[1].tolist() for batch in stream]))
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", code, kind],
        input=json.dumps([states[pick] for pick in picks]),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    for pick, line in zip(picks, done.stdout.splitlines(), strict=True):
        assert json.loads(line) == batches[pick + 1 :]


def test_a_dataset_pickled_before_it_was_iterated_goes_on_where_the_first_was():
    ds = ps.from_arrays((X, np.arange(300))).shuffle(seed=None).filter(even).batch(7)
    copy = pickle.loads(pickle.dumps(ds))
    with ds.stream() as stream:
        for _ in range(5):
            next(stream)
        state = stream.state()
        rest = [batch[1].tolist() for batch in stream]
    with copy.stream(state=state) as stream:
        assert [batch[1].tolist() for batch in stream] == rest


# -- ownership ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda ds: ds,
        lambda ds: ds.filter(even),
        lambda ds: ds.cache(),
        lambda ds: ds.cache().shuffle(),
    ],
)
def test_writing_into_batches_changes_no_other_batch_and_not_the_source(build: Any):
    source = X.copy()
    ds = build(ps.from_arrays((source, np.arange(300)))).batch(7)
    kept = list(ds.stream())
    copies = [tuple(leaf.copy() for leaf in batch) for batch in kept]
    for number, batch in enumerate(kept):
        for leaf in batch:
            leaf[...] = -1 - number
        for later, copied in zip(kept[number + 1 :], copies[number + 1 :], strict=True):
            assert all((a == b).all() for a, b in zip(later, copied, strict=True))
    assert (source == X).all()
    again = list(ds.stream())
    assert all(
        (a == b).all()
        for one, two in zip(again, copies, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def test_rows_without_batch_are_the_consumers_own_as_well():
    source = X.copy()
    kept = list(ps.from_arrays(source))
    for row in kept:
        row += 1
    assert (np.array(kept) == X + 1).all()
    assert (source == X).all()


def test_batches_live_on_after_the_stream_and_the_dataset():
    ds = ps.from_arrays(X).batch(10)
    kept = list(ds)
    del ds
    other = [batch * 0 for batch in ps.from_arrays(np.zeros((300, 3), "f4")).batch(10)]
    assert (np.concatenate(kept) == X).all()
    assert len(other) == 30


@pytest.mark.parametrize("dtype", ["u1", "f2", "f8", "S7", "M8[s]", "V3"])
def test_every_column_of_every_batch_starts_on_64_bytes(dtype: str):
    array = np.zeros((100, 3), dtype)
    for ds in (
        ps.from_arrays((array, array[:, 0])).batch(7),
        ps.from_arrays((array, array[:, 0])).shuffle().batch(7).map(lambda a, b: (a, b)),
        ps.from_arrays((array, array[:, 0])).filter(lambda *_: True).batch(7).shuffle(),
        ps.from_arrays((array, array[:, 0])).padded_batch(7).repeat(2).take(9),
    ):
        for batch in ds:
            assert all(leaf.ctypes.data % 64 == 0 for leaf in flatten(batch)[0])


# -- report and explain ---------------------------------------------------------------------------


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
        "epoch 3: 38 elements",
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
    with ds.with_options(threads=threads, processes=0).stream() as stream:
        assert sum(1 for _ in stream) == 18
        report = stream.report()
    found = {stage.call.split("(")[0]: stage for stage in report.stages}
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
    # What they wait for is not theirs.
    others = [stage for name, stage in found.items() if name not in ("from_generator", "map")]
    assert all(0 < stage.seconds < 0.1 for stage in others)


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


def test_a_report_names_the_consumer_when_data_was_always_there_and_else_the_slowest_stage():
    def report(waited: float, seconds: float) -> ps.Report:
        stages = (StageTime("from_arrays", 0.1, 5), StageTime("map(f)", 0.4, 5, is_function=True))
        kinds = {name: field.type for name, field in ps.Report.__dataclass_fields__.items()}
        fields = {name: () if "tuple" in str(kind) else 0 for name, kind in kinds.items()}
        return ps.Report(
            **fields | {"stages": stages, "waited_seconds": waited, "seconds": seconds}
        )

    assert report(0.001, 1.0).bottleneck == "the consumer"
    assert report(0.5, 1.0).bottleneck == "map(f)"
    assert "make the function faster" in str(report(0.5, 1.0))


def test_explain_tells_stages_specs_choices_and_bytes_and_reads_nothing():
    class Unread:
        shape, dtype = (1000, 4), np.dtype("f4")

        def __getitem__(self, key: slice) -> Any:
            assert (key.start, key.stop) == (0, 0)
            return np.zeros((0, 4), "f4")

    ds = ps.from_arrays({"x": Unread(), "y": np.arange(1000)}).shuffle(seed=3).batch(32)
    found = ds.with_options(memory="10MB", threads=2).explain()
    assert [stage.call for stage in found.stages] == [
        "from_arrays((1000, 4) float32, (1000) int64)",
        "shuffle(seed=3)",
        "batch(32)",
    ]
    assert [stage.num_rows for stage in found.stages] == [1000, 1000, 32]
    assert found.stages[0].row_nbytes == 24
    assert found.budget_nbytes == 10_000_000
    assert found.need_nbytes <= found.total_nbytes <= found.budget_nbytes
    assert found.fits
    assert found.threads == 2
    text = str(found)
    for part in (
        "pipeline",
        "x: float32[4], y: int64",
        "x: float32[?x4]",
        "plan",
        "blocks",
        "threads  2",
        "memory",
        "10 MB",
    ):
        assert part in text


def test_explain_shows_each_input_of_a_combination():
    a = ps.from_arrays(np.arange(4))
    found = ps.zip(a.shuffle(), a.batch(2).unbatch()).explain()
    assert [(stage.call, stage.depth) for stage in found.stages] == [
        ("from_arrays((4) int64)", 1),
        ("shuffle(seed=0)", 1),
        ("from_arrays((4) int64)", 1),
        ("batch(2)", 1),
        ("unbatch()", 1),
        ("zip(2 datasets)", 0),
    ]


def test_explain_of_endless_and_unknown_lengths_says_so():
    assert "endless x" in str(ps.from_arrays(X).repeat().explain())
    assert "unknown number of x" in str(ps.from_arrays(X).filter(lambda x: True).explain())


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


def test_a_stream_is_its_own_iterator():
    with ps.from_arrays(X).stream() as stream:
        assert iter(stream) is stream


def test_importing_it_pulls_in_no_framework_and_no_format():
    code = (
        "import sys, penstock; print([m for m in ('tensorflow', 'jax', 'torch', 'keras', 'h5py', 'zarr',"
        " 'pyarrow', 'pandas', 'PIL', 'fsspec', 'ray', 'rich', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert Path(ps.__file__).with_name("py.typed").exists()
