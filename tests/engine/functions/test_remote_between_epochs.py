"""Worker processes outlive an epoch, and run the next one of the same chain and the same function, and no other."""

import os
import threading

import numpy as np
import pytest
from tests.conftest import our_processes
from tests.engine.functions.waiting import is_gone, pids, rows, script
from tests.workers.conftest import PATIENCE_SECONDS

import penstock as ps
from penstock.engine.functions.placement import Decision
from penstock.memory import process_ledger

pytestmark = pytest.mark.slow  # Every test starts interpreters.


def in_a_loop(ds):
    return [pids(ds) for _ in range(3)]


def by_number(ds):
    return [pids(ds.stream(epoch=epoch)) for epoch in (5, 5, 2)]


def in_blocks(ds):
    return [pids(block.columns[0].rows for block, _ in _blocks(ds)) for _ in range(3)]


def _blocks(ds):
    from penstock.engine.stream import open_stream

    with open_stream(ds.node, ds.options) as stream:
        yield from stream.blocks()


def by_torch(ds):
    pytest.importorskip("torch")
    feed = ds.batch(8).to_torch()
    return [pids(batch.numpy() for batch in feed) for _ in range(3)]


def by_jax(ds):
    pytest.importorskip("jax")
    feed = ds.map(np.int32, spec=ps.ArraySpec((), "int32")).batch(8).to_jax()
    return [pids(feed) for _ in range(3)]


def by_chains_of_one_dataset(ds):
    return [pids(ds), pids(ds.batch(7)), pids(ds.shuffle(seed=1).take(9)), pids(ds)]


def by_a_resumed_stream(ds):
    with ds.stream() as stream:
        first = pids([next(stream) for _ in range(9)])
        state = stream.state()
    return [first, pids(ds.stream(state=state))]


def after_a_break(ds):
    found = []
    for _ in range(3):
        for pid in ds:
            found.append({int(pid)})
            break
    return found


@pytest.mark.parametrize(
    "read",
    [
        in_a_loop,
        by_number,
        in_blocks,
        by_torch,
        by_jax,
        by_chains_of_one_dataset,
        by_a_resumed_stream,
        after_a_break,
    ],
)
def test_the_next_epoch_is_run_by_the_same_process(read):
    ds = rows()
    first, *others = read(ds)
    assert first != {os.getpid()}
    assert others == [first] * len(others)


def test_a_filter_and_several_functions_of_a_chain_keep_their_processes_too():
    ds = rows().filter(lambda pid: pid != os.getpid()).with_options(processes=1)
    before = our_processes()
    first = pids(ds)
    waiting = our_processes() - before
    assert len(waiting) == 2
    assert pids(ds) == first
    assert our_processes() - before == waiting


def test_a_function_that_is_placed_by_measurement_keeps_its_processes():
    ds = rows(processes=None)
    ds.node.decision = Decision("map(pid_of)", 2, "as if it were measured")
    with ds.stream() as stream:
        (remote,) = stream._engine.remotes.values()
        remote.pool.ready.result(PATIENCE_SECONDS)
        workers = set(remote.pool.pids())
        assert pids(stream) <= workers
    with ds.stream() as stream:
        (again,) = stream._engine.remotes.values()
        assert again.pool is remote.pool
        assert pids(stream) <= workers


def test_another_chain_of_the_same_function_has_processes_of_its_own():
    one, other = rows(), rows()
    assert pids(one) != pids(other)


def test_another_number_of_processes_ends_those_that_wait():
    ds = rows()
    (first,) = pids(ds)
    assert first not in pids(ds.with_options(processes=2))
    assert is_gone(first)


def test_two_streams_at_once_have_processes_of_their_own_and_one_pool_waits_after_them():
    ds, before = rows(), our_processes()
    with ds.stream() as one, ds.stream() as other:
        mine, theirs = int(next(one)), int(next(other))
        assert mine != theirs
    assert len(our_processes() - before) == 1
    assert pids(ds) <= {mine, theirs}


def test_threads_that_read_one_dataset_at_once_all_get_their_rows():
    ds = rows(lambda x: 3 * x, count=200).batch(10)
    expected = [3 * x for x in range(200)]
    wrong = []

    def read():
        for _ in range(5):
            try:
                found = [int(x) for batch in ds.stream() for x in batch]
            except BaseException as error:  # noqa: BLE001  # The test looks at it.
                found = error
            if found != expected:
                wrong.append(found)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()
    assert not wrong


def test_what_waits_is_not_in_the_ledger_and_gives_way_to_no_one():
    ds = rows(count=4000).batch(100).with_options(memory="1MB")
    assert process_ledger.granted == 0
    list(ds)
    assert process_ledger.granted == 0
    with ds.stream() as stream:  # A budget that has no room for two streams of it.
        assert stream.report().budget_nbytes == 1_000_000
        list(stream)
        assert stream.report().peak_nbytes <= 1_000_000


def test_a_changed_variable_of_the_function_is_seen_by_the_next_epoch():
    scale, made_by = 2, []

    def scaled(x):
        return x * scale

    ds = rows(scaled, count=4)
    assert [int(x) for x in ds] == [0, 2, 4, 6]
    made_by.append(our_processes())
    scale = 5
    assert [int(x) for x in ds] == [0, 5, 10, 15]
    made_by.append(our_processes())
    assert [int(x) for x in ds] == [0, 5, 10, 15]
    made_by.append(our_processes())
    assert made_by[0].isdisjoint(made_by[1])
    assert made_by[1] == made_by[2]


def test_a_changed_global_of_a_script_is_seen_by_the_next_epoch():
    done = script("""
        factor = 2
        ds = ps.from_arrays(np.arange(4)).map(lambda x: x * factor).with_options(processes=1)
        print([int(x) for x in ds])
        factor = 5
        print([int(x) for x in ds])
    """)
    assert done.stdout.splitlines() == ["[0, 2, 4, 6]", "[0, 5, 10, 15]"], done.stderr


def test_a_changed_environment_is_seen_by_the_next_epoch(monkeypatch):
    ds = rows(lambda x: int(os.environ.get("PENSTOCK_TEST", "0")), count=2)
    assert [int(x) for x in ds] == [0, 0]
    monkeypatch.setenv("PENSTOCK_TEST", "7")
    assert [int(x) for x in ds] == [7, 7]
