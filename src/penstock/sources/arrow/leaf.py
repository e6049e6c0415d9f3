"""A column that pyarrow decodes a chunk at a time: what Parquet and Arrow files have in common."""

from penstock.core.blocks import Sink
from penstock.core.rows import Context, RowSet, Runs
from penstock.sources.arrow.columns import named_errors
from penstock.sources.reading.chunked import Chunked

_MOST_AGAIN = (
    8  # Chunks are decoded again for what is read of them: at most this many times its bytes.
)


class ArrowColumn(Chunked):
    """One column; of texts and lists it is known how many bytes a chunk takes."""

    name: str
    stored_nbytes: int | None = None
    """The bytes of the largest chunk, where rows differ in size: words of a dictionary count once."""

    def hold(self, nbytes: int) -> None:
        """Count `nbytes` for the largest chunk, whose rows differ in size."""
        self.stored_nbytes = nbytes
        if self.grid.chunk_rows * self.field.nbytes > _MOST_AGAIN * nbytes:
            # Few of its rows are as large as all that is decoded for them: a shuffle may take that few at a time.
            self.chunk_rows = max(1, -(-nbytes // (_MOST_AGAIN * self.field.nbytes)))

    @property
    def chunk_nbytes(self) -> int:
        """The bytes of the largest chunk, decoded; words of a dictionary count once."""
        return super().chunk_nbytes if self.stored_nbytes is None else self.stored_nbytes

    def read(self, rows: RowSet, sink: Sink, context: Context) -> None:
        """Read rows; errors about memory name the file and the column."""
        with named_errors(self.file, self.name):
            super().read(rows, sink, context)

    def read_runs(self, runs: Runs, sink: Sink, context: Context) -> None:
        """Read runs of rows; errors about memory name the file and the column."""
        with named_errors(self.file, self.name):
            super().read_runs(runs, sink, context)
