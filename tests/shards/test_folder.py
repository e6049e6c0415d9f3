"""A folder of shards that is interrupted while it is filled: the same call goes on, and nothing breaks it half-way."""

import random
import signal
import subprocess
import sys
import warnings

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.shards.nests import names
from tests.stages.conformance import keep

import penstock as ps


def test_the_same_call_goes_on_after_an_error_and_redoes_no_finished_shard(tmp_path):
    seen, ready = [], tmp_path / "ready"

    def f(x):
        if x[0] == 700 and not ready.exists():
            raise RuntimeError("not yet")
        seen.append(int(x[0]))
        return x

    rows = np.repeat(np.arange(1000), 1000).reshape(1000, 1000)
    ds = ps.from_arrays(rows).map(f, spec=ps.ArraySpec((1000,), "int64")).filter(keep)
    ds = ds.with_options(threads=0)
    with pytest.raises(ps.FunctionError, match="not yet") as raised:
        ds.write(tmp_path / "out", shard_rows=100)
    assert "finished shards are kept" in "".join(raised.value.__notes__)
    assert not (tmp_path / "out").exists()
    hidden = tmp_path / ".out.penstock-part"
    done = len(list(hidden.glob("value-*.npy")))
    before = {file.name: file.stat().st_mtime_ns for file in hidden.glob("value-*.npy")}
    assert done > 0
    seen.clear()
    ready.touch()
    ds.write(tmp_path / "out", shard_rows=100)
    assert min(seen) >= 100 * done
    assert {name: (tmp_path / "out" / name).stat().st_mtime_ns for name in before} == before
    assert_same(run(ps.from_files(tmp_path / "out")), list(rows))
    assert names(tmp_path) == ["out", "ready"]


def fail_at_700(x):
    if x == 700:
        raise RuntimeError("no")
    return x


def test_what_is_left_of_something_else_is_not_gone_on_with(tmp_path):
    with pytest.raises(ps.FunctionError):
        ps.from_arrays(np.arange(1000)).map(fail_at_700).write(tmp_path / "out", shard_rows=100)
    gone = r"write starts over: the \d finished shards in .*stage map\(fail_at_700\) is gone"
    with pytest.warns(ps.PenstockWarning, match=gone):
        ps.from_arrays(np.arange(1000) * 2).write(tmp_path / "out", shard_rows=100)
    assert_same(run(ps.from_files(tmp_path / "out")), list(np.arange(1000) * 2))


def test_shards_with_other_fields_are_not_gone_on_with(tmp_path):
    """What a function returns is declared, and is no part of the function."""
    for dtype in ("int64", "float64"):
        ds = ps.from_arrays(np.arange(1000)).map(fail_at_700, spec=ps.ArraySpec((), dtype))
        ds = ds.with_options(threads=0, processes=0)
        with pytest.raises(ps.FunctionError), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ds.write(tmp_path / "out", shard_rows=100)
    assert "its rows have other fields" in str(caught[0].message)
    arrays = {np.load(file).dtype for file in (tmp_path / ".out.penstock-part").glob("*.npy")}
    assert arrays == {np.dtype("float64")}


def left_whole(path, array):
    """Leave what a kill leaves between the last shard and the new name of the folder."""
    ps.from_arrays(array).write(path, shard_rows=100)
    path.rename(path.with_name(f".{path.name}.penstock-part"))


def test_a_whole_folder_that_was_never_renamed_is_used_if_it_is_the_same(tmp_path):
    left_whole(tmp_path / "out", np.arange(1000))
    file = tmp_path / ".out.penstock-part" / "value-00000.npy"
    before = file.stat().st_mtime_ns
    ps.from_arrays(np.arange(1000)).write(tmp_path / "out", shard_rows=100)
    assert (tmp_path / "out" / "value-00000.npy").stat().st_mtime_ns == before


@pytest.mark.parametrize("lost", [False, True])
def test_a_whole_folder_that_was_never_renamed_is_not_used_if_it_is_another(lost, tmp_path):
    left_whole(tmp_path / "out", np.arange(1000))
    if lost:
        (tmp_path / ".out.penstock-part" / "value-00003.npy").unlink()
    array = np.arange(1000) * (1 if lost else 3)
    with pytest.warns(ps.PenstockWarning, match="the 10 finished shards"):
        ps.from_arrays(array).write(tmp_path / "out", shard_rows=100)
    assert_same(run(ps.from_files(tmp_path / "out")), list(array))


WRITER = """
import sys, numpy as np, penstock as ps
x = np.arange(6_000_000)
ds = ps.from_arrays((x, x.astype("f4")))
if sys.argv[1] == "flow":
    ds = ds.batch(1000).filter(lambda a, b: True).unbatch()
print("ready", flush=True)
ds.write(sys.argv[2], shard_rows=200_000)
print("done", flush=True)
"""


def start(kind, path):
    command = [sys.executable, "-c", WRITER, kind, str(path)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def kill_after(kind, path, seconds):
    process = start(kind, path)
    process.stdout.readline()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    process.communicate()


def check_whole(path):
    back = ps.from_files(path)
    assert len(back) == 6_000_000
    at = 0
    for x, y in back.batch(500_000):
        assert (x == np.arange(at, at + len(x))).all()
        assert (y == np.arange(at, at + len(x)).astype("f4")).all()
        at += len(x)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_kill_at_any_moment_can_be_gone_on_from(kind, tmp_path):
    rng = random.Random(kind)
    for _ in range(3):
        if (tmp_path / "out").exists():
            break
        kill_after(kind, tmp_path / "out", rng.uniform(0.0, 0.3))
    if not (tmp_path / "out").exists():
        process = start(kind, tmp_path / "out")
        assert process.communicate(timeout=120)[0].endswith("done\n")
    check_whole(tmp_path / "out")
    assert names(tmp_path) == ["out"]


@pytest.mark.soak
@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_fifty_kills_can_be_gone_on_from(kind, tmp_path):
    rng = random.Random(kind)
    for number in range(25):
        path = tmp_path / f"out{number}"
        kill_after(kind, path, rng.uniform(0.0, 1.0))
        if not path.exists():
            process = start(kind, path)
            assert process.communicate(timeout=120)[0].endswith("done\n")
        check_whole(path)


@pytest.mark.slow
def test_of_two_processes_one_writes_and_the_other_says_so(tmp_path):
    processes = [start("rows", tmp_path / "out") for _ in range(2)]
    ends = [(process.communicate(timeout=120), process.returncode) for process in processes]
    assert min(code for _, code in ends) == 0
    for (_, error), code in ends:
        assert code == 0 or "another process is writing this" in error or "exists already" in error
    check_whole(tmp_path / "out")
