"""Run by test_memory.py in a memory cgroup: stream a file shuffled, and print what it took."""

import json
import re
import sys
from pathlib import Path

import penstock as ps


def main() -> None:
    path, memory = sys.argv[1:]
    ds = ps.from_files(path).shuffle(seed=1).batch(256).with_options(memory=memory)
    total = num_rows = 0
    with ds.stream() as stream:
        for batch in stream:
            numbers = batch["y"] if isinstance(batch, dict) else batch[:, 0]
            total += int(numbers.sum(dtype="i8"))
            num_rows += len(numbers)
        report = stream.report()
    # Not ru_maxrss: it begins with that of the process that started this one.
    peak = int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024
    print(
        json.dumps(
            {
                "rows": num_rows,
                "sum": total,
                "ledger": report.peak_nbytes,
                "process": peak,
                "seconds": report.seconds,
                "windowed": "window" in str(ds.explain()),
            }
        )
    )


if __name__ == "__main__":
    main()
