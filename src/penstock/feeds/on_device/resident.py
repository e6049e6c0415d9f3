"""Data that stays on the device: copied there once, gathered and shuffled there in every epoch."""

import weakref
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter, time
from typing import Any, Self

import numpy as np

from penstock.core import forking
from penstock.core.arrays import Index
from penstock.core.closing import Closing
from penstock.core.nest import flatten
from penstock.core.rows import rows_per_block
from penstock.core.state import State
from penstock.engine.plan import Options, make_plan
from penstock.engine.stream import Stream
from penstock.engine.stream.showing import unwatch, watch
from penstock.errors import RangeError, StreamClosedError
from penstock.feeds.leafwise import Convert
from penstock.feeds.on_device.device import Device
from penstock.feeds.on_device.origin import Origin
from penstock.feeds.on_device.traffic import Traffic
from penstock.outlets import Outlets
from penstock.reports.report import Report
from penstock.stages.batch import Batch

INDEX_DTYPE = np.dtype("int32")
"""The dtype of row numbers: half the bytes of int64, which JAX does not have by default."""
_PIECE_NBYTES = 1 << 21  # What is copied at a time.
# Rows whose numbers are worked out at a time: far cheaper than batch by batch.
_AHEAD_ROWS = 1 << 14
_living: "weakref.WeakSet[Resident]" = weakref.WeakSet()


class Resident:
    """The rows of an origin as tables on a device; they are copied there when they are first asked for."""

    def __init__(
        self, origin: Origin, options: Options, put: Convert, device: Device, traffic: Traffic
    ) -> None:
        self.origin = origin
        self.traffic = traffic
        self._options = options
        self._put = put
        self._device = device
        self._lock = forking.lock()
        self._is_loaded = False
        self.is_loading = False
        """Whether rows are being copied to the device."""
        # What a row becomes on the device is found by sending one: casts and weights are part of it.
        leaves, self._structure = flatten(put(_zeros(origin)))
        self.nbytes = origin.rows.num_rows * sum(device.nbytes(leaf) for leaf in leaves)
        """Bytes that the tables take on the device."""
        self._tables = [device.allocate(0, leaf) for leaf in leaves]
        _living.add(self)

    def load(self) -> None:
        """Copy the rows to the device, a piece at a time, unless that was done before."""
        with self._lock:
            if not self._is_loaded:
                self.is_loading = True
                try:
                    self._load()
                finally:
                    self.is_loading = False
                self._is_loaded = True

    def _load(self) -> None:
        device, start = self._device, 0
        tables = [device.allocate(self.origin.rows.num_rows, table) for table in self._tables]
        with _pieces(self.origin, self._options) as stream:
            for piece in stream:
                try:
                    leaves = flatten(self._put(piece))[0]
                except RangeError as error:
                    raise RangeError(f"counted from row {start} on, {error}") from None
                self.traffic.to_device_nbytes += sum(map(device.nbytes, leaves))
                for number, leaf in enumerate(leaves):
                    tables[number] = device.write(tables[number], start, leaf)
                start += len(flatten(piece)[0][0])
        self._tables = tables

    def gather(self, rows: Any) -> Any:
        """Return a batch of these rows."""
        return self._structure.unflatten(self._device.gather(self._tables, rows))

    def promised_nbytes(self) -> int:
        """Return the bytes that it will take on the device, and has not taken yet."""
        return 0 if self._is_loaded else self.nbytes

    def close(self) -> None:
        """Give the memory of the device back."""
        with self._lock:
            self._tables = [self._device.allocate(0, table) for table in self._tables]
            self._is_loaded = False


def promised_nbytes(device: type[Device]) -> int:
    """Return the bytes that all feeds of this process are yet to take on devices of a kind."""
    return sum(each.promised_nbytes() for each in _living if type(each._device) is device)  # noqa: SLF001  # its own


def _zeros(origin: Origin) -> Any:
    """Return a batch of one row of zeros."""
    specs = [field.spec for field in origin.rows.fields]
    leaves = [np.zeros((1, *spec.fixed_shape), spec.numpy_dtype) for spec in specs]
    return origin.rows.structure.unflatten(leaves)


def _pieces(origin: Origin, options: Options) -> Stream:
    """Return the rows in pieces as large as the budget allows; of one length: each shape is compiled anew."""
    size = max(origin.batch_size, rows_per_block(origin.rows, _PIECE_NBYTES))
    size = max(1, min(size, origin.rows.num_rows))
    while True:
        plan = replace(make_plan(Batch(size).build(origin.rows), options), is_watched=False)
        if plan.need <= plan.budget or size == 1:
            return Stream(plan)
        size = -(-size // 2)


class ResidentStream(Closing):
    """One epoch of batches that are gathered on the device; used in place of a `Stream`."""

    def __init__(
        self, source: Outlets, data: Resident, begin: State, *, by_number: bool = False
    ) -> None:
        """Open it; with `by_number` it gives out row numbers, for a framework that gathers rows itself."""
        # This stream is never read from: only its report is needed, to be filled in by `report`.
        plan = make_plan(source.node, source.options)
        with Stream(replace(plan, is_watched=False)) as stream:
            self._report = stream.report()
        self._begin = begin
        self._data = data
        self._by_number = by_number
        self._next = begin.element
        self._total = source.node.num_rows or 0
        self._step = max(1, _AHEAD_ROWS // data.origin.batch_size)
        self._rows: Iterator[Index] = iter(())
        self._known = self._next
        """Batches up to this one have their row numbers in `_rows`."""
        self._num_rows = 0
        self._waited = 0.0
        self._asked_at: float | None = None
        self._opened = perf_counter()
        self._opened_at = time()
        self._seconds: float | None = None
        """How long it was open; None while it is."""
        self._is_closed = False
        self._is_watched = plan.is_watched
        if plan.is_watched:
            watch(self, plan)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next batch."""
        self._check_open()
        if self._next == self._known:
            self._rows = iter(np.split(*self._work_out()))
        rows = next(self._rows)
        self._next += 1
        self._num_rows += len(rows)
        self._data.traffic.index_nbytes += rows.nbytes
        return rows if self._by_number else self._data.gather(rows)

    def numbers(self) -> Iterator[Index]:
        """Yield the row numbers of many batches at a time."""
        while not self._is_closed and self._next != self._total:
            rows, _ = self._work_out()
            self._next = self._known
            self._num_rows += len(rows)
            self._data.traffic.index_nbytes += rows.nbytes
            yield rows

    def _work_out(self) -> tuple[Index, Index]:
        """Return the row numbers of the next batches, and where to cut them into batches."""
        if self._next == self._total:
            raise StopIteration
        self._asked_at = perf_counter()
        try:
            self._data.load()
        finally:
            self._waited, self._asked_at = self._all_waited(), None
        last = min(self._total, self._next + self._step)
        rows, lengths = self._data.origin.batches(self._next, last, self._begin.epoch)
        self._known = last
        return rows.astype(INDEX_DTYPE), np.cumsum(lengths[:-1])

    def _check_open(self) -> None:
        if self._is_closed and self._next != self._total:
            raise StreamClosedError("the stream is closed; iterate over the feed again.")

    @property
    def position(self) -> State:
        """Where the consumer stands."""
        if not self._total:
            return self._begin.at_end
        return self._begin.after(self._next - self._begin.element, self._total)

    def report(self) -> Report:
        """Return how many batches it has given out: nothing was read for them."""
        return replace(
            self._report,
            epoch=self._begin.epoch,
            num_elements=self._next - self._begin.element,
            num_expected=self._total - self._begin.element,
            num_rows=self._num_rows,
            seconds=perf_counter() - self._opened if self._seconds is None else self._seconds,
            threads=0,
            state=self._state(),
            opened_at=self._opened_at,
            timeline=(),
            waited_seconds=self._all_waited(),
        )

    def _all_waited(self) -> float:
        """Return how long the consumer waited for the data to be copied to the device."""
        asked_at = self._asked_at
        return self._waited + (0.0 if asked_at is None else perf_counter() - asked_at)

    def _state(self) -> str:
        if self._next == self._total:
            return "ended"
        return "closed" if self._is_closed else "open"

    @property
    def is_asking(self) -> bool:
        """Whether the consumer waits for rows that are copied to the device."""
        return self._data.is_loading

    def close(self) -> None:
        """End it; the data stays where it is."""
        if self._is_closed:
            return
        self._is_closed = True
        self._seconds = perf_counter() - self._opened
        if self._is_watched:
            unwatch(self)
