"""penstock demo: trains a model on data several times larger than the memory it is given."""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from penstock.memory import format_nbytes, parse_nbytes

NUM_FEATURES = 100
NUM_CLASSES = 10
_BLOCK_ROWS = 50_000
_CGROUPS = Path("/sys/fs/cgroup/memory")


def main(arguments: list[str] | None = None) -> int:
    """Write data, train on it within a memory limit, and print what that took."""
    parser = argparse.ArgumentParser(prog="penstock demo", description=__doc__)
    parser.add_argument("--data", default="1600MB", help="size of the data on disk (%(default)s)")
    parser.add_argument("--memory", default="192MB", help="memory budget (%(default)s)")
    parser.add_argument(
        "--limit",
        default="1200MB",
        help="limit of the whole process, framework and all (%(default)s)",
    )
    parser.add_argument("--folder", default=None, help="where to put the data (a temporary one)")
    chosen = parser.parse_args(arguments)
    memory, limit = parse_nbytes(chosen.memory), parse_nbytes(chosen.limit)
    num_rows = max(_BLOCK_ROWS, parse_nbytes(chosen.data) // (4 * NUM_FEATURES))
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", dir=chosen.folder) as folder:
        print(f"writing {num_rows:,} rows of {NUM_FEATURES} float32 ...", flush=True)
        nbytes = _write(Path(folder), num_rows)
        with _cgroup(limit) as group:
            where = f"in a memory cgroup of {format_nbytes(limit)}" if group else "with no cgroup"
            print(f"training one epoch {where} ...", flush=True)
            result = _train(Path(folder), memory, group)
            most = _read_number(group / "memory.max_usage_in_bytes") if group else None
    _print(result, nbytes=nbytes, memory=memory, most=most)
    return 0


def _write(folder: Path, num_rows: int) -> int:
    """Write rows and their classes; a class depends on its row, so that a model can learn it."""
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((NUM_FEATURES, NUM_CLASSES)).astype(np.float32)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_rows, NUM_FEATURES))
    y = np.empty(num_rows, np.int32)
    for start in range(0, num_rows, _BLOCK_ROWS):
        block = rng.standard_normal((min(_BLOCK_ROWS, num_rows - start), NUM_FEATURES), np.float32)
        x[start : start + len(block)] = block
        y[start : start + len(block)] = (block @ planes).argmax(axis=1)
    x.flush()
    np.save(folder / "y.npy", y)
    return int(x.nbytes + y.nbytes)


def _train(folder: Path, memory: int, group: Path | None) -> dict[str, Any]:
    environment = dict(os.environ)
    if group is not None:
        environment["PENSTOCK_DEMO_CGROUP"] = str(group)
    command = [sys.executable, "-m", "penstock.feeds.keras.demo", str(folder), str(memory)]
    result = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )
    if result.returncode:
        killed = " (out of memory: give it a larger --limit)" if result.returncode == -9 else ""
        raise SystemExit(f"the training process ended with status {result.returncode}{killed}.")
    found: dict[str, Any] = json.loads(result.stdout.splitlines()[-1])
    return found


@contextlib.contextmanager
def _cgroup(limit: int) -> Iterator[Path | None]:
    """Yield a memory cgroup (version 1) with this limit, or None where none can be made."""
    group = _CGROUPS / f"penstock-demo-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(limit))
    except OSError:
        with contextlib.suppress(OSError):
            group.rmdir()
        yield None
        return
    try:
        yield group
    finally:
        for _ in range(50):  # The kernel takes an ended process out of its cgroup a moment later.
            with contextlib.suppress(OSError):
                group.rmdir()
            if not group.exists():
                break
            time.sleep(0.05)


def _read_number(path: Path) -> int:
    return int(path.read_text())


def _print(result: dict[str, Any], *, nbytes: int, memory: int, most: int | None) -> None:
    seconds, rows = result["seconds"], result["num_rows"]
    share = 100 * result["waited_seconds"] / seconds
    lines = [
        ("data on disk", f"{format_nbytes(nbytes)}, {nbytes / memory:.1f} times the budget"),
        (
            "memory budget",
            f"{format_nbytes(memory)}; the library held {format_nbytes(result['peak_nbytes'])}",
        ),
        (
            "peak of the process",
            f"{format_nbytes(result['peak_rss'])}, {result['backend']} and Keras included",
        ),
        *([("peak of the cgroup", f"{format_nbytes(most)}, page cache included")] if most else []),
        ("speed", f"{rows / seconds:,.0f} samples/s ({rows:,} in {seconds:.1f} s)"),
        ("waited for data", f"{result['waited_seconds']:.2f} s ({share:.1f} %)"),
        ("accuracy", f"{100 * result['accuracy']:.1f} % on rows held out (a guess: 10 %)"),
    ]
    for name, value in lines:
        print(f"  {name:<20} {value}")
