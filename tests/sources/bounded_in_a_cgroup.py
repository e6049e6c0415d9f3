"""Run by test_memory.py in a memory cgroup: read each file, and print what came of it as a line of JSON."""

import itertools
import json
import re
import sys
from pathlib import Path

import penstock as ps


def outcome(path: str, memory: int, *, is_shuffled: bool) -> dict[str, str | int]:
    try:
        ds = ps.from_files(path)
        ds = (ds.shuffle(seed=1) if is_shuffled else ds).with_options(memory=memory)
        with ds.stream() as stream:
            return {"rows": sum(1 for _ in itertools.islice(stream, 300))}
    except ps.PenstockError as error:
        return {"error": type(error).__name__, "message": str(error)}


def main() -> None:
    for path in sys.argv[2:]:
        for is_shuffled in (False, True):
            found = outcome(path, int(sys.argv[1]), is_shuffled=is_shuffled)
            peak = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
            assert peak is not None
            found |= {"file": path, "shuffled": is_shuffled, "peak": int(peak[1]) * 1024}
            print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
