"""What one shard, one task and one line of a manifest cost here, and what 100 TB on 100 nodes would cost by that.

    python benchmarks/cluster_costs.py                # 1 GB of disk, about a minute; needs 'penstock[ray]'
    python benchmarks/cluster_costs.py --directory DIR --megabytes 1024

docs/cluster.md has the figures, and says what they mean.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import penstock as ps
from penstock.engine.plan import Options
from penstock.shards.checks import run_rows_of
from penstock.shards.folder import ShardFolder, head_of
from penstock.shards.layout import layouts_of
from penstock.shards.manifest import row_to_json
from penstock.shards.writing import FileRecord, ShardRecord
from penstock.writers import on_ray
from penstock.writers.job import Job
from penstock.writers.npy import NpyShard
from penstock.writers.shard_tasks import Sent

WIDTH = 100  # float32: rows of 400 bytes.
TOTAL_NBYTES = 100e12
NODES, CORES, SHARDS = 100, 16, 6400
CASES = {
    "as it is": lambda ds: ds,
    "map": lambda ds: ds.map(lambda row: row * 2),
    "shuffle": lambda ds: ds.shuffle(seed=0),
}


@dataclass(frozen=True)
class Nothing:
    """A task that does nothing."""

    start: int
    stop: int

    def perform(self, sent, folder):
        return None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--directory", default=None)
    parser.add_argument("--megabytes", type=int, default=512)
    parser.add_argument("--shard", nargs=2, metavar=("CASE", "FILE"), help=argparse.SUPPRESS)
    found = parser.parse_args()
    if found.shard:
        print(json.dumps(one_shard(*found.shard)))
        return
    with tempfile.TemporaryDirectory(dir=found.directory) as folder:
        path = Path(folder) / "x.npy"
        make(path, found.megabytes << 20)
        shards = {case: in_a_process(case, path) for case in CASES}
        path.unlink()
        task = seconds_a_task(Path(folder))
        adopt, seal, size = seconds_a_line(Path(folder))
    for case, one in shards.items():
        nbytes = one["nbytes"]
        print(f"{case}:")
        print(
            f"  {nbytes / one['cpu'] / 1e9:.2f} GB/s a core, {nbytes / one['wall'] / 1e9:.2f} by the clock"
        )
        print(f"  {one['calls'] / one['read'] * 1e9:.0f} reads a GB")
        print(f"  {(one['read'] - nbytes) / 1e6:.0f} MB read besides the rows of the shard")
        print(f"  {one['peak'] / 1e6:.0f} MB of memory over those of the interpreter")
    print(f"a task of Ray: {task * 1e3:.2f} ms")
    print(
        f"a shard taken over: {adopt * 1e3:.2f} ms; in the manifest {seal * 1e6:.0f} us, {size:.0f} bytes"
    )
    print(f"100 TB on {NODES} nodes of {CORES} cores, {SHARDS} shards:")
    for case, one in shards.items():
        minutes = TOTAL_NBYTES / (one["nbytes"] / one["cpu"]) / (NODES * CORES) / 60
        read = TOTAL_NBYTES + SHARDS * (one["read"] - one["nbytes"])
        calls = read * one["calls"] / one["read"]
        print(
            f"  {case}: {minutes:.1f} minutes of CPU a core, {read / 1e12:.1f} TB in {calls / 1e6:.0f} million "
            f"reads, {CORES * one['peak'] / 1e9:.1f} GB of memory a node"
        )
    print(f"  the calling process: {SHARDS * (task + adopt + seal):.0f} s in all")


def make(path, nbytes):
    rows = nbytes // (4 * WIDTH)
    out = np.lib.format.open_memmap(path, "w+", "float32", (rows, WIDTH))
    random = np.random.default_rng(0)
    for start in range(0, rows, 1 << 15):
        out[start : start + (1 << 15)] = random.random((min(1 << 15, rows - start), WIDTH))
    out.flush()
    os.sync()


def in_a_process(case, path):
    command = [sys.executable, __file__, "--shard", case, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def one_shard(case, path):
    """Write the middle half of the rows as one shard, as a task does; return what it took."""
    ds = CASES[case](ps.from_files(path))
    node = ds.node
    layouts = layouts_of(["x"], [field.spec for field in node.fields])
    quarter = node.num_rows // 4
    shard = NpyShard(0, quarter, 3 * quarter, layouts, run_rows_of(node.fields))
    with tempfile.TemporaryDirectory(dir=Path(path).parent) as folder:
        before, cpu, wall = io(), time.process_time(), time.perf_counter()
        base = memory("VmRSS")
        record = shard.perform(Sent(node, Options(threads=1, processes=0)), Path(folder))
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        after = io()
    return {
        "nbytes": record.num_rows * 4 * WIDTH,
        "cpu": cpu,
        "wall": wall,
        "read": after["rchar"] - before["rchar"],
        "calls": after["syscr"] - before["syscr"],
        "peak": memory("VmHWM") - base,
    }


def memory(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


def io():
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def seconds_a_task(folder):
    """What this process and Ray take for a task that does nothing, with one worker."""
    job = Job(ps.from_arrays(np.arange(3)).node, Options(), folder / "out")
    with on_ray.tasks(job, folder) as tasks:
        list(tasks.run(Nothing(0, 0) for _ in range(20)))
        best = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            list(tasks.run(Nothing(0, 0) for _ in range(200)))
            best = min(best, (time.perf_counter() - started) / 200)
    return best


def seconds_a_line(folder, count=200):
    """Seconds to take over a shard, and to list it in the manifest; the bytes of its entry there."""
    node = ps.from_arrays({"x": np.zeros(3), "y": np.zeros(3)}).node
    layouts = layouts_of(["x", "y"], [field.spec for field in node.fields])
    made = {"inputs": []}
    head = head_of(made, row_to_json(node.structure, layouts), layouts)
    target, place = folder / "folder", folder / "files"
    place.mkdir()
    opened = ShardFolder.open(target, layouts, lambda: head, lambda *_: "", run_rows=1)
    records = []
    for number in range(count):
        names = [name for layout in layouts for name in layout.file_names(number)]
        for name in names:
            (place / name).touch()
        records.append(ShardRecord(1, {name: FileRecord(0, 0) for name in names}, 1, 1))
    started = time.perf_counter()
    for number, record in zip(itertools.count(), records, strict=False):
        opened.adopt(number, record, place, number)
    adopted = time.perf_counter()
    opened.seal()
    sealed = time.perf_counter()
    nbytes = (target / "manifest.json").stat().st_size
    opened.close()
    return (adopted - started) / count, (sealed - adopted) / count, nbytes / count


if __name__ == "__main__":
    main()
