"""What is counted while a stream runs, by whoever takes blocks of it, and the report that is made of it."""

import math
from time import perf_counter, time
from typing import TYPE_CHECKING

from penstock.core import forking
from penstock.core.blocks import rows_in_batches
from penstock.core.fingerprint import walk
from penstock.core.lazy import lazy
from penstock.core.parcels import Parcel
from penstock.core.rows import Node
from penstock.core.system import usable_cores
from penstock.engine.functions.task import FunctionNode
from penstock.engine.plan import Plan
from penstock.engine.plan.explain import places
from penstock.engine.plan.plan import chosen_nbytes
from penstock.engine.stream.engine import Engine
from penstock.engine.stream.timeline import Timeline
from penstock.errors import StreamClosedError
from penstock.sources.generator import GeneratorFlow

if TYPE_CHECKING:
    from penstock.reports import figures, report
else:
    # `import penstock` does not wait for them.
    figures = lazy("penstock.reports.figures")
    report = lazy("penstock.reports.report")

_COSTS = 200
"""After a sample, so many times as long passes as it took: it takes longer for a chain of thousands of stages."""


class Meter:
    """The counts of one stream. It must not refer to the stream, as the engine must not."""

    def __init__(self, plan: Plan, engine: Engine, epoch: int, resumed: int) -> None:
        self._plan = plan
        self._engine = engine
        self._epoch = epoch
        self._resumed = resumed
        self._nodes = list(walk(plan.node))
        self._keys = [id(node) for node in self._nodes]
        # One that stands in two places of the chain is counted as a whole in the first.
        self._is_counted = [key not in self._keys[:at] for at, key in enumerate(self._keys)]
        self._timeline = Timeline()
        self._lock = forking.lock()
        self._is_batched = plan.node.is_batched
        self.opened = perf_counter()
        self._opened_at = time()
        self.seconds: float | None = None
        """How long it was open; None while it is."""
        self._num_rows = 0
        """Rows of the blocks that were used up."""
        self._nbytes = 0
        self._num_blocks = 0
        self.waited = 0.0
        """How long the consumer waited for blocks."""
        self._waited_at_end = 0.0
        """The same, with the functions that it waited for, when the stream was closed."""
        self.due = self.opened + self._timeline.interval
        """When the next sample should be taken."""
        self._cost = math.inf
        """What it takes to take a sample."""
        self._last = (0, 0)
        """What the ledger had, and the consumer held, when the stream was closed."""
        self._error = ""

    def takes(self, parcel: Parcel) -> None:
        """Count a block that is about to be handed out."""
        self._nbytes += parcel.block.nbytes
        self._num_blocks += 1

    def used(self, parcel: Parcel, size: int) -> None:
        """Count the rows of a block of which the first `size` elements were used."""
        self._num_rows += self._rows(parcel, size)

    def _rows(self, parcel: Parcel, size: int) -> int:
        return rows_in_batches(parcel.block, size) if self._is_batched else size

    def _rows_so_far(self, parcel: Parcel | None, used: int) -> int:
        """Return the rows that the consumer has, with the first `used` elements of the parcel that it is in."""
        hand_over = self._engine.hand_over
        if hand_over is not None and self._is_batched:
            return hand_over.num_rows  # Its functions may return batches of other lengths.
        return self._num_rows + (0 if parcel is None else self._rows(parcel, used))

    def look(self, now: float, count: int) -> None:
        """Take a sample, which is due, `now` that `count` elements were handed out."""
        timeline = self._timeline
        with self._lock:
            num_rows = self._rows_so_far(None, 0)
            timeline.add(self._sample(now - self.opened, count - self._resumed, num_rows))
        # The least that one took: on a busy machine, something else may run in the middle of any.
        self._cost = min(self._cost, perf_counter() - now)
        self.due = now + max(timeline.interval, _COSTS * self._cost)

    def fails(self, error: BaseException) -> None:
        """Keep the error that ends the stream."""
        is_end = isinstance(error, StopIteration | StreamClosedError) or self.seconds is not None
        if not is_end and not self._error:
            first, *_ = str(error).splitlines() or [""]
            self._error = f"{type(error).__name__}: {first}".removesuffix(": ")

    def end(self) -> None:
        """Stop the time, before anything is given back."""
        self._waited_at_end = self._all_waited()
        self.seconds = perf_counter() - self.opened
        self._last = (self._ledger_nbytes(), self._engine.account.held)

    def _ledger_nbytes(self) -> int:
        engine = self._engine
        shared = sum([one.account.mapped for one in engine.remotes.values()])
        return engine.account.mapped + shared

    def _all_waited(self) -> float:
        if self.seconds is not None:
            return self._waited_at_end
        hand_over = self._engine.hand_over
        waited = self.waited + (0.0 if hand_over is None else hand_over.seconds)
        return waited + self._engine.asking_seconds()  # Of a wait that is not over.

    def _sample(self, seconds: float, num_elements: int, num_rows: int) -> "figures.Sample":
        engine = self._engine
        if engine.hand_over is not None:
            engine.hand_over.report()
        threads = engine.threads
        is_open = self.seconds is None and threads is not None
        waiting = threads.waiting() if is_open and threads is not None else {}
        queues = tuple([waiting.get(key) for key in self._keys])
        ledger, held = self._last
        if self.seconds is None:
            ledger, held = self._ledger_nbytes(), engine.account.held
        return figures.Sample(
            seconds=seconds,
            num_elements=num_elements,
            num_rows=num_rows,
            nbytes=self._nbytes,
            read_nbytes=self._read_nbytes(),
            waited_seconds=self._all_waited(),
            ledger_nbytes=ledger,
            held_nbytes=held,
            queue=engine.num_ready(waiting),
            threads=0 if threads is None else threads.count,
            stage_seconds=tuple(
                seconds if is_counted else 0.0
                for seconds, is_counted in zip(
                    engine.clock.seconds_of(self._keys), self._is_counted, strict=True
                )
            ),
            queues=queues,
        )

    def _read_nbytes(self) -> int:
        traffic = self._engine.traffic
        remote = 0 if traffic is None else traffic.net_nbytes + traffic.cache_nbytes
        return self._engine.read_count.nbytes + remote

    def report(
        self, count: int, parcel: Parcel | None, used: int, *, is_ended: bool
    ) -> "report.Report":
        """Return the report, with `count` elements so far, of which the first `used` of `parcel` are the last."""
        plan, engine = self._plan, self._engine
        seconds = self.seconds
        if seconds is None:
            seconds = perf_counter() - self.opened
        num_rows = self._rows_so_far(parcel, used)
        num_elements = count - self._resumed
        with self._lock:
            last = self._sample(seconds, num_elements, num_rows)
            timeline = self._timeline.until(last)
        spans, names = self._spans()
        state = "open" if self.seconds is None else "ended" if is_ended else "closed"
        share = plan.node.share
        expected = plan.node.num_rows
        traffic = engine.traffic
        return report.Report(
            epoch=self._epoch,
            num_elements=num_elements,
            nbytes=self._nbytes,
            seconds=seconds,
            waited_seconds=last.waited_seconds,
            stages=self._stages([one.queues for one in timeline]),
            threads=plan.threads,
            num_blocks=self._num_blocks,
            peak_nbytes=engine.peak_nbytes,
            held_nbytes=engine.account.held_peak,
            budget_nbytes=plan.budget,
            decisions=engine.all_decisions(),
            num_skipped=engine.skipped.count,
            skipped=tuple(engine.skipped.first),
            padding=tuple(
                figures.StagePadding(node.describe(), values, room - values)
                for node in self._nodes
                for values, room in [engine.padding.of(node)]
                if room
            ),
            net_nbytes=0 if traffic is None else traffic.net_nbytes,
            cache_nbytes=0 if traffic is None else traffic.cache_nbytes,
            num_rows=num_rows,
            is_batched=self._is_batched,
            num_expected=None
            if expected is None or plan.node.is_endless
            else expected - self._resumed,
            read_nbytes=last.read_nbytes,
            timeline=timeline,
            spans=spans,
            thread_names=names,
            shuffles=tuple(
                figures.StageShuffle(node.describe(), node.choice(), node.how_mixed())
                for node in self._nodes
                if node.order_key() is not None
            ),
            skipped_files=tuple(
                figures.SkippedFile(file, rows)
                for file, rows in sorted(engine.skipped.files.items(), key=lambda one: -one[1])
            ),
            full_nbytes=_full_nbytes(plan),
            cores=usable_cores(),
            opened_at=self._opened_at,
            state="failed" if self._error else state,
            error=self._error,
            rank=0 if share is None else share.rank,
            world=1 if share is None else share.world,
        )

    def _stages(self, queues: list[tuple[int | None, ...]]) -> "tuple[figures.StageTime, ...]":
        clock, engine = self._engine.clock, self._engine
        stages = []
        for number, place in enumerate(places(self._plan.node)):
            node = place.node
            found = [one[number] for one in queues]
            known = [one for one in found if one is not None]
            remote = engine.remotes.get(id(node))
            stages.append(
                figures.StageTime(
                    node.describe(),
                    clock.seconds(node) if self._is_counted[number] else 0.0,
                    clock.num_rows(node) if self._is_counted[number] else 0,
                    is_function=isinstance(node, FunctionNode),
                    kind=_kind(node),
                    is_batched=node.is_batched,
                    num_processes=0 if remote is None else remote.num_processes,
                    placement=engine.placements.get(id(node), ""),
                    depth=place.depth,
                    inputs=place.inputs,
                    queue=sum(known) / len(known) if known else None,
                )
            )
        return tuple(stages)

    def _spans(self) -> "tuple[tuple[figures.Span, ...], tuple[str, ...]]":
        clock = self._engine.clock
        numbers = {key: self._keys.index(key) for key in self._keys}
        work = sorted(clock.last.copy(), key=lambda one: one[2])
        threads: dict[int, int] = {}
        for thread, *_ in work:
            threads.setdefault(thread, len(threads))
        spans = tuple(
            figures.Span(numbers.get(key, -1), threads[thread], started - self.opened, seconds)
            for thread, key, started, seconds in work
        )
        names = clock.names
        return spans, tuple(names.get(thread, f"thread {thread}") for thread in threads)


def _kind(node: Node) -> str:
    """Return what a node is, as far as advice differs."""
    if isinstance(node, FunctionNode):
        return "function"
    if node.order_key() is not None:
        return "shuffle" if node.inputs[0].grains else ""
    if node.inputs:
        return ""
    if isinstance(node, GeneratorFlow):
        return "generator"
    if any(getattr(one, "is_remote", False) for one in node.locations):
        return "remote"
    return "files" if node.locations or node.grains else "memory"


def _full_nbytes(plan: Plan) -> int:
    """Return the budget with which the plan would be as large as it is without one; 0 if it is."""
    first = plan.choices[0]
    is_full = (first.ahead, first.block_nbytes) == (plan.ahead, plan.block_nbytes)
    if is_full:
        return 0
    kept = plan.cached + sum(plan.node.kept_nbytes().values())
    return chosen_nbytes(plan.node, plan.flow, first) + kept
