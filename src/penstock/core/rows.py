"""The two kinds of node that a chain compiles to.

`Rows` have random access: any row can be read by its number, and all that is exact (order, length,
resume) rests on that. A `Flow` can only be read forward, from a cursor. A stage makes a node from the node
before it: `Rows` where it can, else a `Flow`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from penstock._native import Job
from penstock.core.arrays import Index, spans
from penstock.core.blocks import Block
from penstock.core.clock import Clock
from penstock.core.evidence import Evidence
from penstock.core.executors import Executor, Inline
from penstock.core.fields import BlockLayout, Field, block_nbytes, row_nbytes
from penstock.core.grains import Grain
from penstock.core.nest import Structure, unflatten
from penstock.core.padding import Padding
from penstock.core.parcels import Cursor, Parcel
from penstock.core.residues import Residue
from penstock.core.resources import Resources
from penstock.core.route import Route
from penstock.core.share import Share
from penstock.core.sizes import Sizes
from penstock.core.tally import Tally
from penstock.memory import Allocate, Hold, allocate_plain, buffer_nbytes, hold_plain

RowSet = slice | Index
"""Row numbers: a slice without a step, which is cheap to read, or an array."""
Runs = Sequence[tuple[int, int]]
"""Runs of consecutive rows: the first row of each run, and how many rows it has."""
ENDLESS = 1 << 62
"""The number of rows of a node that never ends: larger than any row number, and still an int64."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a read needs besides row numbers: the epoch, memory, threads, a clock."""

    epoch: int
    allocate: Allocate
    executor: Executor
    clock: Clock
    resources: Resources
    block_nbytes: int = 1 << 21
    ahead: int = 0
    """How many blocks are made before they are asked for."""
    budget: int | None = None
    """The memory budget in bytes; None outside a stream, where nothing may be cached or retained."""
    scratch: str | None = None
    """The folder for scratch files; None for the system's temporary folder."""
    placement: Mapping[int, Any] = field(default_factory=dict)
    """For nodes whose function runs in worker processes: what runs it, by the id of the node."""
    skipped: Tally = field(default_factory=Tally)
    """Where nodes that skip bad rows add their errors."""
    hold: Hold = hold_plain
    """Counts memory that a library takes for itself; raises if the budget has no room for it."""
    sizes: Sizes = field(default_factory=Sizes)
    """Where the sizes of rows are noted that differ."""
    padding: Padding = field(default_factory=Padding)
    """Where stages that pad count how much of what they make is padding."""
    layouts: "dict[Node, BlockLayout]" = field(default_factory=dict)
    """How the last block of each node was laid out."""

    deferred: "list[Deferred] | None" = None
    """Where a read of rows that `Rows.defers` puts what is left to do, instead of doing it."""

    def of_epoch(self, epoch: int) -> "Context":
        """Return the same context for another epoch: that of one pass of a repeat."""
        return replace(self, epoch=epoch)

    def block(self, node: "Node", num_rows: int) -> Block:
        """Return an empty block for rows of `node`."""
        return self.layout(node, num_rows).block(self.allocate)

    def layout(self, node: "Node", num_rows: int) -> BlockLayout:
        """Return how a block of rows of `node` is laid out; most blocks of a stream are of one size."""
        last = self.layouts.get(node)
        if last is None or last.num_rows != num_rows:
            last = BlockLayout(node.fields, num_rows, aligned=node.is_batched)
            self.layouts[node] = last
        return last

    def rows_per_block(self, node: "Node") -> int:
        """Return how many rows of `node` a block of the planned size holds."""
        return rows_per_block(node, self.block_nbytes)


@dataclass(frozen=True, slots=True)
class Deferred:
    """A native job that reads rows to where they belong, and what to check once it is done."""

    job: Job
    check: Callable[[], None]


def plain_context(epoch: int = 0) -> Context:
    """Return a context outside any stream: for reading a single row when a chain is built."""
    return Context(epoch, allocate_plain, Inline(), Clock(), Resources(), block_nbytes=1)


class FileVersion(Protocol):
    """A file that rows come from, and what tells this version of it from another."""

    @property
    def name(self) -> str:
        """The last part of its path."""
        ...

    @property
    def size(self) -> int:
        """How many bytes it has; 0 for a folder that is read as one thing."""
        ...

    def identity(self) -> list[Any]:
        """Return its bytes, and what tells this version from others, as JSON; raise Unproven if nothing does."""
        ...


class Node(ABC):
    """What both kinds of node have: the fields of a row, the number of rows, and the input nodes."""

    fields: tuple[Field, ...]
    structure: Structure
    num_rows: int | None
    is_batched: bool = False
    """Whether a row of this node is a batch of rows."""
    calls_functions: bool = False
    """Whether reading a row calls a function of the user's, which may take any time."""
    is_in_memory: bool = False
    """Whether rows are made of arrays in memory alone: to make a few of them takes microseconds."""
    follows_epoch: bool = False
    """Whether the rows differ from one epoch to the next."""
    inputs: tuple["Node", ...] = ()
    num_shuffles: int = 0
    """How many shuffles stand before this node: the next shuffle takes its keys from this number, too."""
    locations: Sequence[FileVersion] = ()
    """The files that a source reads."""
    grains: tuple[Grain, ...] = ()
    """How the fields lie on storage that the rows are made of; none for rows in memory."""
    skipped_files: tuple[Exception, ...] = ()
    """The errors of bad files that were skipped when the chain was built; every report lists them."""

    share: Share | None = None
    """Which rows of each global batch these are, after `distribute`."""
    weighs_rows: bool = False
    """Whether each element is a pair of a batch and the weights of its rows."""
    declared: "Node | None" = None
    """The whole chain that was declared, if `inputs` are only this rank's part of it."""

    @property
    def is_endless(self) -> bool:
        """Whether there is no last row."""
        return self.num_rows == ENDLESS

    @property
    def is_varying(self) -> bool:
        """Whether rows differ in size."""
        return any(field.storage_shape is None for field in self.fields)

    @property
    def spec(self) -> Any:
        """The nest of `ArraySpec` of a row."""
        return unflatten(self.structure, [field.spec for field in self.fields])

    @property
    def row_nbytes(self) -> int:
        """The bytes of one row, estimated where rows differ."""
        return row_nbytes(self.fields)

    def bounded(self, num_rows: int) -> int:
        """Return `num_rows`, or the number of all rows if that is less and their sizes are known."""
        # Rows of unknown sizes are planned by bytes: a few of them may take all bytes of a block.
        is_known = all(field.storage_shape is not None or field.tops for field in self.fields)
        if self.num_rows is None or not (is_known or self.num_rows == 0):
            return num_rows
        return min(num_rows, self.num_rows)

    def block_nbytes(self, num_rows: int) -> int:
        """Return the bytes of a block of `num_rows` rows of this node, or of all if there are fewer, in whole pages."""
        num_rows = self.bounded(num_rows)
        return buffer_nbytes(block_nbytes(self.fields, num_rows, aligned=self.is_batched))

    @abstractmethod
    def describe(self) -> str:
        """Return the line that made this node, as the user would write it."""

    @abstractmethod
    def fingerprint(self) -> Any:
        """Return what the order of the rows depends on, as JSON; inputs not included.

        States and caches are compared by it, so it holds no wording that a later version might change.
        """

    def evidence(self) -> Iterator[Evidence]:
        """Yield what proves that the rows of another run are made from the same; inputs not included."""
        for one in self.locations:
            yield Evidence(f"file {one.name}", one.identity, "file")

    def files_read(self) -> Iterator[FileVersion]:
        """Yield all files that reading the rows takes; inputs not included."""
        yield from self.locations

    def cache_nbytes(self) -> dict[int, int]:
        """Return the bytes of each cache in memory that has to be filled yet, by the id of its store.

        They are 0 for the cache of a flow, whose size is not known before it is full.
        """
        return {
            store: nbytes for node in self.inputs for store, nbytes in node.cache_nbytes().items()
        }

    def kept_nbytes(self) -> dict[int, int]:
        """Return the bytes that the ledger counts for a dataset without any stream, by the id of what has them."""
        return {one: nbytes for node in self.inputs for one, nbytes in node.kept_nbytes().items()}

    def with_errors(self, on_error: str) -> "Node":
        """Return this node for `on_error`: "raise" or "skip".

        A node that can have bad rows overrides this: under "skip" it returns a flow without a length, which
        skips bad rows and adds the error of each to `context.skipped`. The nodes after it are built anew.
        """
        inputs = [node.with_errors(on_error) for node in self.inputs]
        if all(new is old for new, old in zip(inputs, self.inputs, strict=True)):
            return self
        return self.rebuilt(inputs)

    def rebuilt(self, inputs: "Sequence[Node]") -> "Node":
        """Return the node that the same stage makes from other inputs."""
        raise NotImplementedError

    def choice(self) -> str:
        """Return what was chosen for this node and why, for `explain()`; '' if there was no choice."""
        return ""

    def notes(self) -> tuple[str, ...]:
        """Return what a user should know before the run, for `explain()`."""
        return ()

    def heaviest(self) -> str:
        """Return the row that takes most of the memory, for a budget that is too small; '' if they are alike."""
        return ""

    def cautions(self) -> tuple[str, ...]:
        """Return what a user must know even without asking: the first stream of this node warns of it."""
        return ()

    def raise_known(self) -> None:  # noqa: B027  # Most nodes know of nothing.
        """Raise if it is known already that some row of this node can't be read: each stream asks when it opens."""

    def order_key(self) -> tuple[Hashable, ...] | None:
        """Return what the order of a shuffle follows from: first its seed, then the number of rows, then the rest.

        Two shuffles put their rows in the same order if and only if their keys are equal. None for other nodes.
        """
        return None

    def how_mixed(self) -> float | None:
        """Return how well a shuffle mixes rows, from 0 to 1; None where nobody knows, and for other nodes."""
        return None

    def like(self, other: "Node") -> None:
        """Copy from `other`, the input, what most stages leave unchanged."""
        self.fields = other.fields
        self.structure = other.structure
        self.num_rows = other.num_rows
        self.is_batched = other.is_batched
        self.calls_functions = other.calls_functions
        self.follows_epoch = other.follows_epoch
        self.inputs = (other,)
        self.num_shuffles = other.num_shuffles
        self.grains = other.grains
        self.share = other.share
        self.weighs_rows = other.weighs_rows
        self.is_in_memory = other.is_in_memory

    def like_all(self, others: Sequence["Node"]) -> None:
        """Copy from `others`, the inputs, what combining them leaves unchanged."""
        if any(node.share is not None for node in others):
            raise ValueError(
                "zip, concatenate and mix can't follow distribute, which comes last: combine whole datasets, then "
                ".batch(64).distribute()."
            )
        self.is_batched = any(node.is_batched for node in others)
        self.calls_functions = any(node.calls_functions for node in others)
        self.follows_epoch = any(node.follows_epoch for node in others)
        self.inputs = tuple(others)
        self.num_shuffles = max(node.num_shuffles for node in others)
        self.is_in_memory = all(node.is_in_memory for node in others)
        self.grains = tuple(grain for node in others for grain in node.grains)


class Rows(Node):
    """Rows with random access: any row can be read by its number."""

    num_rows: int
    ends_routes: bool = False
    """Whether routes end here, in arrays of this node's own, though it has inputs."""

    def read(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the given rows into `out`, a block of exactly that many rows."""
        mark = context.clock.enter()
        try:
            self.fill(rows, out, context)
        finally:
            context.clock.leave(mark, self, count(rows))

    @abstractmethod
    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Do the work of `read`."""

    def read_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read runs of rows into `out`, one after the other; storage reads runs faster than single rows."""
        mark = context.clock.enter()
        try:
            self.fill_runs(runs, out, context)
        finally:
            context.clock.leave(mark, self, out.num_rows)

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Do the work of `read_runs`."""
        self.fill(run_rows(runs), out, context)

    picks: bool = False
    """Whether rows in order with others between them are read about as fast as a run: by `read`."""
    reads_apart: bool = False
    """Whether some fields can be read without the others, at no extra cost: `fill_columns` does that."""

    def read_columns(self, columns: slice, runs: Runs, out: Block, context: Context) -> None:
        """Read runs of rows, of some fields only, into `out`, which has just these."""
        mark = context.clock.enter()
        try:
            self.fill_columns(columns, runs, out, context)
        finally:
            # Rows count once, with their first field.
            context.clock.leave(mark, self, 0 if columns.start else out.num_rows)

    def fill_columns(self, columns: slice, runs: Runs, out: Block, context: Context) -> None:
        """Do the work of `read_columns`."""
        raise NotImplementedError

    def narrowed(self, wanted: Residue) -> "Rows":
        """Return the same rows, under the same numbers, of which only the wanted ones are read.

        So a shuffle need not load the others. Any row can still be read: it only costs more.
        """
        return self

    def only(self, number: int) -> "Rows | None":
        """Return the same rows with a single field, if that can be read without the others."""
        return None

    def defers(self, rows: slice) -> bool:
        """Return whether reading these rows is one native job, which `read` leaves to `Context.deferred`, if set."""
        return False

    def route(self, epoch: int) -> Route | None:
        """Return where the rows are found in arrays in memory, if arithmetic is all it takes to find them.

        A node that has a route need not be read: blocks are filled natively, with the same rows as by `read`.
        """
        return None

    @abstractmethod
    def locate(self, row: int, epoch: int) -> str:
        """Return where a row comes from, for an error message: 'row 812 of data/part-3.npz'."""

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes that are retained between two reads, for as long as the stream is open."""
        return sum(node.retained_nbytes(ahead) for node in self.inputs if isinstance(node, Rows))

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that reading `num_rows` rows takes besides the block that the rows go to."""
        return max(
            (node.staging_nbytes(num_rows) for node in self.inputs if isinstance(node, Rows)),
            default=0,
        )


class Flow(Node):
    """Rows that can only be read forward."""

    def parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Return the rows from `cursor` on (None: from the first row), in parcels of one row or more."""
        mark = context.clock.enter()
        try:
            parcels = _Timed(self, self.make_parcels(cursor, context), context)
        finally:
            context.clock.leave(mark, self, 0)
        context.resources.watch(parcels)
        return parcels

    @abstractmethod
    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Do the work of `parcels`."""

    def file_at(self, cursor: Cursor) -> str:
        """Return the file that the row at `cursor` comes from; '' for a flow that reads no files."""
        return ""

    @abstractmethod
    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the most bytes that this flow and its inputs hold at once, for blocks of `block_nbytes`."""


class _Timed(Iterator[Parcel]):
    """The parcels of a flow; the clock counts the time that each one takes."""

    def __init__(self, flow: Flow, parcels: Iterator[Parcel], context: Context) -> None:
        self._flow = flow
        self._parcels = parcels
        self._clock = context.clock
        self._sizes = context.sizes if flow.is_varying else None

    def __next__(self) -> Parcel:
        mark = self._clock.enter()
        size = 0
        try:
            parcel = next(self._parcels)
            size = parcel.size
            if self._sizes is not None:
                self._sizes.note(self._flow, parcel.block, size, None, parcel.cursor_after)
            return parcel
        finally:
            self._clock.leave(mark, self._flow, size)

    def close(self) -> None:
        """Close the generator that makes the parcels; one in which a thread is stuck is closed by that thread."""
        close = getattr(self._parcels, "close", None)
        if close is not None and not getattr(self._parcels, "gi_running", False):
            close()


def rows_per_block(node: Node, nbytes: int) -> int:
    """Return how many rows of `node` make a block of about `nbytes`."""
    # Not the bytes of a block of one row: each column is rounded up to 64 bytes, eight times one int64.
    stride = sum(field.stride(aligned=node.is_batched) for field in node.fields)
    return max(1, nbytes // max(1, stride))


def refuse_endless(node: Node, call: str) -> None:
    """Raise if a call that takes all rows would never return."""
    if node.is_endless:
        raise ValueError(
            f"{call} takes a pass over all rows, and the dataset never ends: leave repeat() out, or say how many with "
            "take(n)."
        )


def count(rows: RowSet) -> int:
    """Return how many rows there are."""
    return rows.stop - rows.start if isinstance(rows, slice) else len(rows)


def bounds(rows: RowSet) -> tuple[int, int]:
    """Return the lowest and the highest row number; `rows` must not be empty."""
    if isinstance(rows, slice):
        return rows.start, rows.stop - 1
    return int(rows.min()), int(rows.max())


def as_index(rows: RowSet) -> Index:
    """Return the row numbers as an array."""
    return np.arange(rows.start, rows.stop) if isinstance(rows, slice) else rows


def run_rows(runs: Runs) -> Index:
    """Return the numbers of all rows of the runs."""
    starts, lengths = np.array(runs, np.int64).reshape(-1, 2).T
    return spans(starts, lengths)


def shifted(rows: RowSet, offset: int) -> RowSet:
    """Return each row number plus `offset`."""
    if isinstance(rows, slice):
        return slice(rows.start + offset, rows.stop + offset)
    return rows + offset
