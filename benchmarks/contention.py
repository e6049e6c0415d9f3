"""How much of the machine other work took while a contender ran.

Best of several is fair only on a quiet machine: on a busy one a contender whose rounds are short
finds a quiet moment, and one whose rounds are long does not.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

# Above this many cores a verdict is marked: the daemons of an idle machine stay well below it.
TOLERATED_CORES = 0.1

_TICKS = os.sysconf("SC_CLK_TCK")


class Contention:
    """Counts from its creation; all processes of a contender are in process group `group`."""

    def __init__(self, group: int) -> None:
        self._group = group
        self._began = time.perf_counter()
        self._machine = _machine_seconds()
        self._own = _group_seconds(group)

    def cores(self) -> float:
        """Return how many cores everything else kept busy on average."""
        took = time.perf_counter() - self._began
        machine = _machine_seconds() - self._machine
        own = _group_seconds(self._group) - self._own
        return max(0.0, (machine - own) / took)


def _machine_seconds() -> float:
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
    return (user + nice + system + irq + softirq + steal) / _TICKS


def _group_seconds(group: int) -> float:
    ticks = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name, in brackets, may hold spaces.
            fields = path.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[2]) == group:
            # Its own time, and that of its children which have ended.
            ticks += sum(map(int, fields[11:15]))
    return ticks / _TICKS
