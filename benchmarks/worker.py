"""One contender in a process of its own.

Usage, by `harness.py` only: worker.py MODULE CASE CONTENDER DIRECTORY. It answers with one line of
JSON when it is ready, then with one for every line it reads, until its input ends.
"""

from __future__ import annotations

import os
import sys

if "PENSTOCK_BENCH_CGROUP" in os.environ:
    # Before anything is imported or allocated, so that all of it counts.
    import cgroup

    cgroup.join(os.environ["PENSTOCK_BENCH_CGROUP"])

import importlib
import json
import traceback
from pathlib import Path


def main(module: str, case_name: str, contender_name: str, directory: Path) -> None:
    answers = _take_over_stdout()

    def answer(content: dict) -> None:
        answers.write(json.dumps(content) + "\n")
        answers.flush()

    try:
        cases = importlib.import_module(module).CASES
        case = next(case for case in cases if case.name == case_name)
        if contender_name == "(prepare)":
            case.prepare(directory)
            answer({"ready": True})
            return
        contender = next(each for each in case.contenders if each.name == contender_name)
        one_round = contender.start(directory)
        answer({"ready": True})
        for _ in sys.stdin:
            sample = one_round()
            answer({"value": sample.value, "facts": dict(sample.facts)})
    except Exception as error:  # noqa: BLE001 (whatever a contender raises belongs in the table)
        lacks = _what_penstock_lacks(error)
        if contender_name.startswith("penstock") and lacks is not None:
            answer({"missing": lacks})
        else:
            traceback.print_exc()
            answer({"failed": _told(error)})


def _take_over_stdout():
    # Whatever a framework prints goes to stderr; answers have the pipe to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _what_penstock_lacks(error: Exception) -> str | None:
    """Return what is not there yet, or None if the error is a real one."""
    if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("penstock"):
        return f"{error.name} cannot be imported"
    if isinstance(error, AttributeError):
        owner = getattr(error.obj, "__name__", None) or type(error.obj).__module__
        if owner.startswith("penstock"):
            return str(error)
    if isinstance(error, NotImplementedError):
        return str(error) or "not implemented"
    return None


def _told(error: Exception) -> str:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    sys.stdout.flush()
    # Threads of a framework that ended badly must not keep the harness waiting.
    os._exit(0)
