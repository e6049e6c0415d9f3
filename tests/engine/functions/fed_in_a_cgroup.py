"""Run by test_remote.py in a memory cgroup: images through worker processes; prints what it took."""

import json
import sys
from pathlib import Path

import numpy as np

import penstock as ps


def brighten(x):
    return x + np.float32(1)


def main() -> None:
    cgroup, where = Path(sys.argv[1]), sys.argv[2]
    images = ps.from_arrays(np.arange(640)).map(
        lambda i: np.full((224, 224, 3), i, np.float32), spec=ps.ArraySpec((224, 224, 3), "float32")
    )
    ds = images.map(brighten).batch(32) if where == "before" else images.batch(32).map(brighten)
    total = 0
    with ds.with_options(memory="200MB", processes=2).stream() as stream:
        for batch in stream:
            total += int(batch[:, 0, 0, 0].sum())
        report = stream.report()
    peak = int((cgroup / "memory.max_usage_in_bytes").read_text())
    print(json.dumps({"sum": total, "cgroup": peak, "ledger": report.peak_nbytes}))


if __name__ == "__main__":
    main()
