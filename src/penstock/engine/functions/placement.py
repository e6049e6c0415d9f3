"""Where a function runs: in worker processes if it holds the interpreter lock, by measurement."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from penstock.core.lazy import lazy
from penstock.core.system import usable_cores
from penstock.engine.functions.task import FunctionNode, task_of
from penstock.stages.base.functions import array_memory
from penstock.stages.map import example_row

if TYPE_CHECKING:
    from penstock import workers
else:
    workers = lazy("penstock.workers")  # Most pipelines never start a process.

_MOST_PICKLE = 16 << 20  # A larger function takes longer to send than it saves.
_WORTH_SECONDS = 0.5  # Starting processes takes about this long, all in all.
_WORTH_CALL = 20e-6  # A shorter function costs less than sending its rows does.


@dataclass(frozen=True, slots=True)
class Decision:
    """Where a function runs, and why."""

    stage: str
    num_processes: int
    """0 is on threads, or at the hand-over."""
    reason: str
    seconds: float | None = None
    """The seconds that a call takes, if that was measured."""

    @property
    def what(self) -> str:
        """Where it runs, in words."""
        where = f"{self.num_processes} processes" if self.num_processes else "threads"
        return f"{self.stage} on {where}"


def decide(node: FunctionNode, num_processes: int | None) -> Decision:
    """Return where the function of a node runs; measured once for each dataset."""
    call = node.stage.describe()
    if num_processes is not None:
        return Decision(call, num_processes, f"processes={num_processes} by with_options")
    if node.decision is None:
        node.decision = _measured(node, call)
    decision: Decision = node.decision
    return decision


def _measured(node: FunctionNode, call: str) -> Decision:
    reason = workers.unavailable_reason()
    if reason is not None:
        return Decision(call, 0, reason)
    cores = usable_cores()
    if cores < 2:
        return Decision(call, 0, "there is one core only")
    leaves, _, _ = example_row(node.inputs[0])
    function = partial(node.stage.call_once, node.input.structure, tuple(leaves))
    try:
        seconds = min(_seconds(function) for _ in range(3))
        rows = node.input.num_rows
        if seconds < _WORTH_CALL:
            return Decision(call, 0, f"a call takes {seconds * 1e6:.0f} us only", seconds)
        if rows is not None and seconds * rows < _WORTH_SECONDS:
            return Decision(call, 0, f"all of it takes {seconds * rows:.2f} s only", seconds)
        measured = workers.holds_lock(function)
    except Exception as error:  # noqa: BLE001  # It will fail again, on its row, and say where.
        return Decision(call, 0, f"it could not be measured: {error!r}")
    if not measured.holds:
        return Decision(call, 0, measured.reason, seconds)
    try:
        nbytes = len(workers.pickle_function(task_of(node), name=call))
    except workers.CannotPickle as error:
        return Decision(call, 0, f"it can't be sent to another process: {error}")
    if nbytes > _MOST_PICKLE:
        return Decision(call, 0, f"it would take {nbytes >> 20} MB to send to another process")
    return Decision(call, cores, measured.reason)


def _seconds(function: Callable[[], Any]) -> float:
    with array_memory():
        started = perf_counter()
        function()
        return perf_counter() - started
