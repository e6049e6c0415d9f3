"""Rows on their way to worker processes and back: the same rows, in memory that is bounded and counted."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from tests.workers.conftest import wait_until_gone

import penstock as ps
from penstock.memory import process_ledger

pytestmark = pytest.mark.slow  # Every test starts interpreters.

CGROUPS = Path("/sys/fs/cgroup/memory")
IMAGE = (224, 224, 3)


def plus_one(x):
    return x + np.float32(1)


def is_true(x):
    return True


def held():
    """Return the open descriptors of this process, and the bytes of shared memory behind them."""
    count = nbytes = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            if re.search("[:/]penstock (arena|function|message)", str(entry.readlink())):
                nbytes += entry.stat().st_blocks * 512
        except OSError:
            continue  # the descriptor of this very listing
        count += 1
    return count, nbytes


def images():
    return ps.from_arrays(np.zeros((8, *IMAGE), np.float32)).repeat()


def rows_of(nbytes):
    return ps.from_arrays(np.zeros((4, nbytes // 4), np.float32)).repeat()


def ragged(longest):
    numbers = ps.from_arrays(np.arange(longest)).repeat()
    spec = ps.ArraySpec((None,), "float32")
    return numbers.map(lambda i: np.ones(int(i) * 100, np.float32), spec=spec)


CHAINS = {
    "images, then batch": (lambda: images().map(plus_one).batch(32), "300MB", {}),
    "images, then batch, 16 threads": (
        lambda: images().map(plus_one).batch(32),
        "1GB",
        {"threads": 16, "processes": 1},
    ),
    "batches of images": (lambda: images().batch(32).map(plus_one), "200MB", {}),
    "several functions": (
        lambda: images().filter(is_true).map(plus_one).batch(8),
        "200MB",
        {"processes": 1, "threads": 1},
    ),
    "rows of 1 KB": (lambda: rows_of(1000).map(plus_one).batch(1024), "100MB", {}),
    "rows of 12 MB": (lambda: rows_of(12_000_000).map(plus_one), "200MB", {}),
    "results 100 times larger": (
        lambda: rows_of(1000).map(lambda x: np.tile(x, 100)).batch(32),
        "100MB",
        {"processes": 4},
    ),
    "results that grow": (lambda: ragged(400), "60MB", {}),
    "rows and results that grow": (lambda: ragged(400).map(lambda x: x + 1), "60MB", {}),
}


@pytest.mark.parametrize("name", CHAINS)
def test_shared_memory_and_descriptors_are_bounded_and_counted(name):
    make, memory, options = CHAINS[name]
    options = {"processes": 2, **options}
    ds = make().with_options(memory=memory, **options)
    before, _ = held()
    with ds.stream() as stream:
        budget = stream.report().budget_nbytes
        remotes = list(stream._engine.remotes.values())
        # Of each function: three of the pool, three and two messages a process, and a tray for each and two more.
        most = before + len(remotes) * (3 + 5 * options["processes"] + options["processes"] + 2)
        for _, _batch in zip(range(40), stream, strict=False):
            mapped = sum(one.account.mapped for one in remotes)
            count, nbytes = held()
            mapped = max(mapped, sum(one.account.mapped for one in remotes))
            assert nbytes <= mapped + (1 << 20)  # The functions themselves are not counted.
            assert count <= most
            assert process_ledger.granted <= budget
        assert stream.report().peak_nbytes <= budget


def text_of(i):
    return {
        "text": "é" * int(i % 50),
        "raw": b"x" * (int(i) * 37 % 3000),
        "ragged": np.arange(int(i) % 7, dtype=np.int16),
        "names": [f"n{j}" for j in range(int(i) % 4)],
        "i": i,
    }


SPEC = {
    "text": ps.ArraySpec((), str),
    "raw": ps.ArraySpec((), bytes),
    "ragged": ps.ArraySpec((None,), "int16"),
    "names": ps.ArraySpec((None,), str),
    "i": ps.ArraySpec((), "int64"),
}


def again(row):
    return {**row, "twice": row["ragged"] * 2}


def fails_on_sevens(row):
    if int(row["i"]) % 7 == 0:
        raise KeyError("seven")
    return row


def assert_same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            x, y = np.asarray(a[name]), np.asarray(b[name])
            assert x.dtype == y.dtype
            assert x.tolist() == y.tolist()


@pytest.mark.parametrize("memory", ["1MB", None], ids=["a few rows at a time", "all at once"])
def test_rows_of_any_size_come_back_as_threads_make_them(memory):
    ds = ps.from_arrays(np.arange(700)).map(text_of, spec=SPEC)
    spec = {**SPEC, "twice": ps.ArraySpec((None,), "int16")}
    ds = ds.map(again, spec=spec).shuffle(seed=1)
    expected = list(ds.with_options(processes=0).stream(epoch=0))
    assert_same(ds.with_options(processes=1, memory=memory).stream(epoch=0), expected)


def test_bad_rows_are_skipped_in_every_piece_of_a_block():
    ds = ps.from_arrays(np.arange(700)).map(text_of, spec=SPEC).map(fails_on_sevens, spec=SPEC)
    ds = ds.with_options(on_error="skip", memory="1MB")
    expected = list(ds.with_options(processes=0, memory="100MB"))  # Which keeps all of them.
    with ds.with_options(processes=1).stream() as stream:
        assert_same(stream, expected)
        assert stream.report().num_skipped == 100


def test_batches_larger_than_a_tray_go_through_it_in_pieces():
    x = np.random.default_rng(0).random((70, 50_000), dtype=np.float32)
    ds = ps.from_arrays(x).shuffle(seed=2).map(plus_one).batch(32)
    expected = list(ds.with_options(processes=0).stream(epoch=0))
    for a, b in zip(ds.with_options(processes=2).stream(epoch=0), expected, strict=True):
        assert (a == b).all()


def test_the_budget_that_a_refusal_names_does_with_all_processes():
    ds = ps.from_arrays(np.ones((40, 50_000), np.float32)).map(plus_one).batch(8)
    ds = ds.with_options(processes=4)
    with pytest.raises(ps.BudgetError, match=r"that the workers of map\(plus_one\) share") as error:
        ds.with_options(memory="1MB").stream()
    named = int(re.search(r"memory=(\d+)\)", str(error.value))[1])
    assert named == ds.explain().need_nbytes
    with pytest.raises(ps.BudgetError, match="too small"):
        ds.with_options(memory=named - 1).stream()
    with ds.with_options(memory=named).stream() as stream:
        assert [len(batch) for batch in stream] == [8] * 5
        assert stream.report().peak_nbytes <= named


def long_at_30(i):
    return b"x" * (60_000_000 if i == 30 else 10)


def test_a_result_that_no_budget_has_room_for_is_refused_and_its_row_named():
    ds = ps.from_arrays(np.arange(40)).map(long_at_30, spec=ps.ArraySpec((), bytes))
    with pytest.raises(
        ps.BudgetError, match=r"map\(long_at_30\) made 60 MB of row 30, .* with_options"
    ) as error:
        list(ds.with_options(processes=1, memory="20MB"))
    named = int(re.search(r"memory=(\d+)\)", str(error.value))[1])
    lengths = [len(one) for one in ds.with_options(processes=1, memory=named)]
    assert lengths == [10] * 30 + [60_000_000] + [10] * 9


def test_a_function_that_keeps_its_rows_sees_them_unchanged():
    kept = []

    def keep(x):
        kept.append(x)
        return sum(int(one[0]) for one in kept)

    ds = ps.from_arrays(np.arange(200)[:, None]).map(keep, spec=ps.ArraySpec((), "int64"))
    assert list(ds.with_options(processes=1, threads=1)) == np.cumsum(np.arange(200)).tolist()


@pytest.mark.parametrize("how", ["never returns", "is stopped"])
@pytest.mark.parametrize("stage", ["map", "filter"])
def test_close_ends_a_function_that_never_does(how, stage, tmp_path):
    gate = tmp_path / "gate"
    os.mkfifo(gate)

    def hang(x):
        if (
            x == 1
        ):  # Begun once row 0 is made, since there is one thread: else it might keep the one process from it.
            gate.write_text("here")
            gate.read_text()  # For ever: nobody writes.
        return True

    rows = ps.from_arrays(np.arange(100))
    ds = rows.map(hang, spec=ps.ArraySpec((), bool)) if stage == "map" else rows.filter(hang)
    with ds.with_options(processes=1, threads=1).stream() as stream:
        next(stream)
        pids = [pid for one in stream._engine.remotes.values() for pid in one.pool.pids()]
        assert gate.read_text() == "here"
        if how == "is stopped":
            for pid in pids:
                os.kill(pid, signal.SIGSTOP)
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_too_few_descriptors_are_an_error_at_any_moment_and_leave_nothing():
    script = textwrap.dedent("""
        import os, resource
        import numpy as np
        import penstock as ps
        import penstock.reports.report  # Modules that load late need a descriptor, too.

        ds = ps.from_arrays(np.arange(50)).map(lambda x: x + 1, spec=ps.ArraySpec((), "int64"))
        ds = ds.with_options(processes=2)
        count = lambda: len(os.listdir("/proc/self/fd"))
        before, most = count(), resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        for more in range(0, 16, 2):
            resource.setrlimit(resource.RLIMIT_NOFILE, (before + more, most))
            try:
                print("all" if len(list(ds)) == 50 else "some")
            except ps.PenstockError as error:
                print(type(error).__name__)
            ds.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
            assert count() == before, more
    """)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=120
    )
    found = done.stdout.split()
    assert len(found) == 8, done.stderr
    assert found[0] == "WorkersUnavailable"
    assert found[-1] == "all"
    assert set(found) <= {"WorkersUnavailable", "FunctionError", "all"}


@pytest.mark.parametrize("where", ["before", "after"])
def test_images_in_processes_keep_within_their_budget_in_a_container(where):
    group = CGROUPS / f"penstock-workers-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no memory cgroup can be made here ({error}); descriptors are summed up above")
    script = str(Path(__file__).with_name("fed_in_a_cgroup.py"))
    enter = f'echo $$ > {group}/cgroup.procs && exec "$@"'
    try:
        # The budget, 150 MB for the process itself, and 50 MB for each of four workers.
        (group / "memory.limit_in_bytes").write_text(str(550_000_000))
        command = ["sh", "-c", enter, "sh", sys.executable, script, str(group), where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
    finally:
        # Where the kernel does not kill workers with their parent, they end a moment after it.
        for pid in (group / "cgroup.procs").read_text().split():
            wait_until_gone(int(pid))
        group.rmdir()
    found = json.loads(done.stdout)
    assert found["sum"] == sum(range(640)) + 640
    assert found["cgroup"] < 550_000_000  # Nothing was squeezed out either.
    assert found["ledger"] <= 200_000_000
