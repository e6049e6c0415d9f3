"""window: runs of rows of a series, each as long as a model looks at once; they may overlap."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.arrays import Array, Index, raw_rows, spans
from penstock.core.blocks import Block, Pieces, Sink
from penstock.core.columns import Fixed
from penstock.core.fields import Field, allocate_block
from penstock.core.fingerprint import walk
from penstock.core.grains import grouped
from penstock.core.nest import field_names
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, as_index
from penstock.stages.base.grouping import batch_field, check_batchable, group
from penstock.stages.base.stage import Stage, StageRows

_NUMBER_NBYTES = 24  # Each row's number, and the memory to work it out.


@dataclass(frozen=True, slots=True)
class Window(Stage):
    """Windows of `size` rows that are `stride` apart; each window starts `shift` rows after the one before."""

    size: int
    shift: int
    stride: int = 1

    @property
    def span(self) -> int:
        """How many rows of the input there are from the first of a window to its last, both included."""
        return (self.size - 1) * self.stride + 1

    def check(self, node: Node) -> None:
        """Raise if rows differ in shape."""
        check_batchable(node.fields, field_names(node.structure), self.describe())

    def of_rows(self, rows: Rows) -> Node:
        """Return the windows, with random access."""
        return SeriesWindows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Refuse: windows share rows, which would have to be read more than once."""
        # The one behind which rows can only be read forward: it may be the source.
        flows = [one for one in walk(flow) if isinstance(one, Flow)]
        cause = next(one for one in flows if not any(isinstance(each, Flow) for each in one.inputs))
        before = "put the window before it, or " if cause.inputs else ""
        raise ValueError(
            f"{self.describe()} needs random access to the rows, and {cause.describe()} can only "
            f"be read forward.\n  {before}keep the rows on disk first: "
            f'ds.write("folder"), then ps.from_files("folder").{self.describe()}'
        )

    def num_windows(self, num_rows: int) -> int:
        """Return how many whole windows there are over so many rows."""
        if num_rows == ENDLESS:
            return ENDLESS
        return max(0, (num_rows - self.span) // self.shift + 1)

    def describe(self) -> str:
        """Return the call that made it."""
        shift = "" if self.shift == self.size else f", shift={self.shift}"
        stride = "" if self.stride == 1 else f", stride={self.stride}"
        return f"window({self.size}{shift}{stride})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        return ["window", self.size, self.shift, self.stride]


class SeriesWindows(StageRows):
    """Row i is rows i * shift, i * shift + stride, ... of the input; nothing is retained."""

    stage: Window

    def __init__(self, stage: Window, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_rows = stage.num_windows(node.num_rows)
        self.fields = tuple(
            batch_field(
                field,
                stage.size,
                is_whole=True,
                num_rows=node.num_rows,
                tops=_tops(field, stage.size),
            )
            for field in node.fields
        )
        self.is_fixed = all(field.spec.is_fixed for field in node.fields)
        self.grains = grouped(node.grains, stage.shift)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read windows that overlap from one stretch of rows; read the rows of other windows into place."""
        stage = self.stage
        is_overlapping = stage.stride == 1 and stage.shift < stage.size
        if isinstance(rows, slice) and self.is_fixed and is_overlapping:
            if rows.stop > rows.start:
                self._fill_run(rows, out, context)
        else:
            self._fill_scattered(as_index(rows), out, context)

    def _fill_run(self, windows: slice, out: Block, context: Context) -> None:
        size, shift = self.stage.size, self.stage.shift
        number = windows.stop - windows.start
        stretch = (number - 1) * shift + size
        first = windows.start * shift
        block = allocate_block(self.input.fields, stretch, context.allocate, aligned=False)
        self.input.read(slice(first, first + stretch), block, context)
        for column, sink in zip(block.sinks, out.sinks, strict=True):
            assert isinstance(column, Fixed)
            assert isinstance(sink, Fixed)
            sink.gather(_overlapping(column.rows, size, shift, number), np.arange(number))

    def _fill_scattered(self, windows: Index, out: Block, context: Context) -> None:
        size = self.stage.size
        lengths = np.full(len(windows), size)
        sinks = [
            _rows_of(sink, size)
            if isinstance(sink, Fixed)
            else Pieces(field.spec, sink.allocate, aligned=False)
            for field, sink in zip(self.input.fields, out.sinks, strict=True)
        ]
        into = Block(list[Sink](sinks), len(windows) * size, out.leases)
        within = np.arange(size) * self.stage.stride
        rows = (windows[:, None] * self.stage.shift + within).reshape(-1)
        self.input.read(rows, into, context)
        for field, made, sink in zip(self.input.fields, sinks, out.sinks, strict=True):
            if isinstance(made, Pieces) and isinstance(sink, Pieces):
                sink.add(group(made.finish(), lengths, field.spec))

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the stretch that windows are cut from, or of the numbers of their rows."""
        stretch = (num_rows - 1) * self.stage.shift + self.stage.span
        run = 0
        if self.stage.stride == 1 and self.stage.shift < self.stage.size:
            run = self.input.block_nbytes(stretch) + self.input.staging_nbytes(stretch)
        total = num_rows * self.stage.size
        return max(run, _NUMBER_NBYTES * total + self.input.staging_nbytes(total))

    def locate(self, row: int, epoch: int) -> str:
        """Return the window, and where its first row comes from."""
        first = self.input.locate(row * self.stage.shift, epoch)
        return f"window {row}, which starts with {first}"


def _tops(field: Field, size: int) -> tuple[int, ...]:
    """Return the bytes of the 1, 2, 4, ... largest windows, which may all have the same rows."""
    most = field.most_nbytes(size) + 16
    return tuple(most << power for power in range(len(field.tops)))


def _overlapping(rows: Array, size: int, shift: int, number: int) -> Array:
    """Return the bytes of `number` windows over rows that lie one after the other, as a view."""
    flat = raw_rows(rows, 1)
    width = flat.shape[1]
    return np.lib.stride_tricks.as_strided(
        flat, (number, size * width), (shift * width, 1), writeable=False
    )


def _rows_of(sink: Fixed, size: int) -> Fixed:
    """Return the rows of a column of windows, in the same memory."""
    grouped = sink.grouped
    slots = None
    if sink.slots is not None:
        slots = spans(sink.slots * size, np.full(len(sink.slots), size))
    if len(grouped) == 1:
        return Fixed(grouped[0], slots)
    # Windows in batches: there may be a gap after a batch, and none within one.
    shape = (len(grouped), grouped.shape[1] * size, *grouped.shape[3:])
    strides = (grouped.strides[0], *grouped.strides[2:])
    return Fixed(np.lib.stride_tricks.as_strided(grouped, shape, strides), slots)
