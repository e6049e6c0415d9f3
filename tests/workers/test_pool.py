"""What a pool does while all goes well, and how it ends."""

import gc
import os
import re
import signal
import sys
import threading
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.workers.carving import carve

from penstock.workers import PoolClosed, WorkerPool, WorkersUnavailable, pickle_function


def test_a_task_reads_inputs_and_writes_outputs_in_shared_memory(make_pool, lease, wait):
    pool = make_pool(lambda inputs, outputs, meta: np.add(inputs[0], meta, out=outputs[0]) and None)
    x, y = lease(pool, ("float32", (1,)), ("float32", (1,)))
    x[:], y[:] = 40, 0
    wait(pool.submit("answer", inputs=[x], outputs=[y], meta=2))
    assert y[0] == 42


def test_a_row_function_runs_over_a_block_with_one_message_each_way(make_pool, lease, wait):
    def row_function(x, label):
        return x * 2, label + 1

    def run_block(inputs, outputs, num_rows):
        for row in range(num_rows):
            results = row_function(*(column[row] for column in inputs))
            for column, value in zip(outputs, results, strict=True):
                column[row] = value

    pool = make_pool(run_block)
    columns = (("float32", (300, 10)), ("int64", (300,)))
    x, label, out_x, out_label = lease(pool, *columns, *columns)
    x[:], label[:] = np.arange(3000).reshape(300, 10), np.arange(300)
    wait(pool.submit(0, inputs=[x, label], outputs=[out_x, out_label], meta=300))
    np.testing.assert_array_equal(out_x, x * 2)
    np.testing.assert_array_equal(out_label, label + 1)


def test_a_result_says_how_long_the_function_ran(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: time.sleep(0.05))
    assert 0.05 <= wait(pool.submit(0)).seconds < 5


def test_blocks_of_64_megabytes_pass_unharmed(make_pool, lease, wait):
    pool = make_pool(lambda inputs, outputs, meta: np.copyto(outputs[0], inputs[0][::-1]))
    x, y = lease(pool, ("int64", (8 << 20,)), ("int64", (8 << 20,)))
    x[:] = np.arange(8 << 20)
    wait(pool.submit(0, inputs=[x], outputs=[y]))
    assert np.array_equal(y, x[::-1])


@pytest.fixture(scope="module")
def echo_pool():
    def echo(inputs, outputs, meta):
        for source, target in zip(inputs, outputs, strict=True):
            target[...] = source
        return [(array.dtype, array.shape, array.strides) for array in inputs], meta

    with WorkerPool(1, pickle_function(echo), name="echo") as pool:
        pool.ready.result(timeout=60)
        yield pool, pool.add_arena(1 << 20).memory


@given(
    array=hnp.arrays(
        st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes(max_size=3)),
        hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=6),
    ),
    data=st.data(),
)
def test_any_view_of_any_dtype_arrives_as_it_is(echo_pool, array, data):
    pool, memory = echo_pool
    x, y = carve(memory, [(array.dtype, array.shape)] * 2)
    x[...] = array
    index = data.draw(hnp.basic_indices(array.shape, allow_ellipsis=True))
    view, target = x[index], y[index]
    if not isinstance(view, np.ndarray):
        view, target = x, y
    layouts, meta = pool.submit(0, inputs=[view], outputs=[target], meta=index).result(60).value
    assert meta == index
    (dtype, shape, strides) = layouts[0]
    assert (dtype, shape) == (view.dtype, view.shape)
    assert view.flags.c_contiguous or strides == view.strides
    assert target.tobytes() == view.tobytes()


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn"])
def test_dtypes_of_extensions_keep_their_kind(echo_pool, dtype):
    kind = np.dtype(getattr(ml_dtypes, dtype))
    pool, memory = echo_pool
    x, y = carve(memory, [(kind, (3,)), (kind, (3,))])
    x[:] = [1, 2, 3]
    layouts, _ = pool.submit(0, inputs=[x], outputs=[y]).result(60).value
    assert layouts[0][0] == kind
    assert y.tolist() == x.tolist()


def test_inputs_are_read_only_unless_asked_otherwise(make_pool, lease, wait):
    def write(inputs, outputs, meta):
        inputs[0][:] = 7

    pool = make_pool(write)
    (x,) = lease(pool, ("int8", (4,)))
    with pytest.raises(ValueError, match="read-only"):
        wait(pool.submit(0, inputs=[x]))
    wait(pool.submit(1, inputs=[x], writable_inputs=True))
    assert x.tolist() == [7, 7, 7, 7]


def test_an_array_outside_the_arena_is_refused_at_once(make_pool):
    pool = make_pool(lambda inputs, outputs, meta: None)
    with pytest.raises(
        ValueError, match=r"shape \(3,\) is not in an arena of this pool: take its memory"
    ):
        pool.submit(0, inputs=[np.zeros(3)])


def test_at_least_one_worker_is_needed():
    with pytest.raises(ValueError, match="num_workers must be at least 1, got 0"):
        WorkerPool(0, b"", name="map(f)")


def test_returned_nests_come_back_with_their_arrays(make_pool, wait):
    pool = make_pool(
        lambda inputs, outputs, meta: {"a": np.arange(100_000), "b": (np.arange(3), "text", meta)}
    )
    value = wait(pool.submit(0, meta=b"x" * 100_000)).value
    np.testing.assert_array_equal(value["a"], np.arange(100_000))
    assert value["b"][0].tolist() == [0, 1, 2]
    assert value["b"][1:] == ("text", b"x" * 100_000)
    value["a"][0] = 1  # it is the caller's own


def test_an_input_may_be_returned(make_pool, lease, wait):
    pool = make_pool(lambda inputs, outputs, meta: inputs[0])
    (x,) = lease(pool, ("float64", (5000,)))
    x[:] = np.arange(5000)
    result = wait(pool.submit(0, inputs=[x]))
    np.testing.assert_array_equal(result.value, x)
    assert not np.shares_memory(result.value, x)
    assert not result.is_kept


def test_large_arrays_in_meta_arrive(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: (meta[0].sum(), meta[1]))
    value = wait(pool.submit(0, meta=(np.ones(1_000_000), list(range(10_000))))).value
    assert value == (1_000_000, list(range(10_000)))


def test_many_tasks_use_all_workers_and_all_end(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: (os.getpid(), meta), num_workers=3)
    wait(pool.ready)
    values = [wait(future).value for future in [pool.submit(i, meta=i) for i in range(300)]]
    assert [meta for _, meta in values] == list(range(300))
    assert {pid for pid, _ in values} == set(pool.pids())
    assert len(pool.pids()) == 3
    assert pool.num_restarts == 0


def test_a_task_that_has_not_begun_can_be_cancelled(make_pool, wait, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    pool = make_pool(lambda inputs, outputs, meta: meta and Path(meta).open().close())
    futures = [pool.submit(i, meta=str(gate)) for i in range(1)] + [
        pool.submit(i) for i in range(4)
    ]
    assert futures[-1].cancel()
    gate.open("w").close()
    for future in futures[:-1]:
        wait(future)
    assert futures[-1].cancelled()


def test_arenas_can_be_added_and_dropped_while_workers_run(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: int(inputs[0].sum()), num_workers=2)
    for size in (10, 1000, 100_000):
        arena = pool.add_arena(size)
        x = arena.memory[:size]
        x[:] = 1
        values = [wait(pool.submit(i, inputs=[x])).value for i in range(4)]
        assert values == [size] * 4
        pool.drop_arena(arena, is_kept=size == 1000)
        assert size != 1000 or x.sum() == size  # still valid here
        with pytest.raises(ValueError, match="not in an arena"):
            pool.submit(0, inputs=[x])
    maps = wait(make_pool(_memory_maps).submit(0)).value
    assert maps == []


def _memory_maps(inputs, outputs, meta):
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line for line in lines if "penstock arena" in line]


def test_workers_unmap_a_dropped_arena(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: _memory_maps(inputs, outputs, meta))
    arena = pool.add_arena(4096)
    assert len(wait(pool.submit(0, inputs=[arena.memory[:64]])).value) == 1
    pool.drop_arena(arena)
    assert wait(pool.submit(1)).value == []


def test_a_function_that_keeps_its_inputs_sees_them_unchanged(make_pool, lease, wait):
    def keep(inputs, outputs, meta):
        kept.append(inputs[0][:3])
        outputs[0][:] = inputs[0] + 1
        return [array.tolist() for array in kept]

    kept = []
    pool = make_pool(keep)
    x, y = lease(pool, ("int64", (1000,)), ("int64", (1000,)))
    for step in range(4):
        x[:] = step
        result = wait(pool.submit(step, inputs=[x], outputs=[y]))
        assert y.tolist() == [step + 1] * 1000
        # The first time, the worker still looks at this memory: the caller's next block must be another one.
        assert result.is_kept == (step == 0)
        if step == 0:
            (arena,) = pool._arenas.values()
            pool.drop_arena(arena, is_kept=True)
            x, y = lease(pool, ("int64", (1000,)), ("int64", (1000,)))
    assert result.value == [[0] * 3, [1] * 3, [2] * 3, [3] * 3]


def test_a_cycle_of_garbage_does_not_count_as_keeping(make_pool, lease, wait):
    def tangle(inputs, outputs, meta):
        knot = [inputs[0]]
        knot.append(knot)

    pool = make_pool(tangle)
    (x,) = lease(pool, ("int64", (10,)))
    assert not wait(pool.submit(0, inputs=[x])).is_kept


def test_output_of_user_code_passes_through(make_pool, wait, capfd):
    def speak(inputs, outputs, meta):
        print("to the output", meta)
        print("to the errors", meta, file=sys.stderr)

    pool = make_pool(speak)
    wait(pool.submit(0, meta=1))
    captured = capfd.readouterr()
    assert captured.out == "to the output 1\n"
    assert captured.err == "to the errors 1\n"


def test_workers_are_set_up_to_share_the_machine(make_pool, wait):
    def look(inputs, outputs, meta):
        return {
            "interrupt": signal.getsignal(signal.SIGINT),
            "blocked": signal.pthread_sigmask(signal.SIG_BLOCK, []),
            "threads": os.environ["OMP_NUM_THREADS"],
            "oom": int(Path("/proc/self/oom_score_adj").read_text()),
            "arguments": sys.argv,
            "modules": sorted(name for name in sys.modules if name.startswith("penstock")),
            "path": sys.path,
        }

    found = wait(make_pool(look).submit(0)).value
    assert found["interrupt"] == signal.SIG_IGN
    assert found["blocked"] == set()
    assert found["threads"] == "1"
    assert found["oom"] >= 300
    assert found["arguments"] == ["-c"]
    assert found["modules"] == ["penstock"]  # a worker starts with what stands for the library
    assert found["path"] == sys.path


def test_nothing_is_mapped_from_a_directory_that_others_can_see(make_pool, lease, wait):
    def look(inputs, outputs, meta):
        maps = Path("/proc/self/maps").read_text()
        files = [
            str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.exists()
        ]
        return maps, files

    before = look((), (), None)  # Other tests may have imported what keeps a semaphore there.
    pool = make_pool(look)
    (x,) = lease(pool, ("int8", (10,)))
    there, here = wait(pool.submit(0, inputs=[x])).value, look((), (), None)
    for maps, files in (there, here):
        assert re.search(r"[:/]penstock arena .*\(deleted\)", maps)
        known = before[0] if files is here[1] else ""
        assert maps.count("/dev/shm") == known.count("/dev/shm")
        assert {name for name in files if name.startswith("/dev/shm")} <= set(before[1])


def test_close_ends_busy_workers_at_once_and_fails_their_tasks(make_pool, wait_for_exit, wait):
    def run_for_ever(inputs, outputs, meta):
        while True:
            pass

    pool = make_pool(run_for_ever, num_workers=2)
    wait(pool.ready)
    pids = pool.pids()
    futures = [pool.submit(i) for i in range(8)]
    pool.close()
    for future in futures:
        with pytest.raises(
            PoolClosed, match=r"map\(f\): the pool was closed while this was under way"
        ):
            wait(future)
    for pid in pids:
        wait_for_exit(pid)
    pool.close()  # twice does no harm


def test_a_closed_pool_takes_no_tasks(make_pool):
    pool = make_pool(lambda inputs, outputs, meta: None)
    pool.close()
    with pytest.raises(PoolClosed, match="is closed, and takes no more tasks"):
        pool.submit(0)
    with pytest.raises(PoolClosed):
        pool.ready.result(timeout=60)


def test_views_stay_valid_after_close(make_pool, lease, wait):
    pool = make_pool(lambda inputs, outputs, meta: outputs[0].fill(5))
    (y,) = lease(pool, ("int8", (100,)))
    wait(pool.submit(0, outputs=[y]))
    pool.close()
    assert y.tolist() == [5] * 100
    y[:] = 6


def test_a_pool_that_is_dropped_closes_itself(wait_for_exit):
    pool = WorkerPool(2, pickle_function(lambda inputs, outputs, meta: None), name="map(f)")
    pool.submit(0).result(timeout=60)
    pids = pool.pids()
    del pool
    gc.collect()
    for pid in pids:
        wait_for_exit(pid)


def test_a_callback_may_close_the_pool(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: None)
    closed = threading.Event()

    def close(future):
        pool.close()
        closed.set()

    pool.submit(0).add_done_callback(close)
    assert closed.wait(60)


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if an earlier test started it
def test_a_fork_of_the_process_can_neither_use_nor_end_the_workers(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: meta)
    wait(pool.submit(0))
    child = os.fork()
    if child == 0:
        try:
            pool.submit(0)
        except RuntimeError as error:
            pool.close()
            os._exit(0 if "cannot be used in a fork" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert wait(pool.submit(0, meta=3)).value == 3


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if an earlier test started it
def test_workers_end_by_themselves_while_a_fork_has_copies_of_their_channels(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: meta)
    wait(pool.submit(0))
    (worker,) = pool._service._workers
    child = os.fork()
    if child == 0:
        signal.pause()
    try:
        pool.close()
        assert worker._process.returncode == 0  # not killed after its time was up
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_thread_that_cannot_start_is_an_error_and_leaves_nothing(monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("penstock.core.crew._thread.start_new_thread", refuse)
    with pytest.raises(WorkersUnavailable, match="could not be started: can't start new thread"):
        WorkerPool(1, b"", name="map(f)")


def test_workers_start_while_the_caller_goes_on(make_pool, wait):
    def load_slowly():
        time.sleep(0.2)
        return lambda inputs, outputs, meta: "loaded"

    class Slow:
        def __reduce__(self):
            return load_slowly, ()

    pool = make_pool(Slow())
    assert not pool.ready.done()
    assert wait(pool.submit(0)).value == "loaded"
    assert pool.ready.done()
