"""write(engine="ray"), on a real Ray: the same bytes as by the local engine, whatever is killed on the way."""

import contextlib
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.shards import sequence
from penstock.writers import npy, on_ray
from writers import killed_on_ray

pytestmark = pytest.mark.slow

NUM_ROWS = 2000
LIMIT_SECONDS = 120


@pytest.fixture(scope="module", autouse=True)
def ray():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of Ray and of what it imports.
        import ray

        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        ray.get(ray.put(bytes(1 << 20)))  # Its shared memory is opened now, not in a test.
    yield ray
    ray.shutdown()


def contents(folder):
    """The bytes of all files of a folder, hidden ones too."""
    return {one.name: hashlib.md5(one.read_bytes()).hexdigest() for one in Path(folder).iterdir()}


def names_in(folder):
    return sorted(one.name for one in Path(folder).iterdir())


def numbers(tmp_path, num_rows=NUM_ROWS):
    """Rows on storage: what a cluster reads."""
    path = tmp_path / "numbers.npy"
    np.save(path, np.arange(num_rows))
    return path


def table(rows=NUM_ROWS):
    random = np.random.default_rng(0)
    return {"x": random.random((rows, 5), dtype="float32"), "y": np.arange(rows)}


def text():
    return [f"{row}-" * (row % 7) for row in range(NUM_ROWS)]


def ragged():
    return [np.arange(row % 11, dtype="int16").reshape(-1, 1) for row in range(NUM_ROWS)]


def from_folder(tmp_path):
    ps.from_arrays(table()).write(tmp_path / "files", shard_rows=300)
    return ps.from_files(tmp_path / "files")


def is_third(row):
    return row["y"] % 3 == 0


DATASETS = {
    "arrays": lambda _: ps.from_arrays(table()),
    "text": lambda _: ps.from_arrays((text(), np.arange(NUM_ROWS))),
    "ragged": lambda _: ps.from_arrays((ragged(), text())),
    "shuffled": lambda _: ps.from_arrays(table()).shuffle(seed=3).repeat(2),
    "mapped": lambda _: ps.from_arrays(table()).map(lambda row: (row["x"] * 2, row["y"] % 7 == 1)),
    "random": lambda _: ps.from_arrays(table()).map(
        lambda row, random: row["x"] + random.random(5), seed=1
    ),
    "batched": lambda _: ps.from_arrays(table()).batch(32),
    "padded": lambda _: ps.from_arrays(ragged()).padded_batch(16),
    "unbatched": lambda _: ps.from_arrays(table()).batch(32, drop_remainder=True).unbatch(),
    "files": lambda path: from_folder(path).shuffle(seed=1, window="20KB"),
    "exact": lambda path: from_folder(path).shuffle(seed=1, exact=True),
    "mixed": lambda path: ps.mix(
        [from_folder(path), ps.from_arrays(table(77))], weights=[3, 1], seed=0
    ),
    "cached": lambda path: (
        from_folder(path).cache(str(path / "cache")).shuffle(seed=1, window="20KB")
    ),
    "cached in memory": lambda _: ps.from_arrays(table()).cache().shuffle(),
    "cached flow": lambda path: (
        from_folder(path).filter(is_third).cache(str(path / "cache")).shuffle(seed=2).enumerate()
    ),
    "empty": lambda _: ps.from_arrays(table(0)),
}
NO_RECORDS = {"batched", "padded"}
WHOLE = {"text", "cached flow", "empty"}
"""Written with shards of the default size: the others have several."""


@pytest.mark.parametrize("name", DATASETS)
def test_the_files_are_byte_for_byte_those_of_the_local_engine(name, tmp_path):
    ds = DATASETS[name](tmp_path)
    for format, arguments in [
        ("npy", {} if name in WHOLE else {"shard_rows": 297}),
        ("tfrecord", {"shard_rows": 999} if name in WHOLE else {"shards": 3}),
        ("parquet", {"shard_rows": 999} if name in WHOLE else {"shards": 3}),
    ]:
        if format != "npy" and name in NO_RECORDS:
            continue
        # Ray first: what a dataset caches is filled by it.
        ds.write(tmp_path / "ray", format=format, engine="ray", overwrite=True, **arguments)
        ds.write(tmp_path / "local", format=format, overwrite=True, **arguments)
        assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert not [one for one in names_in(tmp_path) if one.startswith(".")]


def small_shards(monkeypatch, nbytes):
    for module in (sequence, npy):
        monkeypatch.setattr(module, "SHARD_NBYTES", nbytes)


@pytest.mark.parametrize("name", ["text", "padded", "batched"])
def test_shards_of_so_many_bytes_are_those_of_the_local_engine(name, tmp_path, monkeypatch):
    small_shards(monkeypatch, 3000)
    ds = DATASETS[name](tmp_path)
    ds.write(tmp_path / "ray", engine="ray")
    ds.write(tmp_path / "local")
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert len(json.loads((tmp_path / "ray/manifest.json").read_text())["shards"]) > 3


def test_a_task_whose_process_is_killed_is_done_again(tmp_path):
    marker = tmp_path / "killed"

    def function(number):
        if number == 1234 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * 2

    ds = ps.from_files(numbers(tmp_path)).map(function, spec=ps.ArraySpec((), "int64"))
    ds.write(tmp_path / "ray", engine="ray", shard_rows=500)
    assert marker.exists()
    ds.write(tmp_path / "local", shard_rows=500)
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert not [one for one in names_in(tmp_path) if one.startswith(".")]


def test_a_task_whose_process_dies_each_time_is_given_up_with_its_rows(tmp_path, monkeypatch):
    def function(number):
        if number == 1234:
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    ds = ps.from_files(numbers(tmp_path)).map(function, spec=ps.ArraySpec((), "int64"))
    monkeypatch.setattr(on_ray, "_MAX_ATTEMPTS", 2)  # Each starts a process of Ray.
    with pytest.raises(ps.WriteError, match=r"rows 1000 to 1500 died 2 times.*memory"):
        ds.write(tmp_path / "out", engine="ray", shard_rows=500)
    assert not (tmp_path / "out").exists()


def failing(marker):
    """A function that notes which rows it is called with, and fails on one of them while there is a marker."""

    def function(number):
        with (marker.parent / "rows").open("a") as file:
            file.write(f"{number}\n")
        if number == 1234 and marker.exists():
            raise ZeroDivisionError("by this row")
        return number * 2

    return function


def test_an_error_of_a_function_is_the_one_that_the_local_engine_raises(tmp_path):
    marker = tmp_path / "fail"
    marker.touch()
    function = failing(marker)
    ds = ps.from_files(numbers(tmp_path)).map(function, spec=ps.ArraySpec((), "int64"))
    messages = []
    for engine in ("local", "ray"):
        with pytest.raises(ps.FunctionError, match="row 1234") as caught:
            ds.write(tmp_path / engine, format="tfrecord", engine=engine, shard_rows=500)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        assert not (tmp_path / engine).exists()
        messages.append(str(caught.value))
    assert len(set(messages)) == 1
    # The function's own lines, from the process it ran in.
    assert "by this row" in str(caught.value.__cause__.__cause__)
    assert __file__ in str(caught.value.__cause__.__cause__)


def test_the_same_call_goes_on_after_finished_shards_whichever_these_are(tmp_path, monkeypatch):
    small_shards(
        monkeypatch, 4000
    )  # Of rows that differ in size: where shards end must be found again.
    marker = tmp_path / "fail"
    marker.touch()
    told = tmp_path / "rows"
    values = [b"x" * (row % 50) for row in range(NUM_ROWS)]

    def function(value, row):
        if row == 1234 and marker.exists():
            started = len(told.read_text().split())
            # Not the first of its shards, and others are finished behind it.
            while len(told.read_text().split()) < started + 500:
                time.sleep(0.01)
            raise ZeroDivisionError("by this row")
        with told.open("a") as file:
            file.write(f"{row}\n")
        return value, row

    np.save(tmp_path / "rows.npy", np.arange(NUM_ROWS))
    ps.from_arrays(values).write(tmp_path / "values")
    ds = ps.zip(ps.from_files(tmp_path / "values"), ps.from_files(tmp_path / "rows.npy"))
    ds = ds.map(function, spec=(ps.ArraySpec((), bytes), ps.ArraySpec((), "int64")))
    with pytest.raises(ps.FunctionError, match="row 1234"):
        ds.write(tmp_path / "out", engine="ray", shard_rows=100)
    hidden = tmp_path / ".out.penstock-part"
    kept = {one.name: one.stat().st_ino for one in hidden.iterdir() if one.suffix == ".npy"}
    numbers_kept = {int(re.search(r"-(\d{5})", name)[1]) for name in kept}
    assert numbers_kept
    assert 12 not in numbers_kept
    assert not [name for name in names_in(hidden) if name.endswith("-tmp")]
    marker.unlink()
    told.unlink()
    ds.write(tmp_path / "out", engine="ray", shard_rows=100)
    again = set(map(int, told.read_text().split()))
    assert again == {row for row in range(NUM_ROWS) if row // 100 not in numbers_kept}
    for name, inode in kept.items():
        assert (tmp_path / "out" / name).stat().st_ino == inode
    ds.write(tmp_path / "local", shard_rows=100)
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


def test_a_flow_behind_its_cache_starts_over_without_ray_and_says_so(tmp_path):
    marker = tmp_path / "fail"
    marker.touch()

    def function(row):
        if row["y"] == 1233 and marker.exists():
            raise ZeroDivisionError
        return row["y"]

    ds = from_folder(tmp_path).filter(is_third).cache(str(tmp_path / "cache"))
    ds = ds.map(function, spec=ps.ArraySpec((), "int64")).batch(2)
    with pytest.raises(ps.FunctionError, match="map"):
        ds.write(tmp_path / "out", engine="ray", shard_rows=10)
    marker.unlink()
    with pytest.warns(ps.PenstockWarning, match="starts over: without engine"):
        ds.write(tmp_path / "out", shard_rows=10)
    ds.write(tmp_path / "local", shard_rows=10)
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


def test_ctrl_c_ends_all_tasks(tmp_path):
    driver = os.getpid()

    def function(number):
        (tmp_path / f"pid-{os.getpid()}").touch()
        # Both tasks are at work.
        while len(list(tmp_path.glob("pid-*"))) < 2:
            time.sleep(0.01)
        if number == 0:
            os.kill(driver, signal.SIGINT)
        time.sleep(LIMIT_SECONDS)
        return number

    ds = ps.from_files(numbers(tmp_path)).map(function, spec=ps.ArraySpec((), "int64"))
    with pytest.raises(KeyboardInterrupt):
        ds.write(tmp_path / "out", engine="ray", shard_rows=500)
    # Ray has killed them by now; a busy machine may take a moment to bury them. They sleep longer than this waits.
    deadline = time.monotonic() + LIMIT_SECONDS / 2
    for one in tmp_path.glob("pid-*"):
        while Path(f"/proc/{one.name.removeprefix('pid-')}").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
    assert not [one for one in names_in(tmp_path) if "out" in one]


def write_and_be_killed(files, target, marker, row):
    """Write in a process of its own, which is killed when a task meets a row; return how it ended."""
    folder = target.parent
    command = [sys.executable, killed_on_ray.__file__, files, target, marker, str(row), "200"]
    environment = {**os.environ, "PENSTOCK_TEST": str(folder)}
    with (folder / "told").open("w") as told:  # A file: a pipe would be held open by all of Ray.
        killed = subprocess.run(
            command, env=environment, stdout=told, stderr=told, timeout=LIMIT_SECONDS, check=False
        )
    return killed.returncode, (folder / "told").read_text()


def end_workers_of(folder):
    """End what is left of the Ray of a killed process: some of its workers wait a minute for it to come back."""
    for pid, _ in processes_with(f"PENSTOCK_TEST={folder}"):
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)


def test_a_killed_driver_leaves_finished_shards_and_the_same_call_goes_on_after_them(tmp_path):
    files, target, marker = numbers(tmp_path), tmp_path / "out", tmp_path / "kill"
    code, told = write_and_be_killed(files, target, marker, 1999)
    assert code == -signal.SIGKILL, told
    hidden = tmp_path / ".out.penstock-part"
    finished = {one.name: one.stat().st_ino for one in hidden.glob("*.npy")}
    assert finished
    assert "value-00009.npy" not in finished
    # At once: workers of the killed process may still be at work.
    ds = killed_on_ray.dataset(str(files), marker)
    ds.write(target, engine="ray", shard_rows=200)
    ds.write(tmp_path / "local", shard_rows=200)
    assert contents(target) == contents(tmp_path / "local")
    assert {name: (target / name).stat().st_ino for name in finished} == finished
    end_workers_of(tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_many_kills_of_workers_and_drivers_lose_nothing(tmp_path):
    files, target, marker = numbers(tmp_path), tmp_path / "out", tmp_path / "kill"
    ds = killed_on_ray.dataset(str(files), marker)
    ds.write(tmp_path / "local", shard_rows=200)
    random = np.random.default_rng()
    for _ in range(10):
        for _ in range(3):
            row = 10 * int(random.integers(NUM_ROWS // 10)) + 9
            code, told = write_and_be_killed(files, target, marker, row)
            end_workers_of(tmp_path)
            assert code in (0, -signal.SIGKILL), f"row {row}: {told}"
            if code == 0:  # The row was in a shard that was finished before.
                break
        if not target.exists():
            ds.write(target, engine="ray", shard_rows=200)
        assert contents(target) == contents(tmp_path / "local")
        shutil.rmtree(target)


def processes_with(variable):
    """The command lines of processes that have a variable in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process.name, (process / "cmdline").read_bytes()[:200]))
        except OSError:
            continue
    return found


def test_the_command_converts_on_a_ray_of_its_own_and_ends_it(tmp_path):
    files = numbers(tmp_path)
    command = ["convert", str(files), str(tmp_path / "out"), "--engine", "ray", "--shard-rows=500"]
    environment = {**os.environ, "PENSTOCK_TEST": str(tmp_path)}
    done = subprocess.run(
        [Path(sys.executable).with_name("penstock"), *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "2000 rows" in done.stdout
    assert not processes_with(f"PENSTOCK_TEST={tmp_path}")
    ps.from_files(files).write(tmp_path / "local", shard_rows=500)
    assert contents(tmp_path / "out") == contents(tmp_path / "local")


def test_a_disk_that_is_full_and_warnings_are_told_as_by_the_local_engine(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    options = ["-t", "tmpfs", "-o", "size=64k", "tmpfs"]
    if subprocess.run(["mount", *options, str(disk)], check=False).returncode:
        pytest.skip(
            "no disk can be mounted; tests/writers/test_npy_on_a_failing_disk.py runs the writer on one"
        )
    try:
        for format in ("npy", "tfrecord"):
            with pytest.raises(ps.DiskFullError, match=r"disk is full.*Free some space"):
                ps.from_arrays(np.zeros((50_000, 4))).write(
                    disk / "out", format=format, engine="ray", shard_rows=5000
                )
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_what_a_task_warns_of_and_a_budget_that_is_too_small_are_told_here(tmp_path):
    def function(number):
        warnings.warn("take care", ps.PenstockWarning, stacklevel=1)
        return number

    ds = ps.from_files(numbers(tmp_path))
    mapped = ds.map(function, spec=ps.ArraySpec((), "int64"))
    with pytest.warns(ps.PenstockWarning, match="take care") as told:
        mapped.write(tmp_path / "out", engine="ray", shard_rows=500)
    assert len(told) == 1
    with pytest.raises(ps.BudgetError, match="budget"):
        ds.with_options(memory=1000).write(tmp_path / "small", engine="ray")
    assert not [one for one in names_in(tmp_path) if "small" in one]


def test_a_bar_is_shown(tmp_path, capsys):
    ps.from_arrays(table()).write(tmp_path / "out", engine="ray", shard_rows=500, progress=True)
    assert "2,000 rows" in capsys.readouterr().err


def test_what_is_there_is_not_overwritten_unless_asked(tmp_path):
    ds = ps.from_arrays(table())
    ds.write(tmp_path / "out")
    with pytest.raises(ps.TargetExistsError, match="overwrite=True"):
        ds.write(tmp_path / "out", engine="ray")
    ds.map(lambda row: row["y"] + 1).write(tmp_path / "out", engine="ray", overwrite=True)
    assert next(iter(ps.from_files(tmp_path / "out"))) == 1


FLOWS = {
    "filter": lambda ds: ds.filter(is_third),
    "shuffle": lambda ds: ds.filter(is_third).shuffle(),
    "cache in memory": lambda ds: ds.filter(is_third).cache(),
    "filter of a cache": lambda ds: ds.filter(is_third).cache("c").filter(is_third),
    "on_error": lambda ds: ds.map(lambda row: row).with_options(on_error="skip"),
    "generator": lambda _: ps.from_generator(lambda: iter([1]), spec=ps.ArraySpec((), "int64")),
}


@pytest.mark.parametrize("name", FLOWS)
def test_a_flow_is_refused_when_it_is_called_and_told_of_cache(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ds = FLOWS[name](ps.from_arrays(table()))
    with pytest.raises(ValueError, match=r"random access.*read forward[\s\S]*ds\.cache\(folder\)"):
        ds.write("out", engine="ray")
    assert names_in(tmp_path) == []


def test_arrays_too_large_to_travel_are_refused_with_the_cure(tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, "MAX_SENT_NBYTES", 10_000)
    with pytest.raises(ValueError, match=r"are 56 KB, more than 10 KB: put them in files first"):
        ps.from_arrays(table()).write(tmp_path / "out", engine="ray")
    large = np.zeros(5000)
    with pytest.raises(ValueError, match=r"more than 10 KB"):
        ps.from_arrays(np.arange(3)).map(lambda one: large[one]).write(
            tmp_path / "out", engine="ray"
        )
    from_folder(tmp_path).write(tmp_path / "out", engine="ray")  # Files do not travel.


def test_what_can_not_travel_is_named(tmp_path):
    lock = threading.Lock()

    def function(number):
        with lock:
            return number

    ds = ps.from_arrays(np.arange(3)).map(function)
    with pytest.raises(
        ps.PenstockError, match=r"this dataset cannot be sent.*lock.*without engine"
    ):
        ds.write(tmp_path / "out", engine="ray")
    assert names_in(tmp_path) == []


def test_an_unknown_engine_and_a_missing_ray_are_errors(tmp_path, monkeypatch):
    ds = ps.from_arrays(np.arange(3))
    with pytest.raises(ValueError, match='engine must be "local" or "ray", got \'spark\''):
        ds.write(tmp_path / "out", engine="spark")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(
        ImportError, match=r"engine=\"ray\" needs ray: pip install 'penstock\[ray\]'"
    ):
        ds.write(tmp_path / "out", engine="ray")
    assert names_in(tmp_path) == []
