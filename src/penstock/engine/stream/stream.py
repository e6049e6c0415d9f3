"""The stream: one epoch of a dataset, batch after batch, with a state that can be saved."""

import gc
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from penstock._native import ElementIterator
from penstock.core import forking
from penstock.core.blocks import Block
from penstock.core.closing import Closing
from penstock.core.fingerprint import fingerprint, walk
from penstock.core.nest import joiner
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Node, Rows
from penstock.core.state import State, StateDict
from penstock.engine.plan import Options, Plan, make_plan
from penstock.engine.stream.agreeing import agreement_of
from penstock.engine.stream.engine import GRACE_SECONDS, Engine
from penstock.engine.stream.meter import Meter
from penstock.engine.stream.showing import unwatch, watch
from penstock.engine.stream.stuck import Stuck, stuck_at
from penstock.errors import StateError, StreamClosedError, warn_user
from penstock.memory import format_nbytes
from penstock.ranks.agreement import Agreement

if TYPE_CHECKING:
    from penstock.reports.report import Report

Out = TypeVar("Out")
_warned: weakref.WeakSet[Node] = weakref.WeakSet()
"""The nodes whose cautions were told."""


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a stream is: the current parcel, and where that begins. Replaced as a whole: any thread may look."""

    first: int
    """Elements of the epoch before the parcel."""
    start: Cursor
    parcel: Parcel | None = None


class _InTurn(Iterator[Any]):
    """Elements that Python code makes, by one thread at a time; no reference to the stream, which would be a cycle."""

    def __init__(self, turn: Any, elements: Iterator[Any]) -> None:
        self._turn = turn
        self._elements = elements

    def __next__(self) -> Any:
        with self._turn:
            return next(self._elements)


class Stream(ElementIterator, Closing):
    """One epoch, as an iterator. Close it, use it in `with`, or just let go of it.

    `next` returns the next batch (or row, without `batch`); it is the caller's to keep.

    Several threads may take batches of it: each batch goes to one of them.
    """

    def __init__(
        self,
        plan: Plan,
        *,
        epoch: int = 0,
        state: StateDict | None = None,
        by_element: bool = False,
    ) -> None:
        """Open it; `by_element`: it will be iterated over, not taken a block at a time."""
        self._plan = plan
        self._fingerprint = fingerprint(plan.node)
        begin = State(self._fingerprint, epoch)
        if state is not None:
            begin = State.from_dict(state)
            begin.check(self._fingerprint)
            begin.check_place(plan.node)
            if epoch not in (0, begin.epoch):
                raise StateError(
                    f"epoch={epoch} contradicts the state, which is in epoch {begin.epoch}."
                )
        self._resumed = begin.element
        """Elements of this epoch before this stream."""
        self._count = begin.element
        """Elements of this epoch that were handed out."""
        self._epoch = begin.epoch
        self._place = _Place(begin.element, begin.cursor)
        self._next: Parcel | None = None
        self._error: Exception | None = None
        """The error that `state()` met when it looked for the next parcel: `next()` will raise it."""
        self._elements: Iterator[Any] = iter(())
        self._join = joiner(plan.node.structure)
        self._is_opening = True
        self._is_ended = False
        self._is_closed = False
        self._turn = threading.RLock()
        """Held while the next parcel is taken: nothing is freed meanwhile by another thread that closes the stream."""
        self._reader = 0
        """The thread whose turn it is, or was last."""
        self._has_warned = False
        self._is_inherited = False
        self._agreement: Agreement | None = None
        self._engine = Engine(plan)
        self._meter = Meter(plan, self._engine, begin.epoch, begin.element)
        _streams.add(self)
        self._finalizer = weakref.finalize(self, self._engine.abandon)
        try:
            if plan.is_watched:
                watch(self, plan)
            for node in walk(plan.node):
                node.raise_known()
            self._agreement = agreement_of(plan.node, begin)
            self._engine.open(begin.epoch, begin.cursor, by_element=by_element)
            self._warn()
            self._is_opening = False
        except BaseException as error:
            self._meter.fails(error)
            self.close()  # A cache is filled here, by the user's functions, which may fail.
            raise

    # `__next__` is that of ElementIterator, which has no lock, and no need of one: an iterator in C gives each element
    # to one thread. These two are what it calls.

    def _go_on(self, elements: Iterator[Any]) -> None:
        """Go on to the parcel after that of `elements`, or raise StopIteration."""
        try:
            self._in_turn(self._advance, elements)
        except BaseException as error:
            self._fails(error)
            raise

    def _fails(self, error: BaseException) -> None:
        """Keep the error that ends the stream, and close it."""
        self._meter.fails(error)
        self.close()

    def begin(self) -> None:
        """Begin to read ahead before the first batch is asked for, where rows are read from storage."""
        self._in_turn(self._engine.begin)

    @property
    def is_closed(self) -> bool:
        """Whether it was closed, or is another process's."""
        return self._is_closed

    def _advance(self, elements: Iterator[Any]) -> None:
        """Go on to the parcel after that of `elements`, or raise StopIteration; by the thread whose turn it is."""
        if self._elements is not elements:
            return  # Another thread went on to it.
        parcel = self._next_in_turn()
        if parcel is None:
            raise StopIteration
        self._meter.takes(parcel)
        self._place = _Place(self._place.first, self._place.start, parcel)
        hand_over = self._engine.hand_over
        if hand_over is None:
            elements, is_plain = parcel.block.elements(parcel.size, self._join)
            self._elements = elements if is_plain else _InTurn(self._turn, elements)
        else:
            first = int(parcel.cursor_after(0))
            self._elements = _InTurn(
                self._turn, hand_over.elements(parcel.block, parcel.size, first)
            )

    def _take_parcel(self) -> Parcel | None:
        try:
            return self._in_turn(self._next_in_turn)
        except BaseException as error:
            self._meter.fails(error)
            raise

    def _in_turn(self, function: Callable[..., Out], *arguments: Any) -> Out:
        """Call a function while no other thread takes a parcel or frees anything.

        What another thread closes meanwhile is freed here, at the end.
        """
        with self._turn:
            self._reader = threading.get_ident()
            try:
                return function(*arguments)
            finally:
                if self._is_closed:
                    self._end()

    def _next_in_turn(self) -> Parcel | None:
        self._refuse_if_closed()
        if self._agreement is not None:
            self._agreement.look()
        parcel = self._next_parcel()
        self._refuse_if_closed()  # Another thread may have closed it: then this is no end.
        return parcel

    def leave_to_parent(self) -> None:
        """In a forked child: be closed, and touch nothing, since threads, files and buffers are the parent's."""
        self._turn = threading.RLock()  # A thread that is not here may have had it.
        if self._meter.seconds is not None:
            return
        forking.keep_for_ever(self._engine)
        forking.keep_for_ever(self._elements)
        self._finalizer.detach()
        self._is_closed = self._is_inherited = True
        self._stop_here()

    def _refuse_if_closed(self) -> None:
        if self._is_inherited:
            raise StreamClosedError(
                "this stream belongs to the process that opened it, and this is a fork of that process: "
                "open another one here, with ds.stream()."
            )
        if self._is_closed and not self._is_ended:
            raise StreamClosedError("the stream is closed; open another one with ds.stream().")

    def _next_parcel(self) -> Parcel | None:
        place = self._place
        if place.parcel is not None:
            leases = place.parcel.block.leases
            self._elements = iter(())
            self._meter.used(place.parcel, place.parcel.size)
            self._place = _after(place)
            del place
            self._engine.pool.write_off(leases)
            self._mind_held()
        parcel, self._next = self._next, None
        if parcel is not None or self._is_ended:
            return parcel
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None
        parcel = self._ask()
        self._is_ended = parcel is None and not self._is_closed
        return parcel

    def _ask(self) -> Parcel | None:
        """Take the next parcel from the engine; count how long that was waited for, whatever comes of it."""
        engine, meter = self._engine, self._meter
        try:
            parcel, waited, now = engine.next_parcel()
        except BaseException:
            meter.waited += engine.asking_seconds()
            engine.asked_at = None
            raise
        meter.waited += waited
        engine.asked_at = None
        if now >= meter.due:
            meter.look(now, self._count)
        return parcel

    def _warn(self) -> None:
        """Warn of what a user must know; once for each node, however many streams it gets."""
        for node in walk(self._plan.node):
            cautions = () if node in _warned else node.cautions()
            if cautions:
                _warned.add(node)
            for caution in cautions:
                warn_user(caution)

    def _mind_held(self) -> None:
        """Collect batches that only the garbage collector frees; warn once if the consumer keeps too many."""
        account = self._engine.account
        if account.held > 2 * self._plan.block_nbytes:
            gc.collect(0)  # JAX frees the memory of a batch late, and some only in a collection.
        if account.held > self._plan.budget and not self._has_warned:
            self._has_warned = True
            warn_user(
                f"{format_nbytes(account.held)} of batches are still referred to after the loop went "
                f"past them, more than the memory budget of {format_nbytes(self._plan.budget)}. "
                "Keep results instead of batches, or copy what you need of them."
            )

    def parcels(self) -> Iterator[Parcel]:
        """Yield what is left of the stream a parcel at a time, each with the cursors of its rows."""
        assert self._engine.hand_over is None, "a stream by_element has no parcels"
        while (parcel := self._take_parcel()) is not None:
            self._meter.takes(parcel)
            leases = parcel.block.leases
            self._count += parcel.size
            self._place = _Place(self._count, parcel.cursor_after(parcel.size))
            self._meter.used(parcel, parcel.size)
            yield parcel
            del parcel  # Else this name keeps it alive, as if the consumer held it.
            self._engine.pool.write_off(leases)
        self.close()

    def blocks(self) -> Iterator[tuple[Block, int]]:
        """Yield what is left of the stream a block at a time: the block, and how many elements."""
        return ((parcel.block, parcel.size) for parcel in self.parcels())

    @property
    def position(self) -> State:
        """Where the consumer stands."""
        is_at_end = self._is_at_end()
        place, element = self._place, self._count
        cursor = place.start
        if place.parcel is not None:
            # Another thread may be about to count what it took of the parcel before, or of the one after.
            element = max(place.first, min(element, place.first + place.parcel.size))
            cursor = place.parcel.cursor_after(element - place.first)
        state = State(self._fingerprint, self._epoch, element, cursor)
        return state.at_end if is_at_end else state

    def state(self) -> StateDict:
        """Return where the consumer stands, as a small dict that JSON can hold."""
        return self.position.to_dict()

    def _is_at_end(self) -> bool:
        node = self._plan.node
        if isinstance(node, Rows):
            return self._is_last(self._count)
        place = self._place
        if place.parcel is not None and self._count < place.first + place.parcel.size:
            return False
        self._in_turn(self._look_ahead)
        return self._next is None and self._is_ended

    def _look_ahead(self) -> None:
        """Ask for the next parcel: only so is known whether there are more rows."""
        if self._next is not None or self._is_ended or self._is_closed or self._error:
            return
        try:
            self._next = self._ask()
        except Exception as error:  # noqa: BLE001  # It belongs to the next batch, not to the state.
            self._error = error
        else:
            self._is_ended = self._next is None

    def report(self) -> "Report":
        """Return what the stream has done so far.

        >>> import numpy as np, penstock as ps
        >>> with ps.from_arrays(np.arange(100)).batch(8).stream() as stream:
        ...     batch = next(stream)
        ...     stream.report().num_rows
        8
        """
        place, count = self._place, self._count
        used = 0 if place.parcel is None else max(0, min(count - place.first, place.parcel.size))
        is_ended = self._is_ended or self._is_last(count)
        return self._meter.report(count, place.parcel, used, is_ended=is_ended)

    @property
    def is_asking(self) -> bool:
        """Whether the consumer waits at this moment: for a block, or for the stream to open."""
        return self._engine.asked_at is not None or self._is_opening

    def _is_last(self, count: int) -> bool:
        """Whether nothing comes after `count` elements, as far as that is known without reading on."""
        node = self._plan.node
        return isinstance(node, Rows) and count >= node.num_rows

    def close(self) -> None:
        """End its threads and free its buffers; batches that were handed out stay valid.

        A `next()` that another thread is in raises StreamClosedError. A function or a read that does not return is
        waited for no longer than a second: a warning names it, its thread ends when it returns, and what it may write
        to until then is used for nothing else.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._engine.stop()
        # The garbage collector may run this in the middle of a `next()` of this very thread.
        is_inside = self._turn._is_owned()  # type: ignore[attr-defined]  # noqa: SLF001
        if is_inside:
            return
        # A thread that was waiting in `next()` may close the engine itself now, which takes that long.
        if self._turn.acquire(timeout=1.5 * GRACE_SECONDS):
            try:
                self._end()
            finally:
                self._turn.release()
        else:
            warn_user(Stuck.warning([stuck_at(self._reader)], GRACE_SECONDS))

    def _end(self) -> None:
        """Let go of everything; by the thread whose turn it is."""
        if self._meter.seconds is not None:
            return
        self._stop_here()
        self._engine.close()
        self._finalizer.detach()
        if self._plan.is_watched:
            unwatch(self)

    def _stop_here(self) -> None:
        parcel = self._place.parcel
        if parcel is not None:
            used = min(parcel.size, self._count - self._place.first)
            self._meter.used(parcel, used)
            self._place = _Place(self._place.first + used, parcel.cursor_after(used))
        del parcel
        self._next = None
        self._elements = iter(())
        self._meter.end()

    def __repr__(self) -> str:
        num_rows = self._plan.node.num_rows
        of = "" if num_rows is None or self._plan.node.is_endless else f" of {num_rows}"
        what = "batch" if self._plan.node.is_batched else "row"
        ended = ", closed" if self._is_closed else ""
        where = f"epoch {self._epoch}, after {what} {self._count}{of}{ended}"
        return f"<Stream of {self._plan.node.describe()}: {where}>"


_streams: "weakref.WeakSet[Stream]" = weakref.WeakSet()


def _leave_to_parent() -> None:
    for stream in list(_streams):
        stream.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


def _after(place: _Place) -> _Place:
    parcel = place.parcel
    assert parcel is not None
    return _Place(place.first + parcel.size, parcel.cursor_after(parcel.size))


def open_stream(
    node: Node,
    options: Options,
    *,
    epoch: int = 0,
    state: StateDict | None = None,
    by_element: bool = False,
) -> Stream:
    """Return one epoch of a chain, planned for this machine; `by_element`: to be iterated over."""
    return Stream(make_plan(node, options), epoch=epoch, state=state, by_element=by_element)
