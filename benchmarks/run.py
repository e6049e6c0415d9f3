"""Run the workloads and print the tables.

python benchmarks/run.py [w1 w11 ...] [--rounds N] [--json FILE] [--directory DIR] [--list]

The exit status is 1 if a contender failed, else 0: a bar that is not met is a result, not an error.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import peers

HERE = Path(__file__).resolve().parent
SPECIAL = {
    "order": "order_cost",
    "gather": "order_cost",
    "map": "user_map",
    "stall": "user_map",
    "checks": "checksums",
    "layers": "layers",
    "report": "report_cost",
    "watch": "report_cost",
}


def main() -> int:
    arguments = _parsed()
    # Before pip is started, which must not outlive this either.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if "PENSTOCK_BENCH_INSIDE" not in os.environ:
        # Held until the process that takes over below ends.
        os.set_inheritable(peers.lock(), True)  # noqa: FBT003  # it takes no keyword
        problem = peers.ensure()
        if problem is not None:
            print(f"penstock itself is not there: {problem}", file=sys.stderr)
        inside = os.environ | {"PENSTOCK_BENCH_INSIDE": "1"}
        command = [str(peers.python()), str(HERE / "run.py"), *sys.argv[1:]]
        # In place of this process, so that a signal reaches the one that has data to delete.
        os.execve(command[0], command, inside)
    return _run(arguments)


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="penstock against its peers, in the same run")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="w1, w3a, order, ...; all if none")
    parser.add_argument("--rounds", type=int, help="how often each contender runs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every sample there")
    parser.add_argument(
        "--directory", type=Path, help="where the data is made: a real disk with 20 GB free"
    )
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    return parser.parse_args()


def _run(arguments: argparse.Namespace) -> int:
    # Only possible inside the benchmark environment, which has NumPy.
    import harness
    import table

    chosen = _chosen(arguments.cases)
    if arguments.list:
        for _, case in chosen:
            print(f"{case.name:12} {case.title}")
        return 0
    _warn_if_busy()
    reports, broken = [], False
    made: tuple[object, Path] | None = None
    try:
        for module, case in chosen:
            # Cases that follow each other and are prepared alike share what was prepared.
            if made is None or case.prepare is None or made[0] is not case.prepare:
                if made is not None:
                    shutil.rmtree(made[1])
                made = (
                    case.prepare,
                    Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=arguments.directory)),
                )
                failure = harness.prepare(case, module, made[1])
                if failure is not None:
                    print(f"{case.name}: {case.title}\n  cannot be prepared: {failure}\n")
                    broken = True
                    shutil.rmtree(made[1])
                    made = None
                    continue
            outcomes = harness.run_case(case, module, made[1], rounds=arguments.rounds)
            print(table.as_text(case, outcomes), end="\n\n", flush=True)
            reports.append(table.as_json(case, outcomes))
            broken = broken or any(
                outcomes[contender.name].failed and not contender.may_fail
                for contender in case.contenders
            )
    finally:
        if made is not None:
            shutil.rmtree(made[1], ignore_errors=True)
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({"machine": _machine(), "cases": reports}, indent=1))
    return int(broken)


def _chosen(names: list[str]) -> list[tuple[str, object]]:
    # A workload may have several files.
    modules = sorted(path.stem for path in HERE.glob("w[0-9][0-9]_*.py"))
    available = [
        (module, case)
        for module in dict.fromkeys([*modules, *SPECIAL.values()])
        for case in importlib.import_module(module).CASES
    ]
    if not names:
        return available
    unknown = [name for name in names if not any(_covers(name, case.name) for _, case in available)]
    if unknown:
        known = " ".join(dict.fromkeys([*(f"w{int(one[1:3])}" for one in modules), *SPECIAL]))
        sys.exit(f"no case is called {unknown[0]!r}; there are {known}, and what --list shows")
    return [pair for pair in available if any(_covers(name, pair[1].name) for name in names)]


def _covers(name: str, case_name: str) -> bool:
    # w1 covers w1 and w1-files, not w11.
    return re.fullmatch(rf"{re.escape(name)}([^0-9].*)?", case_name) is not None


def _warn_if_busy() -> None:
    load = os.getloadavg()[0]
    if load > 0.3 * (os.cpu_count() or 1):
        print(
            f"load average {load:.2f}: other work is running, take these figures as provisional",
            file=sys.stderr,
        )


def _machine() -> dict:
    from importlib import metadata

    versions = {}
    for name in ("penstock", "numpy", "tensorflow-cpu", "torch", "jax", "grain", "keras"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return {
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
        "python": sys.version.split()[0],
        "versions": versions,
    }


if __name__ == "__main__":
    sys.exit(main())
