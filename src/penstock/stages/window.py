"""window: as many consecutive rows as a model looks at, one window after the other, as they overlap."""

from dataclasses import dataclass

import numpy as np

from penstock.core.columns import Array, Block, Fixed, Index, Pieces, Sink, raw_rows, spans
from penstock.core.fields import allocate_block
from penstock.core.nest import field_names
from penstock.core.rows import ENDLESS, Context, Node, Rows, RowSet, as_index
from penstock.stages.base.grouping import batch_field, check_batchable, group
from penstock.stages.base.stage import Stage, StageRows

_NUMBER_NBYTES = 24  # A row's number, and what it takes to work it out.


@dataclass(frozen=True, slots=True)
class SlidingWindow(Stage):
    """Windows of `size` rows, each `stride` rows after the one before; those cut short are left out."""

    size: int
    stride: int = 1

    def build(self, node: Node) -> Node:
        """Return the windows, which are rows that can be had by number."""
        if not isinstance(node, Rows):
            raise ValueError(  # noqa: TRY004  # It is the place in the chain that is wrong, not a type.
                f"{self.describe()} needs rows that can be had by number, and {node.describe()} can only "
                "be read forward.\n  put the window before it, or keep the rows on disk first: "
                f'ds.write("folder"), then ps.from_files("folder").{self.describe()}'
            )
        check_batchable(node.fields, field_names(node.structure), self.describe())
        return SlidingRows(self, node)

    def num_windows(self, num_rows: int) -> int:
        """Return how many windows there are over so many rows."""
        if num_rows == ENDLESS:
            return ENDLESS
        return max(0, (num_rows - self.size) // self.stride + 1)

    def describe(self) -> str:
        """Return the call."""
        stride = "" if self.stride == 1 else f", stride={self.stride}"
        return f"window({self.size}{stride})"


class SlidingRows(StageRows):
    """Row i is rows i * stride to i * stride + size of the input; nothing is kept between reads."""

    stage: SlidingWindow

    def __init__(self, stage: SlidingWindow, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_rows = stage.num_windows(node.num_rows)
        self.fields = tuple(batch_field(f, stage.size, is_whole=True) for f in node.fields)
        self.is_fixed = all(field.spec.is_fixed for field in node.fields)
        if node.chunk_rows is not None:
            self.chunk_rows = max(1, node.chunk_rows // stage.stride)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read windows that follow each other from one stretch of rows, others row by row into place."""
        if isinstance(rows, slice) and self.is_fixed and self.stage.stride < self.stage.size:
            if rows.stop > rows.start:
                self._fill_run(rows, out, context)
        else:
            self._fill_scattered(as_index(rows), out, context)

    def _fill_run(self, windows: slice, out: Block, context: Context) -> None:
        size, stride = self.stage.size, self.stage.stride
        number = windows.stop - windows.start
        stretch = (number - 1) * stride + size
        first = windows.start * stride
        block = allocate_block(self.input.fields, stretch, context.allocate, aligned=False)
        self.input.read(slice(first, first + stretch), block, context)
        for column, sink in zip(block.sinks, out.sinks, strict=True):
            assert isinstance(column, Fixed)
            assert isinstance(sink, Fixed)
            sink.gather(_overlapping(column.rows, size, stride, number), np.arange(number))

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
        self.input.read(spans(windows * self.stage.stride, lengths), into, context)
        for field, made, sink in zip(self.input.fields, sinks, out.sinks, strict=True):
            if isinstance(made, Pieces) and isinstance(sink, Pieces):
                sink.add(group(made.finish(), lengths, field.spec))

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the stretch that windows are cut from, or of the numbers of their rows."""
        size, stride = self.stage.size, self.stage.stride
        stretch = (num_rows - 1) * stride + size
        run = self.input.block_nbytes(stretch) + self.input.staging_nbytes(stretch)
        total = num_rows * size
        return max(run, _NUMBER_NBYTES * total + self.input.staging_nbytes(total))

    def locate(self, row: int, epoch: int) -> str:
        """Return the window, and where its first row comes from."""
        first = self.input.locate(row * self.stage.stride, epoch)
        return f"window {row}, which starts with {first}"


def _overlapping(rows: Array, size: int, stride: int, number: int) -> Array:
    """Return the bytes of `number` windows over rows that lie one after the other, as a view."""
    flat = raw_rows(rows, 1)
    width = flat.shape[1]
    return np.lib.stride_tricks.as_strided(
        flat, (number, size * width), (stride * width, 1), writeable=False
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
