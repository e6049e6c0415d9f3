"""Blocks that are read in one call, and the threads that read them, against NumPy."""

import os
import signal
import threading
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import twins
from penstock import _native

KEYS = np.array(twins.splitmix64(7, 8), np.uint64)


def random_bytes(shape, seed=0):
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


@st.composite
def routes(draw, widths):
    """Tables of any stride, and steps that stay inside them; returns (tables, steps, rows that the route has)."""
    num_rows = draw(st.integers(1, 200))
    tables = []
    for width in widths:
        kind = draw(st.sampled_from(["plain", "gaps", "backward", "read-only"]))
        whole = random_bytes((2 * num_rows, width + 3), num_rows + width)
        table = {
            "plain": np.ascontiguousarray(whole[:num_rows, :width]),
            "gaps": whole[::2, 1 : 1 + width],
            "backward": whole[num_rows - 1 :: -1, :width],
            "read-only": np.ascontiguousarray(whole[num_rows:, :width]),
        }[kind]
        if kind == "read-only":
            table.flags.writeable = False
        tables.append(table)
    steps, length = [], num_rows
    for kind in draw(
        st.lists(st.sampled_from(["shift", "stride", "permute", "both", "choose"]), max_size=3)
    ):
        scale = draw(st.integers(2, 4)) if kind == "stride" else 1
        is_moved = kind not in ("permute", "choose")
        offset = draw(st.integers(0, min(5, length - 1))) if is_moved else 0
        inner = -(-(length - offset) // scale)
        if kind == "both":
            steps.insert(0, (1, offset, length, KEYS[: draw(st.sampled_from([2, 8]))]))
        elif kind == "choose":
            inner = max(1, length // 2)
            words = np.zeros(-(-length // 512) * 8, np.uint64)
            for row in range(length - inner, length):
                words[row // 64] |= np.uint64(1 << row % 64)
            steps.insert(0, (1, 0, 0, _native.Marked(words, twins.ranks(words))))
        elif kind == "permute":
            steps.insert(0, (1, 0, length, KEYS))
        else:
            steps.insert(0, (scale, offset, 0, None))
        length = inner
    return tables, steps, length


def rows_of(steps, start, count):
    rows = np.arange(start, start + count)
    for scale, offset, num_rows, keys in steps:
        rows = scale * rows + offset
        if isinstance(keys, _native.Choice):
            keys.rows(rows, rows)
        elif keys is not None:
            rows = np.array(twins.permute(rows.tolist(), num_rows, keys), np.int64)
    return rows


def layout(widths, count, group_rows, gap):
    """Columns one after the other, with a gap after each group."""
    places, offset = [], 0
    groups = -(-count // group_rows)
    for width in widths:
        stride = group_rows * width + gap
        places.append((offset, stride))
        offset += groups * stride
    return np.array(places, np.int64).reshape(-1, 2), offset


def expected(memory, parts, widths, columns, group_rows):
    out = memory.copy()
    slot = 0
    for (tables, steps, _), start, count in parts:
        for row in rows_of(steps, start, count).tolist():
            for (offset, stride), table, width in zip(
                columns.tolist(), tables, widths, strict=True
            ):
                at = offset + slot // group_rows * stride + slot % group_rows * width
                out[at : at + width] = table[row]
            slot += 1
    return out


@given(st.data())
def test_a_job_reads_what_its_twin_reads_and_writes_nowhere_else(data):
    widths = data.draw(
        st.lists(st.sampled_from([0, 1, 2, 3, 4, 8, 12, 400]), min_size=1, max_size=3)
    )
    made = [data.draw(routes(widths)) for _ in range(data.draw(st.integers(1, 2)))]
    parts = []
    for route in made:
        start = data.draw(st.integers(0, route[2]))
        parts.append((route, start, data.draw(st.integers(0, route[2] - start))))
    count = sum(part[2] for part in parts)
    group_rows = data.draw(st.integers(1, max(1, count)))
    columns, nbytes = layout(widths, count, group_rows, data.draw(st.sampled_from([0, 5])))
    memory = random_bytes(nbytes + 7, 99)
    wanted = expected(memory, parts, widths, columns, group_rows)
    natively = [(_native.Route(route[0], route[1]), start, size) for route, start, size in parts]
    job = _native.Job(natively, memory, columns, group_rows)
    assert job.num_rows == count
    job.run()
    assert job.is_done
    np.testing.assert_array_equal(memory, wanted)


def test_many_rows_are_read_in_several_pieces():
    table = np.arange(50_000, dtype=np.int64).view(np.uint8).reshape(-1, 8)
    memory = np.zeros(table.nbytes, np.uint8)
    route = _native.Route([table], [(1, 0, 50_000, KEYS)])
    _native.Job([(route, 0, 50_000)], memory, np.array([[0, 800]]), 100).run()
    rows = np.empty(50_000, np.int64)
    _native.permute(np.arange(50_000), rows, 50_000, KEYS)
    np.testing.assert_array_equal(memory.view(np.int64), rows)


TABLE = random_bytes((10, 4))
PLACE = np.array([[0, 40]])


@pytest.mark.parametrize(
    ("tables", "steps", "message"),
    [
        ([], [], "at least one table"),
        ([TABLE[0]], [], "must have 2 dimensions"),
        ([TABLE.view(np.int8)], [], "must hold uint8"),
        ([TABLE], [(1, 0)], "a step is"),
        ([TABLE], [(1, 0, 0, KEYS)], "num_rows must be between 1"),
        ([TABLE], [(1, 0, 10, KEYS[:3])], "an even number"),
    ],
)
def test_a_route_that_can_not_be_is_refused(tables, steps, message):
    with pytest.raises(ValueError, match=message):
        _native.Route(tables, steps)


@pytest.mark.parametrize(
    ("count", "nbytes", "columns", "group_rows", "message"),
    [
        (10, 39, PLACE, 10, "no room"),
        (10, 40, PLACE + 1, 10, "no room"),
        (10, 80, np.array([[-8, 40]]), 10, "no room"),
        (10, 80, np.array([[0, 8]]), 5, "no room"),
        (10, 80, np.array([[0, -40]]), 5, "no room"),
        (10, 40, np.array([[0, 40], [0, 40]]), 10, "an offset and a stride for each table"),
        (10, 40, PLACE, 0, "at least 1"),
        (-1, 40, PLACE, 10, "0 to"),
        (1 << 62, 40, np.array([[0, 0]]), 1 << 61, "no room"),
        (10, 1, np.array([[0, 0]]), (1 << 63) - 1, "no room"),
        (10, 40, np.zeros((1, 3), np.int64), 10, "an offset and a stride"),
        (10, 40, np.zeros((1, 0), np.int64), 10, "an offset and a stride"),
    ],
)
def test_a_job_without_room_for_its_rows_is_refused(count, nbytes, columns, group_rows, message):
    memory = np.zeros(nbytes, np.uint8)
    with pytest.raises(ValueError, match=message):
        _native.Job([(_native.Route([TABLE], []), 0, count)], memory, columns, group_rows)


def test_many_narrow_rows_have_no_room_in_a_group_without_end():
    table, memory = np.zeros((4_000_000, 1), np.uint8), np.zeros(1, np.uint8)
    with pytest.raises(ValueError, match="no room"):
        _native.Job(
            [(_native.Route([table], []), 0, len(table))], memory, np.array([[0, 0]]), (1 << 63) - 1
        )


@pytest.mark.parametrize("part", [(), (1,), (1, 2, 3, 4)])
def test_a_part_of_another_length_is_refused(part):
    with pytest.raises(ValueError, match="a part is"):
        _native.Job([part], np.zeros(40, np.uint8), PLACE, 10)


def test_no_parts_need_columns_of_their_form_all_the_same():
    with pytest.raises(ValueError, match="an offset and a stride"):
        _native.Job([], np.zeros(40, np.uint8), np.zeros((1 << 40, 0), np.int64), 10)


def test_memory_of_a_job_can_not_be_taken_away():
    memory = bytearray(40)
    job = _native.Job([(_native.Route([TABLE], []), 0, 10)], memory, PLACE, 10)
    with pytest.raises(BufferError):
        memory.clear()
    job.run()
    assert bytes(memory) == TABLE.tobytes()
    del job
    memory.clear()


def test_a_job_is_run_or_submitted_once():
    jobs = _native.Jobs()
    job, _ = job_of()
    jobs.submit(job)
    with pytest.raises(ValueError, match="once"):
        job.run()
    job.cancel()
    other, _ = job_of()
    other.run()
    with pytest.raises(ValueError, match="once"):
        jobs.submit(other)


def test_whoever_waits_for_a_cancelled_job_goes_on():
    jobs = _native.Jobs()
    job, _ = job_of()
    jobs.submit(job)
    threading.Timer(0.05, job.cancel).start()
    assert job.wait() is False
    assert job.wait() is False


def test_parts_of_other_widths_and_memory_of_the_tables_are_refused():
    memory = np.zeros(400, np.uint8)
    wide = _native.Route([random_bytes((10, 5))], [])
    parts = [(_native.Route([TABLE], []), 0, 2), (wide, 0, 2)]
    with pytest.raises(ValueError, match="rows of the same sizes"):
        _native.Job(parts, memory, PLACE, 10)
    inside = _native.Route([memory[:40].reshape(10, 4)], [])
    with pytest.raises(ValueError, match="apart from the tables"):
        _native.Job([(inside, 0, 2)], memory, PLACE, 10)


@pytest.mark.parametrize(
    ("steps", "start"),
    [
        ([], 5),
        ([], -1),
        ([(2, 0, 0, None)], 0),
        ([(1, -1, 0, None)], 0),
        ([(1, 0, 20, KEYS)], 0),
        ([(1, 0, 5, KEYS)], 0),
        ([(1 << 62, 1 << 62, 0, None)], 4),
        ([(1 << 62, 0, 0, None)], 4),
        ([], (1 << 63) - 1),
        ([(1, 1, 0, None)], (1 << 63) - 1),
    ],
)
def test_a_row_outside_the_tables_is_an_error_and_no_crash(steps, start):
    job = _native.Job(
        [(_native.Route([TABLE], steps), start, 9)], np.zeros(40, np.uint8), PLACE, 10
    )
    with pytest.raises(IndexError, match="outside the tables"):
        job.run()


def test_rows_without_bytes_must_be_there_all_the_same():
    table = np.zeros((10, 0), np.uint8)
    for steps in ([], [(1, 0, 20, KEYS)]):
        job = _native.Job(
            [(_native.Route([table], steps), 0, 15)], np.zeros(1, np.uint8), np.array([[0, 0]]), 15
        )
        with pytest.raises(IndexError, match="outside the tables"):
            job.run()


def job_of(count=10, table=TABLE):
    memory = np.zeros(count * table.shape[1], np.uint8)
    place = np.array([[0, memory.nbytes]])
    return _native.Job([(_native.Route([table], []), 0, count)], memory, place, count), memory


def serving(jobs, number=2):
    calls = []

    def work():
        jobs.serve()
        calls.append(threading.get_ident())

    threads = [threading.Thread(target=work) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, calls


def test_threads_read_blocks_and_come_back_for_calls():
    jobs = _native.Jobs()
    threads, calls = serving(jobs)
    for _ in range(100):
        job, memory = job_of()
        jobs.submit(job)
        assert job.wait()
        np.testing.assert_array_equal(memory, TABLE.reshape(-1))
    assert calls == []
    assert min(jobs.seconds) > 0
    jobs.call()
    jobs.call()
    for thread in threads:
        thread.join()
    assert len(calls) == 2


def test_jobs_that_nobody_serves_are_woken_cancelled_and_dropped():
    jobs = _native.Jobs()
    job, memory = job_of()
    jobs.submit(job)
    assert not job.is_done
    threading.Timer(0.05, job.wake).start()
    assert job.wait() is False
    job.cancel()
    dropped, _ = job_of()
    jobs.submit(dropped)
    del dropped
    jobs.call()
    jobs.serve()  # It comes to the call at once: neither job is in the queue any more.
    assert not memory.any()
    with pytest.raises(ValueError, match="once"):
        jobs.submit(job)


def test_whoever_helps_reads_what_stands_before_its_job_and_what_comes_after_stays():
    jobs = _native.Jobs()
    made = [job_of() for _ in range(4)]
    for job, _ in made:
        jobs.submit(job)
    assert made[1][0].wait(helps=True)
    assert [job.is_done for job, _ in made] == [True, True, False, False]
    np.testing.assert_array_equal(made[0][1], TABLE.reshape(-1))
    assert min(jobs.seconds) > 0
    jobs.stop()


def test_whoever_helps_makes_no_calls():
    jobs = _native.Jobs()
    jobs.call()
    job, _ = job_of()
    jobs.submit(job)
    threading.Timer(0.05, job.wake).start()
    assert job.wait(helps=True) is False
    jobs.serve()  # Returns for the call, which is still there.
    assert job.wait(helps=True) is False  # It was woken for good.
    job.cancel()


def test_whoever_helps_is_told_of_its_own_job_alone():
    jobs = _native.Jobs()
    bad = _native.Job([(_native.Route([TABLE], []), 5, 9)], np.zeros(40, np.uint8), PLACE, 10)
    good, memory = job_of()
    jobs.submit(bad)
    jobs.submit(good)
    assert good.wait(helps=True)
    np.testing.assert_array_equal(memory, TABLE.reshape(-1))
    with pytest.raises(IndexError, match="outside the tables"):
        bad.wait(helps=True)


def test_threads_and_whoever_helps_read_every_job_once():
    jobs = _native.Jobs()
    threads, _ = serving(jobs, 2)
    for _ in range(200):
        made = [job_of() for _ in range(5)]
        for job, _ in made:
            jobs.submit(job)
        for job, memory in made:
            assert job.wait(helps=True)
            np.testing.assert_array_equal(memory, TABLE.reshape(-1))
    jobs.stop()
    for thread in threads:
        thread.join()


def test_all_threads_return_when_jobs_stop_and_ever_after():
    jobs = _native.Jobs()
    threads, _ = serving(jobs, 3)
    jobs.stop()
    for thread in threads:
        thread.join()
    job, memory = job_of()
    jobs.submit(job)
    jobs.serve()
    assert not memory.any()


def test_an_error_reaches_whoever_waits():
    jobs = _native.Jobs()
    threads, _ = serving(jobs, 1)
    memory = np.zeros(40, np.uint8)
    job = _native.Job([(_native.Route([TABLE], []), 5, 9)], memory, PLACE, 10)
    jobs.submit(job)
    with pytest.raises(IndexError, match="outside the tables"):
        job.wait()
    jobs.stop()
    threads[0].join()


def test_memory_stays_while_a_thread_writes_to_it():
    table = random_bytes((4_000, 4_096))
    jobs = _native.Jobs()
    threads, _ = serving(jobs, 2)
    for _ in range(30):
        job, memory = job_of(4_000, table)
        jobs.submit(job)
        del (
            job,
            memory,
        )  # Waits for the end, if it has begun: else freed memory would be written to.
    jobs.stop()
    for thread in threads:
        thread.join()


def test_a_wait_ends_with_ctrl_c():
    jobs = _native.Jobs()
    job, _ = job_of()
    jobs.submit(job)
    threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        job.wait()


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if an earlier test started it
def test_a_forked_child_touches_nothing_of_its_parents_jobs():
    jobs = _native.Jobs()
    threads, _ = serving(jobs, 2)
    job, _ = job_of()
    jobs.submit(job)
    child = os.fork()
    if not child:
        signal.alarm(20)
        job.wake()
        job.cancel()
        jobs.call()
        jobs.stop()
        with pytest.raises(ValueError, match="parent of this process"):
            jobs.serve()
        is_refused = False
        try:
            jobs.submit(job_of()[0])
        except ValueError:
            is_refused = True
        del job, jobs  # Would wait for ever for threads that are not here.
        os._exit(0 if is_refused else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert job.wait()
    jobs.stop()
    for thread in threads:
        thread.join()


def test_a_job_tells_which_thread_ran_it_when_and_for_how_long():
    table = random_bytes((5000, 64))
    out = np.empty(5000 * 64, np.uint8)
    job = _native.Job([(_native.Route([table], []), 0, 5000)], out, np.array([[0, 0]]), 5000)
    assert job.times == (0, 0.0, 0.0, 0.0, 0.0)
    before = perf_counter()
    job.run()
    after = perf_counter()
    thread, began, took, order, gather = job.times
    assert thread == threading.get_ident()
    assert before <= began <= began + took <= after
    assert 0 <= order + gather <= took
