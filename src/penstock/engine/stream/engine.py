"""The threads, buffers and processes of one stream, and how they are let go of."""

import _thread
import copy
import sys
import threading
from collections.abc import Iterator
from functools import partial
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

from penstock.core.clock import Clock
from penstock.core.ctrl_c import keep_interrupting
from penstock.core.executors import Executor, Inline
from penstock.core.fingerprint import walk
from penstock.core.lazy import lazy
from penstock.core.padding import Padding
from penstock.core.parcels import Cursor, Parcel
from penstock.core.read_count import ReadCount
from penstock.core.resources import Resources
from penstock.core.rows import Context
from penstock.core.tally import Tally
from penstock.engine.functions.hand_over import HandOver, trailing_maps
from penstock.engine.functions.placement import Decision, decide
from penstock.engine.functions.task import FunctionNode
from penstock.engine.functions.trays import function_nodes, shared_nbytes
from penstock.engine.plan import Plan, refusal
from penstock.engine.plan.plan import num_trays
from penstock.engine.plan.remote_files import open_traffic
from penstock.engine.stream.stuck import Stuck, find_stuck
from penstock.engine.stream.threads import Threads
from penstock.engine.stream.tuning import Tuner
from penstock.errors import BudgetError, warn_user
from penstock.memory import Account, Pool, format_nbytes, process_ledger
from penstock.stages.base.segment import Segment, as_flow
from penstock.stages.map import MappedRows

if TYPE_CHECKING:
    from penstock.engine.functions import remote
    from penstock.io.remote import traffic
    from penstock.reports import figures
else:
    figures = lazy("penstock.reports.figures")
    remote = lazy("penstock.engine.functions.remote")  # Most pipelines never start a process.

SHORT_SECONDS = 100e-6
"""Functions at the end of a chain that take no longer, all together, are called at the hand-over."""
GRACE_SECONDS = 1.0
"""How long `close` waits for threads that are in the middle of a user's function, or of a read."""
MADE_HERE = 1 << 20
"""Bytes of the first blocks of rows in memory that the consumer makes itself; a short epoch then starts no thread."""
_PATIENCE = 5
"""How many times as long for threads that are in none, but on their way to their end."""


class Engine:
    """The threads and buffers of a stream.

    It must not refer to the stream: else a stream that nobody refers to would never be collected and closed.
    """

    def __init__(self, plan: Plan) -> None:
        """Open nothing yet: the stream must have the engine before, to close what was opened if `open` fails."""
        self._plan = plan
        self.clock = Clock()
        self.skipped = Tally(plan.max_errors)
        self.padding = Padding()
        self.resources = Resources()
        self.decisions: list[figures.Decided] = []
        self.placements: dict[int, str] = {}
        """Why functions run where they do, by the id of their nodes."""
        self.read_count = ReadCount()
        self.threads: Threads | None = None
        self.tuner: Tuner | None = None
        self.source: Iterator[Parcel] = iter(())
        self.parcels: Iterator[Parcel] = iter(())
        self.hand_over: HandOver | None = None
        self.asked_at: float | None = None
        """Since when the consumer waits for the next parcel; None if it does not."""
        self.traffic: traffic.Traffic | None = None
        """What counts the reads of remote files; None if there are none."""
        self.remotes: dict[int, remote.RemoteMap] = {}
        """What runs functions in worker processes, by the id of their nodes."""
        self._accounts: list[Account] = []
        """Those of worker processes: noted before they are opened, so that Ctrl-C leaves none open."""
        self._lock = threading.Lock()
        self._is_closed = False
        self.account = Account(process_ledger, plan.node.describe())
        self.pool = Pool(self.account)

    def open(self, epoch: int, cursor: Cursor, *, by_element: bool) -> None:
        """Take the memory, start the threads, and fill the caches."""
        keep_interrupting()
        plan = self._plan
        self.account.open(
            budget=plan.budget,
            need=plan.need,
            want=plan.total,
            why=self._why(plan),
            advise=partial(refusal.advice, plan),
        )
        if plan.is_threaded:
            self.threads = Threads(
                plan.ahead, self.account, plan.block_nbytes, self.clock, self.read_count
            )
            self.threads.resize(plan.threads)
            if plan.is_tuned:
                self.tuner = Tuner(self.threads, plan.threads)
        found = open_traffic(plan)
        if found is not None:
            self.traffic = self.resources.get("traffic", lambda: found)
        self.parcels = self._start(plan, epoch, cursor, by_element=by_element)

    def _start(
        self, plan: Plan, epoch: int, cursor: Cursor, *, by_element: bool
    ) -> Iterator[Parcel]:
        executor: Executor = self.threads or Inline()
        flow = plan.flow
        if by_element and (maps := self._short_maps(plan)):
            self.hand_over = HandOver(maps, epoch, self.clock)
            flow = as_flow(self.hand_over.rows)
            if self.threads is not None and self.tuner is not None:
                # The consumer calls the functions itself, and threads disturb it: one, more only if it waits.
                self.threads.resize(1)
                self.threads.ahead = 2
        context = Context(
            epoch,
            self.pool.lease,
            executor,
            self.clock,
            self.resources,
            plan.block_nbytes,
            plan.ahead,
            plan.budget,
            plan.scratch,
            self._place(plan),
            self.skipped,
            self.pool.hold,
            padding=self.padding,
        )
        for node in walk(plan.node):
            for error in node.skipped_files:
                # A copy: an error that is raised gets a note and a traceback, not meant for the next stream.
                self.skipped.add(copy.copy(error))
        if self.threads is not None and isinstance(flow, Segment):
            is_quick = flow.rows.is_in_memory and not flow.rows.calls_functions
            self.threads.made_here = MADE_HERE if is_quick else 0
        self.source = refusal.Guarded(plan, flow, cursor, context, self.account)
        # Blocks of a segment are made ahead by the threads themselves; anything else needs a
        # thread that asks for the next parcel while the consumer is busy.
        if self.threads is None or isinstance(flow, Segment):
            return self.source
        return self.threads.pumped(self.source, of=plan.node)

    def _short_maps(self, plan: Plan) -> list[MappedRows]:
        """Return the last maps of a chain if they are short enough to be called at the hand-over."""
        if plan.processes:
            return []
        left = SHORT_SECONDS
        found: list[MappedRows] = []
        for node in reversed(trailing_maps(plan.node)):
            if plan.is_threaded:
                decision = decide(node, plan.processes)
                if decision.num_processes or decision.seconds is None:
                    break
                left -= decision.seconds
                if left < 0:
                    break
                self._decided(node, f"{decision.stage} at the hand-over", decision.reason)
            found.insert(0, node)
        return found

    def _why(self, plan: Plan) -> str:
        """Return what the smallest budget is for."""
        why = "its smallest blocks"
        if plan.processes and (nodes := function_nodes(plan.node)):
            nbytes = sum(shared_nbytes(node, 1, 1) for node in nodes)
            names = ", ".join(node.stage.describe() for node in nodes)
            why += f", and {format_nbytes(nbytes)} that the workers of {names} share"
        heavy = [text for node in walk(plan.node) if (text := node.heaviest())]
        return "; ".join([why, *heavy])

    def _place(self, plan: Plan) -> "dict[int, remote.RemoteMap]":
        """Decide where the user's functions run, and start the worker processes for them."""
        handed = {id(node) for node in self.hand_over.maps} if self.hand_over else set()
        # What is granted above the least is shared out in the proportion it was wanted in.
        wanted = max(1, plan.total - plan.need + plan.cached)
        share = min(1.0, max(0, self.account.grant - plan.need + plan.cached) / wanted)
        for node in function_nodes(plan.node):
            if id(node) in handed or not (plan.is_threaded or plan.processes):
                continue  # It runs on the consumer's thread: nothing to decide.
            decision = decide(node, plan.processes)
            if decision.num_processes:
                try:
                    make = partial(self._remote, plan, node, decision.num_processes, share)
                    self.remotes[id(node)] = self.resources.get(("workers", id(node)), make)
                except BudgetError as error:
                    if plan.processes is not None:
                        raise
                    decision = Decision(decision.stage, 0, f"no room for processes: {error}")
            self._decided(node, decision.what, decision.reason)
        return self.remotes

    def _decided(self, node: FunctionNode, what: str, why: str) -> None:
        self.decisions.append(figures.Decided(what, why))
        self.placements[id(node)] = f"{what}: {why}"

    def _remote(
        self, plan: Plan, node: FunctionNode, processes: int, share: float
    ) -> "remote.RemoteMap":
        """Start the processes of a function, and give them their part of the memory."""
        account = Account(process_ledger, f"the workers of {node.stage.describe()}")
        self._accounts.append(account)
        count = plan.trays or num_trays(processes, None if plan.is_tuned else plan.threads)
        want = shared_nbytes(node, plan.block_nbytes, count)
        if plan.processes:  # The plan, and so the stream's own account, has room for them.
            least = shared_nbytes(node, 1, 1)
            process_ledger.divide(self.account, account, least + int(share * (want - least)))
        else:
            why = "blocks on their way to workers"
            account.open(budget=plan.budget, need=want, want=want, why=why)
        return remote.RemoteMap(
            node,
            processes,
            count=count,
            block_nbytes=plan.block_nbytes,
            account=account,
            budget=plan.budget,
            retries=plan.retries,
        )

    def begin(self) -> None:
        """Have threads make the first blocks, if they read them from storage; nobody waits for them."""
        flow = self._plan.flow
        if self.threads is not None and isinstance(flow, Segment) and not flow.rows.is_in_memory:
            self.threads.begins = True
            self.take()

    def take(self) -> Parcel | None:
        """Return the next parcel, or None at the end."""
        if self._plan.node.is_in_memory:  # Nothing is read, and to look after that would cost.
            return next(self.parcels, None)
        with self.read_count.counting():
            return next(self.parcels, None)

    def next_parcel(self) -> tuple[Parcel | None, float, float]:
        """Return the next parcel, the seconds it was waited for, and when that ended."""
        self.asked_at = started = perf_counter()
        parcel = self.take()
        now = perf_counter()
        if self.tuner is not None and parcel is not None:
            self.tuner.handed_out(parcel.block.nbytes, now - started)
        return parcel, now - started, now

    def asking_seconds(self) -> float:
        """Return for how long the consumer has been waiting for a parcel; 0 if it is not."""
        asked_at = self.asked_at
        return 0.0 if asked_at is None else perf_counter() - asked_at

    def num_ready(self, waiting: dict[int, int]) -> int:
        """Return how many of the blocks that wait are the next ones of the consumer."""
        last = self._plan.node if self.hand_over is None else self.hand_over.rows
        return waiting.get(id(last), 0)

    @property
    def peak_nbytes(self) -> int:
        """The most bytes that were mapped: by the stream, and for its worker processes."""
        return self.account.peak + sum(one.account.peak for one in self.remotes.values())

    def all_decisions(self) -> "tuple[figures.Decided, ...]":
        """Return what was decided before the first block, and while it ran."""
        cache = None if self.traffic is None else self.traffic.cache
        failed = [] if cache is None or not cache.failure else [cache.failure]
        kept = [figures.Decided("remote_cache keeps no more blocks", failure) for failure in failed]
        tuned = self.tuner.decisions if self.tuner is not None else ()
        return (*self.decisions, *tuned, *kept)

    def abandon(self) -> None:
        """Close, when the stream was collected instead of closed.

        The garbage collector runs this in any thread, maybe one of ours, and under any lock, maybe
        that of the ledger: only another thread can wait for ours to end without a deadlock.
        """
        if self.threads is None or not any(map(len, self.threads.crews)):
            self.close()
            return
        done = threading.Lock()
        done.acquire()
        # Our threads may need the lock that this one holds, and won't get it before this returns.
        is_locked = process_ledger.lock._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
        # Nobody waits for them then, so that a busy machine may take its time.
        grace = 10 * GRACE_SECONDS if is_locked else GRACE_SECONDS

        def close() -> None:
            try:
                self.close(grace)
            finally:
                done.release()

        try:
            # Not threading.Thread: starting one takes locks that this thread may hold.
            _thread.start_new_thread(close, ())
        except RuntimeError:  # The interpreter is about to end.
            self.close()
            return
        # Else it would wait for this very thread.
        if not any(crew.is_own for crew in self.threads.crews):
            done.acquire(timeout=1.5 * GRACE_SECONDS)

    def stop(self) -> None:
        """Let whoever waits for the next parcel wake up, and threads stop at the next row; nothing is freed."""
        if self.threads is not None:
            self.threads.stop()

    def close(self, grace: float | None = None) -> None:
        """End the threads and processes, and give the memory back; what Ctrl-C interrupts is done at the next try."""
        try:
            with self._lock:
                if self._is_closed:
                    return
                self._is_closed = True
            stuck = self._close(GRACE_SECONDS if grace is None else grace)
        except BaseException:
            # Ctrl-C while it waited: what is left is closed when the stream is collected.
            self._is_closed = False
            raise
        if stuck:
            warn_user(Stuck.warning(stuck, GRACE_SECONDS))  # At the very end: it may raise.

    def _close(self, grace: float) -> list[Stuck]:
        self.stop()
        # Ctrl-C is for the processes, too: they do not see it themselves.
        is_interrupted = isinstance(sys.exception(), KeyboardInterrupt)
        for one in self.remotes.values():
            # First: threads wait for what runs in the processes, and that may never end.
            one.stop(is_interrupted=is_interrupted)
        stuck = self._join(grace)
        if stuck and not any(one.is_elsewhere for one in find_stuck(stuck)):
            stuck = self._join(_PATIENCE * grace)
        if not stuck:
            self._let_go()
            return []
        assert self.threads is not None
        self.threads.drop()
        found = find_stuck(stuck)
        # What a thread reads from must not be closed under it; in the middle of a function it reads nothing.
        if all(one.is_in_function for one in found):
            self.resources.close()
        # Memory that it may write to stays as long as its frames refer to it, and is nobody else's meanwhile.
        self.pool.close()
        for crew in self.threads.crews:
            crew.when_all_ended(self._end_late)
        return found

    def _join(self, seconds: float) -> list[threading.Thread]:
        """Wait for all threads; return those that have not ended after so many seconds."""
        until = monotonic() + seconds
        crews = [] if self.threads is None else self.threads.crews
        return [thread for crew in crews for thread in crew.join(until)]

    def _let_go(self) -> None:
        close = getattr(self.source, "close", None)
        if close is not None:
            close()
        if self.threads is not None:
            self.threads.drop()
        self.resources.close()
        for account in self._accounts:
            account.close()
        self.pool.close()

    def _end_late(self) -> None:
        """Let go of the rest: on the last of the threads that were abandoned, when it ends after all."""
        assert self.threads is not None
        if all(crew.is_ended for crew in self.threads.crews):
            self._let_go()
