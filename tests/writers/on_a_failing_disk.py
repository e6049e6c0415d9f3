"""Run by tests with `failing_disk.cpp` before the system: what is written while the n-th call fails, for every n.

python on_a_failing_disk.py FOLDER HOW:CODE:STAYS:STEP ...: prints a line of JSON for each call that was let fail.
"""

import ctypes
import errno
import gc
import json
import os
import shutil
import sys
import threading
import warnings
from pathlib import Path

import numpy as np

import penstock as ps
import penstock.shards.sequence
import penstock.stages.cache.filling
import penstock.stages.shuffle.scatter

NUM_ROWS = 11
SHARD_NBYTES = 200
"""Small, so that there are several shards."""
X = np.arange(NUM_ROWS * 3, dtype="f4").reshape(NUM_ROWS, 3)
TEXT = [f"row {number}" * (number % 3) for number in range(NUM_ROWS)]
KILL = -1


def rows(start=0):
    return ps.from_arrays({"x": X + start, "t": TEXT}).with_options(threads=0, processes=0)


def flow(start=0):
    return rows(start).filter(lambda row: True)


def as_text(found):
    return sorted(repr(jsonable(one)) for one in found)


def jsonable(row):
    if isinstance(row, dict):
        return {name: jsonable(row[name]) for name in sorted(row)}
    if isinstance(row, bytes):
        return row.decode()
    return row.tolist() if hasattr(row, "tolist") else row


def write_npy(out, start):
    rows(start).write(out, shard_rows=5)
    return list(ps.from_files(out))


def write_flow(out, start):
    flow(start).write(out, shard_rows=5)
    return list(ps.from_files(out))


def overwrite_npy(out, start):
    rows(start).write(out, shard_rows=5, overwrite=True)
    return list(ps.from_files(out))


def write_tfrecord(out, start):
    rows(start).write(out, format="tfrecord", shard_rows=5)
    return list(read_records(out))


def overwrite_tfrecord(out, start):
    rows(start).write(out, format="tfrecord", shard_rows=5, overwrite=True)
    return list(read_records(out))


def write_parquet(out, start):
    rows(start).write(out, format="parquet", shard_rows=5)
    return list(ps.from_files(out).with_options(threads=0))


def overwrite_parquet(out, start):
    rows(start).write(out, format="parquet", shard_rows=5, overwrite=True)
    return list(ps.from_files(out).with_options(threads=0))


def write_zarr(out, start):
    rows(start).write(out, format="zarr", shard_rows=5)
    return list(ps.from_files(out).with_options(threads=0))


def overwrite_zarr(out, start):
    rows(start).write(out, format="zarr", shard_rows=5, overwrite=True)
    return list(ps.from_files(out).with_options(threads=0))


def read_records(out):
    spec = {"x": ps.FixedFeature([3], "float32"), "t": ps.FixedFeature([], "str")}
    return ps.from_tfrecord(out, spec).with_options(threads=0)


def overwrite_other_format(out, start):
    """Put records where shards were."""
    rows(start).write(out, format="tfrecord", shard_rows=5, overwrite=True)
    return list(read_records(out))


def cache_rows(out, start):
    return list(rows(start).cache(str(out)))


def cache_rows_threaded(out, start):
    return list(rows(start).cache(str(out)).with_options(threads=2))


def cache_flow(out, start):
    return list(flow(start).cache(str(out)))


def cache_flow_shuffled(out, start):
    return list(flow(start).cache(str(out)).shuffle(seed=0))


def scratch(out, start):
    np.save(out.parent.parent / f"x{start}.npy", X + start)
    ds = ps.from_files(out.parent.parent / f"x{start}.npy").shuffle(seed=0, exact=True, window=16)
    found = list(ds.with_options(scratch=str(out.parent), threads=0, processes=0))
    return [{"x": row, "t": TEXT[0]} for row in found]


def index(out, start):
    records = out.parent.parent / f"records{start}"
    if not records.exists():
        rows(start).write(records, format="tfrecord")
    return list(read_records(records).shuffle(seed=0))


def nothing(out):
    pass


def old_shards(out):
    rows(1000).write(out)


def old_records(out):
    rows(1000).write(out, format="tfrecord")


def old_parquet(out):
    rows(1000).write(out, format="parquet")


def old_zarr(out):
    rows(1000).write(out, format="zarr")


HOW = {
    "write npy": (write_npy, nothing),
    "write flow": (write_flow, nothing),
    "overwrite npy": (overwrite_npy, old_shards),
    "write tfrecord": (write_tfrecord, nothing),
    "overwrite tfrecord": (overwrite_tfrecord, old_records),
    "npy over tfrecord": (overwrite_npy, old_records),
    "tfrecord over npy": (overwrite_other_format, old_shards),
    "write parquet": (write_parquet, nothing),
    "overwrite parquet": (overwrite_parquet, old_parquet),
    "write zarr": (write_zarr, nothing),
    "overwrite zarr": (overwrite_zarr, old_zarr),
    "zarr over npy": (overwrite_zarr, old_shards),
    "parquet over zarr": (overwrite_parquet, old_zarr),
    "cache rows": (cache_rows, nothing),
    "cache rows threaded": (cache_rows_threaded, nothing),
    "cache flow": (cache_flow, nothing),
    "cache flow shuffled": (cache_flow_shuffled, nothing),
    "scratch": (scratch, nothing),
    "index": (index, nothing),
}


def descriptors():
    return sorted(os.listdir("/proc/self/fd"))


def num_threads():
    """Return how many threads there are, without those that Zarr keeps: they grow in number as they are needed."""
    return sum(not one.name.startswith(("zarr_", "asyncio_")) for one in threading.enumerate())


def main(parent, how, code, stays, step):
    disk = ctypes.CDLL(None)
    penstock.shards.sequence.SHARD_NBYTES = SHARD_NBYTES
    penstock.stages.cache.filling._SHARD_NBYTES = SHARD_NBYTES
    penstock.stages.shuffle.scatter._BUCKET_NBYTES = 96
    penstock.stages.shuffle.scatter._CHUNK_NBYTES = 36
    work, before = HOW[how]
    folder = Path(parent) / "disk"
    os.environ["XDG_CACHE_HOME"] = str(folder / "home")
    expected = {start: as_text(work(fresh(folder, nothing), start)) for start in (0, 500)}
    fresh(folder, before)
    disk.arm(str(folder).encode(), 0, 0, 0)
    work(folder / "out", 0)
    total = disk.count_of_calls()
    disk.arm(b"", 0, 0, 0)
    assert total > 3, total
    for at in range(1, total + 1, step):
        again = (0, 500)[at // step % 2]  # The same chain comes next, or another.
        out = fresh(folder, before)
        gc.collect()
        held, threads = descriptors(), num_threads()
        disk.arm(str(folder).encode(), at, code, stays)
        error = attempt(work, out, 0, expected) if code != KILL else killed(work, out)
        disk.arm(b"", 0, 0, 0)
        gc.collect()
        line = {"at": at, "again": again, "first": error}
        if descriptors() != held or num_threads() != threads:
            line["leak"] = [descriptors(), held, num_threads() - threads]
        if before is not nothing and not out.exists():
            line["lost"] = "what was there before is gone"
        if how.startswith("write ") and out.exists():
            if error and code != KILL:
                line["lost"] = "it failed, and is there all the same"
            shutil.rmtree(out)
        if how.startswith("cache") and again and out.exists():
            shutil.rmtree(out)  # Whether a cache of something else may go is the user's to say.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ps.PenstockWarning)
            line["second"] = attempt(work, out, again, expected)
        line["left"] = left_in(folder) + (left_in(out) if out.exists() else [])
        if (folder / "precious.txt").read_text() != "mine":
            line["lost"] = "precious.txt is gone"
        print(json.dumps(line), flush=True)


def left_in(folder):
    """Return what is hidden there, and would be in the way.

    A journal beside a manifest is in nobody's way; what this process was writing is removed once it has ended.
    """
    names = {path.name for path in folder.iterdir() if path.name.startswith(".")}
    names -= {".unfinished.jsonl"} if (folder / "manifest.json").exists() else set()
    return sorted(name for name in names if not name.endswith(".penstock-tmp"))


def fresh(folder, before):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "precious.txt").write_text("mine")
    before(folder / "out")
    return folder / "out"


def attempt(work, out, start, expected):
    """Return what is wrong with a try; '' if nothing is."""
    try:
        found = as_text(work(out, start))
    except ps.WriteError as error:
        if str(out.parent) not in error.file or not error.cure:
            return f"no file or no cure: {error!r}"
        return f"{type(error).__name__}: {error}"
    except Exception as error:  # noqa: BLE001  # Whatever it is, it is reported.
        return f"not ours: {type(error).__name__}: {error}"
    return "" if found == expected[start] else f"other rows: {found[:3]}"


def killed(work, out):
    pid = os.fork()
    if not pid:
        try:
            work(out, 0)
        finally:
            os._exit(0)
    return "" if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0 else "WriteError: killed"


if __name__ == "__main__":
    for _job in sys.argv[2:]:
        _how, _code, _stays, _step = _job.split(":")
        _number = KILL if _code == "KILL" else getattr(errno, _code)
        print(json.dumps({"job": _job}), flush=True)
        main(sys.argv[1], _how, _number, _stays == "stays", int(_step))
