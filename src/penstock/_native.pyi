"""Kernels that run at memory speed, without the interpreter lock.

All arguments are checked. After an exception the content of `out` is unspecified.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer

is_portable: bool
"""Whether this build does without what only Linux has (`penstock.core.system`)."""

def permute(
    positions: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    num_rows: int,
    keys: npt.NDArray[np.uint64],
) -> None:
    """Write to `out[i]` the image of `positions[i]` under a bijection on [0, num_rows).

    The bijection is chosen by `keys`: an even number, 2 to 64, of round keys. `out` may be `positions`
    itself. `num_rows` is at most 2**62. Takes no memory.

    Raises:
        IndexError: A position is outside [0, num_rows).
        ValueError: An argument has the wrong type, shape or layout.
    """

def unpermute(
    rows: npt.NDArray[np.int64],
    out: npt.NDArray[np.int64],
    num_rows: int,
    keys: npt.NDArray[np.uint64],
) -> None:
    """Write to `out[i]` the position that `permute` maps to `rows[i]`; the rest is as there."""

def permute_lanes(
    out: npt.NDArray[np.int64],
    keys: npt.NDArray[np.uint64],
    places: npt.NDArray[np.int64],
    block_rows: int,
    start: int = 0,
) -> None:
    """Write to `out[:, lane]` the rows of that lane, in the order of `permute` with `keys[lane]`.

    Rows are in blocks of `block_rows`, and block k stands for the rows from `places[k] * block_rows` on. From row
    `start` on, counted through these blocks, each lane in turn has `len(out)` rows. Takes 80 bytes a row of `out`.

    Raises:
        ValueError: An argument has the wrong type, shape or layout.
    """

def gather(
    source: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64] | None = None,
    rest: npt.NDArray[np.uint8] | None = None,
) -> None:
    """Copy `source[rows[j]]` to slot j (or `at[j]`) of `out`, for each j; after its rows come those of `rest`.

    `source` is (rows, row_nbytes), with any row stride, and may be read-only. `out` is (groups,
    group_rows, row_nbytes): slot s is `out[s // group_rows, s % group_rows]`. Only the last axes must be
    contiguous. `out` must share no memory with `source` or with itself. Takes no memory.

    Raises:
        IndexError: A row or a slot is out of range.
        ValueError: An argument has the wrong type, shape or layout.
    """

def add_moments(
    source: npt.NDArray[np.uint8],
    kind: str,
    count: int,
    mean: npt.NDArray[np.float64],
    squares: npt.NDArray[np.float64],
    low: npt.NDArray[np.uint8],
    high: npt.NDArray[np.uint8],
) -> None:
    """Add the rows of `source` to the statistics of `count` rows, place by place of a row.

    `source` is (groups, rows, row_nbytes), its values of a `kind`: 'i1' to 'i8', 'u1' to 'u8', 'f2', 'f4', 'f8', or
    'bf', which is bfloat16. `mean` gets the mean, `squares` the sum of squared deviations from it, `low` and `high` the
    smallest and largest values as bytes: of that kind, but as 'i4' and 'f4' where it has fewer than 4 bytes. NaN makes
    all of them NaN. Rows are taken a few at a time, twice each: first their mean, then the squares, so that nothing is
    lost by rounding.

    Raises:
        ValueError: An argument has the wrong type, shape or layout, or the kind is none.
    """

class Choice:
    """Rows that were chosen from others."""

    def rows(self, positions: npt.NDArray[np.int64], out: npt.NDArray[np.int64]) -> None:
        """Write to `out[i]` which row the chosen row `positions[i]` is; `out` may be `positions` itself.

        Raises:
            IndexError: There is no such chosen row.
            ValueError: An argument has the wrong type, shape or layout.
        """

    def span(self, first: int, out: npt.NDArray[np.int64]) -> None:
        """Write to `out[i]` which row the chosen row `first + i` is: as `rows` does, several times as fast.

        Raises:
            IndexError: There is no such chosen row.
            ValueError: `out` has the wrong type, shape or layout.
        """

class Dealt(Choice):
    """A share of every run of rows, in order."""

    def __init__(
        self,
        key: int,
        num_runs: int,
        places: npt.NDArray[np.uint32],
        firsts: npt.NDArray[np.uint32],
        tail: npt.NDArray[np.int64],
    ) -> None:
        """Choose, of each of `num_runs` runs of `firsts.shape[1]` rows, the places of one pattern, and then `tail`.

        Run r has pattern `hash & (len(places) - 1)`, turned by `hash * firsts.shape[1] >> 64` places, for
        `hash = splitmix64(key + (r + 1) * 0x9E3779B97F4A7C15)`. `places[p]` are the places of a pattern, in order;
        `firsts[p, turn]` is how many of them stay inside a run of rows when they are turned, modulo their number.

        Raises:
            ValueError: An argument has the wrong type, shape or layout.
        """

class Marked(Choice):
    """The rows whose bits are set, in order."""

    def __init__(self, words: npt.NDArray[np.uint64], ranks: npt.NDArray[np.int64]) -> None:
        """Choose row 64 * i + j if bit j of `words[i]` is set; `ranks[k]` bits are set in the first 8 * k words.

        Raises:
            ValueError: An argument has the wrong type, shape or layout.
        """

class Route:
    """Rows of tables in memory, each found by arithmetic."""

    def __init__(
        self,
        tables: Sequence[npt.NDArray[np.uint8]],
        steps: Sequence[tuple[int, int, int, npt.NDArray[np.uint64] | Choice | None]],
    ) -> None:
        """Make a route to the rows of `tables`, (rows, row_nbytes) each, which may be read-only and of any row stride.

        A step (scale, offset, num_rows, keys) makes scale * row + offset of a row's number, and then its image under
        `permute` with these keys, unless they are None; instead of keys there may be a choice. The steps are taken one
        after the other.

        Raises:
            ValueError: An argument has the wrong type, shape or layout, or a step can't be.
        """

class Job:
    """A block of rows to be read; it keeps all it is made of."""

    def __init__(
        self,
        parts: Sequence[tuple[Route, int, int]],
        memory: npt.NDArray[np.uint8],
        columns: npt.NDArray[np.int64],
        group_rows: int,
    ) -> None:
        """Prepare to read the rows of `parts`, (route, first row, number of rows) each, one part after the other.

        Row j of table c goes to slot j of column c, that is to byte `columns[c, 0] + j // group_rows *
        columns[c, 1] + j % group_rows * row_nbytes` of `memory`. Takes 64 KB while it runs.

        Raises:
            ValueError: `memory` has too little room, or an argument has the wrong type, shape or layout.
        """

    def run(self) -> None:
        """Read the block, in this thread.

        Raises:
            IndexError: A row is outside the tables.
        """

    def wait(self, helps: bool = False) -> bool:
        """Wait until a thread has read it; return False if `wake` was called before. Ctrl-C ends it.

        One that `helps` reads the jobs that stand in the queue meanwhile, up to the first call.

        Raises:
            IndexError: A row is outside the tables.
        """

    def wake(self) -> None:
        """Let whoever waits, or will, go on."""

    def cancel(self) -> None:
        """Let it not begin; if it has begun, wait for its end."""

    @property
    def is_good(self) -> bool:
        """Whether it is done, and all was as it should be; a job of `record_job` or `line_job` does not raise."""

    @property
    def is_done(self) -> bool: ...
    @property
    def num_rows(self) -> int: ...
    @property
    def times(self) -> tuple[int, float, float, float, float]:
        """Which thread ran it, when that began by `perf_counter`, and the seconds it took; zeros until it is done.

        The last two are how long it took to find the rows, and to copy them.
        """

def record_job(
    fd: int,
    begins: npt.NDArray[np.int64],
    ends: npt.NDArray[np.int64],
    plan: ExamplePlan,
    outs: list[npt.NDArray[np.uint8]],
    verify: bool = True,
    *,
    at: npt.NDArray[np.int64] | None = None,
) -> Job:
    """Return the job that reads records of an open file, and decodes them as `tfrecord_decode` does.

    Record j begins at byte `begins[j]` of the file, with its header, and ends at `ends[j]`, at most 256 KB later. All
    features must have rows of one size. The job is not good if a record is bad, is too long or can't be
    read: what `outs` holds is then of no use. It keeps a descriptor of its own, and each thread that runs
    such jobs keeps 256 KB.

    Raises:
        ValueError: An argument of the wrong type, shape or layout.
    """

def line_job(
    fd: int,
    offset: int,
    nbytes: int,
    num_lines: int,
    first: int,
    out: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
) -> Job:
    """Return the job that reads lines of an open file, and copies them as `copy_lines` does.

    The `nbytes` bytes from `offset` on must have `num_lines` lines. Those from `first` on are copied, as many as
    `offsets` has room for. The job is not good if there are more or fewer lines, if one is longer than 256 KB or no
    UTF-8, if `out` is too small, or if the file can't be read. It keeps a descriptor of its own, and each thread that
    runs such jobs keeps 256 KB.

    Raises:
        ValueError: An argument of the wrong type, shape or layout.
    """

class Jobs:
    """A queue of jobs and calls, and the threads that serve it. A forked child has no part in it."""

    def submit(self, job: Job) -> None:
        """Have a thread read a block; once for each job."""

    def call(self) -> None:
        """Have a thread return from `serve`, when it has come so far."""

    def serve(self) -> None:
        """Read blocks in this thread, without the interpreter lock, until it comes to a call, or all stop."""

    def stop(self) -> None:
        """Let all threads return from `serve`, now and ever after; jobs that have not begun never do."""

    @property
    def seconds(self) -> tuple[float, float]:
        """What all jobs took so far, and what of that on a core."""

def first_fit(
    lengths: npt.NDArray[np.int64],
    capacity: int,
    most_bins: int,
    fills: npt.NDArray[np.int64],
    bins: npt.NDArray[np.int64],
    offsets: npt.NDArray[np.int64],
    closed: npt.NDArray[np.int64],
    came: npt.NDArray[np.int64],
) -> tuple[int, int]:
    """Put each length into the first open bin with room for it; return how many bins closed, and how many there were.

    Bins 0, 1, ... are open at first, and filled up to `fills`; new ones get the next numbers. Where none has room and
    `most_bins` are open, the fullest closes, the oldest of several. A bin that is full closes at once. `bins` and
    `offsets` get where each length goes, `closed` the numbers of the bins that closed, in order, and `came` how many
    lengths were placed by then: both are twice as long as `lengths`.

    Raises:
        ValueError: A length is less than 1 or more than `capacity`, or an argument is not as it must be.
    """

def gather_spans(
    source: npt.NDArray[np.uint8] | ReadableBuffer,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
    out_starts: npt.NDArray[np.int64],
) -> None:
    """Copy `source[starts[j]:][:lengths[j]]` to `out[out_starts[j]:]`, for each j.

    `source` and `out` are contiguous bytes that share no memory. Takes no memory.

    Raises:
        IndexError: A span reaches outside `source` or `out`.
        ValueError: A length is negative, or an argument has the wrong type, shape or layout.
    """

class ArrayTable:
    """Where the arrays of a list are: contiguous ones, of any dtype and shape.

    It refers to them for as long as it lives, and takes 32 bytes for each. Their memory must stay where it is, as for
    any view of an array: `array.resize(refcheck=False)` would move it.
    """

    def __init__(self, arrays: list[npt.NDArray[Any]]) -> None:
        """Note where each array is.

        Raises:
            TypeError: One is no array.
            ValueError: One is not contiguous.
        """

    def __len__(self) -> int: ...
    @property
    def arrays(self) -> tuple[npt.NDArray[Any], ...]:
        """The arrays."""

    @property
    def nbytes(self) -> int:
        """The bytes of the table, without those of the arrays."""

    def gather(
        self,
        rows: npt.NDArray[np.int64],
        lengths: npt.NDArray[np.int64],
        out: npt.NDArray[np.uint8],
        out_starts: npt.NDArray[np.int64],
    ) -> None:
        """Copy the bytes of array `rows[j]`, which has `lengths[j]`, to `out[out_starts[j]:]`, for each j.

        Raises:
            IndexError: There is no such array, or no room for it in `out`.
            ValueError: An array has another length, or an argument the wrong type, shape or layout.
        """

def read_ranges(
    fd: int,
    direct_fd: int,
    offsets: list[int],
    buffers: list[npt.NDArray[np.uint8]],
    bounce: npt.NDArray[np.uint8],
    drop: bool,
    *,
    cells_start: int = 0,
    cell_nbytes: int = 0,
    sums: npt.NDArray[np.uint32] | None = None,
) -> tuple[bool, tuple[int, int, int, int] | None]:
    """Fill each buffer with the bytes of a file from its offset on.

    Neighbours are read together, and large stretches through `direct_fd`, several at a time, unless it is -1.
    `bounce` is memory for that: 128 KB or more from a page on. `drop`: what comes through the page cache is
    not kept there.

    With `sums`, cells of `cell_nbytes` bytes each, from `cells_start` on, cut the buffers into pieces: `sums` is
    filled with the CRC32C of each piece, in the order of the buffers.

    Returns:
        Whether direct reads are possible, or still so; and None, or what failed: the offset, the bytes wanted
        from there, how many there were, and the error's number (0: the file ended).
    """

def read_rows(
    fd: int,
    offset: int,
    rows: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64] | None = None,
    first_slot: int = 0,
    *,
    stretches: npt.NDArray[np.int64] | None = None,
    cells_start: int = 0,
    cell_nbytes: int = 0,
    sums: npt.NDArray[np.uint32] | None = None,
) -> bool:
    """Read rows of one size, which lie from `offset` of a file on, to slots of `out`, as in `gather`.

    Row j goes to slot `at[j]`, or to `first_slot + j` if there is no `at`.

    Rows that ascend are read together with those between them. They have 1 byte to 256 KB. With `stretches`, each a
    first row and a length, all rows of these are read, and `rows` must ascend within them, stretch after stretch. Then
    `sums` gets the CRC32C of each piece that cells of the file cut them into: cells have `cell_nbytes` bytes, from
    `cells_start` on.

    Returns:
        Whether all could be read. If not, some slots are filled.
    """

class RowFiller:
    """Puts rows of Python objects into columns, one by one or a block at a time.

    `columns` are writable arrays, an item a row, whose rows are contiguous; with `is_grouped` an item is a batch, and
    rows are numbered through all of them. `keys` is None for rows that are a
    value each, a number for tuples of so many fields, or the keys of dicts. A value must be an array of the very
    dtype and shape of its column, C-contiguous; a column without a shape also takes a number that fits.

    Attributes:
        count: The row after the last one that was put.
    """

    count: int

    def __init__(
        self,
        columns: tuple[npt.NDArray[Any], ...],
        keys: int | tuple[Any, ...] | None,
        is_grouped: bool = False,
    ) -> None: ...
    def release(self) -> None:
        """Let go of the columns: `fill` puts no further row, also if it waits for one on another thread."""

    def put(self, number: int, row: Any) -> bool:
        """Put one row; return whether it is as declared. If not, some of its fields may have been put."""

    def fill(self, rows: Iterator[Any], start: int, stop: int) -> tuple[Any] | None:
        """Put rows `start` to `stop`, or as many as there are.

        Returns the first row that is not as declared, of which nothing may be relied on in the columns, in a
        tuple; else None. What the iterator raises comes through, with `count` at its row.
        """

def use_array_memory() -> object:
    """Let NumPy take the memory of arrays, on this thread, where a few freed pieces are kept for the next.

    They start on 64 bytes. Takes up to 32 MB that nobody uses at the moment. Returns what was used before.
    """

def restore_array_memory(before: object) -> None:
    """Let NumPy take memory as it did before."""

class ResultCheck:
    """Tells whether the result of a function can be handed on as it is.

    So it can if every field is an array of the declared dtype and shape (-1: any size; not 0-d), and nobody else
    refers to it. `keys` is None for a bare value, the number of fields of a tuple, or the keys of a dict.
    """

    def __init__(
        self,
        dtypes: tuple[np.dtype[Any], ...],
        shapes: tuple[tuple[int, ...], ...],
        keys: int | tuple[Any, ...] | None,
    ) -> None: ...
    def __call__(self, result: Any) -> bool:
        """Tell so of a result; a bare value comes in a tuple of one, and must have a name besides."""

class RecordError(ValueError):
    """A record that is damaged, or not what was asked for.

    Attributes:
        kind: What is wrong, one of RECORD_FAULTS.
        record: The number of the record in the call.
        offset: The byte at which it was noticed, from the start of the record; of `tfrecord_scan`, from
            the start of the file.
        feature: The number of the feature in the plan, or -1 if it is the record as a whole.
        found: What came instead: a count, a kind, a type or a value.
    """

    kind: str
    record: int
    offset: int
    feature: int
    found: int

# What can be wrong with a record, by the number that `errors` of `tfrecord_decode` has for it.
RECORD_FAULTS: tuple[str, ...]

class ExamplePlan:
    """Which features of a tf.train.Example to decode, and to what.

    A feature is (name, form, type, shape, is_text, default). The form is 'fixed', 'variable' (its shape is
    empty) or 'tensor' (-1 in its shape is any size). The type is a number of TensorFlow's DataType; is_text:
    strings must be UTF-8. The default is None, the bytes of a row of numbers, or a list of bytes.

    Raises:
        ValueError: Two features have one name, or a feature contradicts itself.
    """

    def __init__(
        self, features: list[tuple[str, str, int, list[int], bool, bytes | list[bytes] | None]]
    ) -> None: ...
    def __len__(self) -> int: ...

def tfrecord_scan(
    buffer: npt.NDArray[np.uint8] | ReadableBuffer,
    offset0: int = 0,
    verify_length_crc: bool = True,
    *,
    remaining: int = -1,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], int]:
    """Return (offsets, lengths, consumed) of the complete records at the start of a piece of a file.

    The offsets are those of the records, `offset0` (where the piece starts in the file) included; the
    lengths are those of their payloads. What is left after `consumed` bytes is the beginning of another
    record. `remaining` is the number of bytes from the start of the piece to the end of the file, if known:
    a record that reaches beyond it is truncated. Takes 16 bytes of memory a record.

    Raises:
        RecordError: The first record of the piece is damaged. Records before a damaged one are returned,
            and the next call, which starts with that one, raises.
    """

def tfrecord_find(buffer: npt.NDArray[np.uint8] | ReadableBuffer, start: int) -> int:
    """Return where, at `start` or after it, a sound record begins; the end of the buffer if nowhere.

    For going on after a length that was damaged. A record that is only partly there counts if its length
    matches its checksum.
    """

def tfrecord_decode(
    buffer: npt.NDArray[np.uint8] | ReadableBuffer,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    plan: ExamplePlan,
    outs: list[npt.NDArray[np.uint8] | None],
    verify: bool = True,
    *,
    framed: bool = True,
    at: npt.NDArray[np.int64] | None = None,
    skip: bool = False,
    fast: bool = True,
    most: int = -1,
) -> tuple[
    list[tuple[npt.NDArray[np.uint8 | np.int64], ...] | None],
    npt.NDArray[np.bool_],
    npt.NDArray[np.int64],
]:
    """Decode records into columns and return (columns, bad, errors).

    Record j starts at `starts[j]` of `buffer`, with its header (`framed=False`: with its payload), and has a
    payload of `lengths[j]` bytes. `verify` checks both checksums. Features with rows of one size are written
    to slot j (or `at[j]`) of their item of `outs`, laid out as for `gather`: (groups, group_rows, row_nbytes).
    All other items of `outs` are None, and their columns are returned, rows in the order of the records:
    numbers as (values, row_lengths), strings as (data, offsets, row_lengths), and after that the shapes,
    (records, rank), of tensors whose shape varies; values are bytes, to be viewed as their dtype.

    With `skip` a bad record leaves zeros or an empty row; `bad` marks it, and `errors` has (record, offset,
    feature, fault, found) for each. `fast=False` is for tests: it must not make a difference. Takes memory
    for the columns that are returned, at most 64 times the bytes of the records.

    The columns that are returned take at most `most` bytes together; -1 is any number.

    Raises:
        OverflowError: They would take more than `most` bytes.
        IndexError: A slot is out of range.
        RecordError: The first bad record, without `skip`.
        ValueError: An argument has the wrong type, shape or layout.
    """

def sequence_lists(
    buffer: npt.NDArray[np.uint8] | ReadableBuffer,
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    names: list[str],
    *,
    framed: bool = True,
) -> tuple[
    npt.NDArray[np.uint8],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    npt.NDArray[np.int64],
    list[npt.NDArray[np.int64]],
    npt.NDArray[np.int64],
]:
    """Return the feature lists of SequenceExamples as Examples: (data, starts, lengths, steps, counts, bad).

    Record j is as for `tfrecord_decode`; checksums are not looked at. Of the result, Example j lies at
    `data[starts[j]:][:lengths[j]]` and has a feature for each of the lists `names` that the record has, with the values
    of all its steps, for `tfrecord_decode(..., framed=False)`. `steps`, (records, names), says how many steps that
    are, -1 where there is no such list. `counts[i]` has the number of values of each step of list i, those of
    all records one after the other. `bad` has the records that are no SequenceExamples, or have a list whose steps
    are of several kinds; their Examples have no features. Takes memory for the result, about as much as the records.

    Raises:
        IndexError: A record reaches outside the buffer.
        ValueError: Two names are alike, or an argument has the wrong type, shape or layout.
    """

def tfrecord_frame(data: ReadableBuffer, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """Return the payloads `data[offsets[j]:offsets[j + 1]]` as framed records, one after the other."""

def example_encode(
    plan: ExamplePlan,
    columns: list[npt.NDArray[np.uint8] | tuple[npt.NDArray[np.uint8 | np.int64], ...]],
    num_rows: int,
    *,
    framed: bool = True,
) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]:
    """Return (data, offsets): the first `num_rows` rows of columns as records, and where each starts.

    The columns are as `tfrecord_decode` fills and returns them. The bytes are those of protobuf's
    deterministic serialisation.

    Raises:
        ValueError: A row that no record can hold, or an argument of the wrong type, shape or layout.
    """

def example_features(
    payload: npt.NDArray[np.uint8] | ReadableBuffer,
) -> list[tuple[str, int, int, tuple[int, tuple[int, ...]] | None]]:
    """Return (name, kind, count, tensor) of each feature of one record, all of which is checked.

    The kind is 0 for none, 1 for bytes, 2 for floats, 3 for ints. `tensor` is the (type, shape) of a single
    bytes value that is a serialised tensor beyond doubt, else None.

    Raises:
        RecordError: The record is not a tf.train.Example.
    """

def crc32c(
    data: ReadableBuffer | npt.NDArray[np.uint8], *, before: int = 0, portable: bool = False
) -> int:
    """Return the CRC32C of `data`, which follows bytes with the CRC32C `before`.

    `portable` does without the processor's instruction for it.
    """

def crc32c_of_spans(
    data: ReadableBuffer | npt.NDArray[np.uint8],
    edges: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint32],
) -> None:
    """Write the CRC32C of the bytes between each two neighbouring edges to `out`."""

def combined_crc(first: int, second: int, second_nbytes: int, *, polynomial: int) -> int:
    """Return the CRC of two pieces, one after the other, from those of each; `polynomial` is reflected."""

def unpack_lzf(packed: ReadableBuffer | npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> int:
    """Unpack LZF to `out`, and return how many bytes were written; takes no memory.

    Raises:
        BufferError: It unpacks to more than `out` holds.
        ValueError: It is damaged, or an argument has the wrong type, shape or layout.
    """

def resize(
    source: npt.NDArray[np.uint8],
    first: int,
    rows: int,
    size: tuple[float, float],
    out: npt.NDArray[np.uint8],
    at: int,
    out_rows: int,
) -> None:
    """Fill `out` with the rows from `at` on of an image of `out_rows` rows, made from one of `rows` rows.

    `source` holds the rows of that image from `first` on, all that `rows_to_resize` names or more. Both are
    (rows, width, 3), of any stride between rows. `size` is the height and width in pixels, of which the last ones may
    be less than whole. Each new pixel is the mean of the old ones around it, with weights that form a triangle as
    wide as what it stands for, but at least one old pixel to each side: first down, rounded to bytes, then across.
    Takes a row, and up to 16 bytes for each old and new pixel along both sides.

    Raises:
        ValueError: An argument has the wrong type, shape or layout, or `source` lacks rows.
    """

def rows_to_resize(rows: int, height: float, at: int, count: int, out_rows: int) -> tuple[int, int]:
    """Return which rows of an image the new rows from `at` on are made of: the first, and the end."""

decodes_jpeg_fast: bool
"""Whether `decode_jpeg` is faster than libjpeg-turbo on this machine."""

def decode_jpeg(data: npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> bool:
    """Fill `out`, (height, width, 3), with the pixels of a JPEG; return False if that is left to others.

    It reads plain ones: grey or YCbCr, 8 bits, in one scan, of which brightness is as fine as colours, or twice as
    fine across, or across and down, with nothing wrong in them. The pixels are those of libjpeg-turbo. Of all else,
    and of an image of other sides, parts of `out` may be filled. Takes as many bytes as `data` has, and 112 for each
    pixel across.

    Raises:
        ValueError: An argument has the wrong type, shape or layout.
    """

def undo_png_filters(rows: npt.NDArray[np.uint8], pixel_nbytes: int) -> None:
    """Undo the filters of the rows of a PNG, in place: the first byte of each says which it has.

    Raises:
        ValueError: A row has a filter that there is none of, or an argument has the wrong type, shape or layout.
    """

def unpack_deflate(
    packed: ReadableBuffer | npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]
) -> tuple[int, int]:
    """Unpack a bare deflate stream to `out`; return how many bytes of `packed` it has, and how many were written.

    Raises:
        BufferError: It unpacks to more than `out` holds.
        ValueError: It is damaged or cut off, or an argument has the wrong type, shape or layout.
    """

def unpack_zlib(packed: ReadableBuffer | npt.NDArray[np.uint8], out: npt.NDArray[np.uint8]) -> int:
    """Unpack a deflate stream with zlib's header and checksum to `out`; return how many bytes were written.

    What follows the checksum is ignored.

    Raises:
        BufferError: It unpacks to more than `out` holds.
        ValueError: It is damaged or cut off, or an argument has the wrong type, shape or layout.
    """

def unshuffle(packed: npt.NDArray[np.uint8], width: int, out: npt.NDArray[np.uint8]) -> None:
    """Put values of `width` bytes together again: `packed` has their first bytes, then their second bytes, and so on.

    What is left over of a value stays at the end.

    Raises:
        ValueError: An argument has the wrong type, shape or layout.
    """

def fletcher32(data: npt.NDArray[np.uint8]) -> tuple[int, int]:
    """Return the sum of all big-endian words of 16 bits, and the sum of those sums, both modulo 65535.

    A byte that is left over is the high byte of a word.
    """

HAS_QUOTES: int
"""Of CSV: a field stands between quotes."""
HAS_HEX: int
"""Of CSV: an x follows a 0 somewhere."""
HAS_NAN: int
"""Of CSV: an opening parenthesis follows an n somewhere."""
NUM_LENGTHS: int
"""In how many buckets the lengths of records are counted."""

def scan_lines(
    data: npt.NDArray[np.uint8] | ReadableBuffer,
    separator: int,
    quote: int,
    most: int,
    is_last: bool,
    ends: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
) -> tuple[int, int, int, int]:
    """Find runs of whole records, of up to `most` bytes each; a record that is longer is a run of its own.

    Records of CSV end at line ends that are not between quotes; blank lines are none. With separator -1 records are
    lines of text, which end at line feeds only. `ends[i]` is where run i ends, and `rows[i]` how many records it has.
    Without `is_last` the last run, which may go on, is left out. Records of finished runs are counted in `lengths`:
    those of n bytes in `lengths[n]` up to 15, then 8 buckets for every power of two.

    Returns:
        How many runs there are; what the text has (HAS_QUOTES and so on); the byte that follows a closing quote
        though it is neither a separator nor a line end, or -1; the quote that is never closed, or -1: nothing after
        its record is found.

    Raises:
        ValueError: `ends` has too little room, or an argument has the wrong type, shape or layout.
    """

def split_lines(
    data: npt.NDArray[np.uint8] | ReadableBuffer,
    separator: int,
    quote: int,
    starts: npt.NDArray[np.int64],
    stops: npt.NDArray[np.int64],
) -> int:
    """Find where each record begins and ends, without its line end; lines of text lose a last carriage return, too.

    Returns how many there are, or one more than there is room for.
    """

def copy_lines(
    text: npt.NDArray[np.uint8] | ReadableBuffer,
    first: int,
    out: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
) -> tuple[int, int, bool]:
    """Copy the lines from `first` on without their ends, line i of them to `out[offsets[i]:offsets[i + 1]]`.

    There are as many as `offsets` has room for, or fewer if the text ends. Returns how many lines the text has (-1 if
    `out` has no room for those that are wanted), how many bytes were copied, and whether all of the text is UTF-8.

    Raises:
        ValueError: An argument has the wrong type, shape or layout.
    """

def is_utf8(data: npt.NDArray[np.uint8] | ReadableBuffer) -> bool:
    """Return whether bytes are UTF-8, as `bytes.decode` says. Takes no memory."""

def line_ends(
    data: npt.NDArray[np.uint8] | ReadableBuffer, separator: int, quote: int, state: int
) -> tuple[int, int, int]:
    """Find line feeds that are not between quotes, in text that comes in pieces; `state` is 0 for the first piece.

    Returns where the first of them ends, and the last (0 if there is none), and the state for the next piece.
    """

def text_objects(
    data: npt.NDArray[np.uint8],
    offsets: npt.NDArray[np.int64],
    start: int,
    stop: int,
    is_str: bool,
) -> npt.NDArray[Any]:
    """Return rows `start` to `stop` of a column of text as an array of str (surrogates pass), or of bytes.

    Raises:
        IndexError: There are not so many rows, or one reaches outside `data`.
        ValueError: An argument has the wrong type, shape or layout.
    """

class TextSlices:
    """An iterator over rows `starts[i]` to `stops[i]` of a column of text, each as `text_objects` makes them.

    Several threads may share it.
    """

    def __init__(
        self,
        data: npt.NDArray[np.uint8],
        offsets: npt.NDArray[np.int64],
        starts: npt.NDArray[np.int64],
        stops: npt.NDArray[np.int64],
        is_str: bool,
    ) -> None: ...
    def __iter__(self) -> TextSlices: ...
    def __next__(self) -> npt.NDArray[Any]: ...

def read_json_rows(
    text: npt.NDArray[np.uint8],
    num_rows: int,
    paths: Sequence[tuple[bytes, ...]],
    kinds: str,
    columns: Sequence[npt.NDArray[Any]],
) -> bool:
    """Put the values of objects on lines into columns, one for each of `paths`; return whether all were understood.

    A path is the key of a value, behind those of the objects that it is in. A column is, by its letter in `kinds`:

    - "f", "i", "b": float64, int64, or uint8 for truths; of two dimensions for lists of one length. A number that is
      missing or null is nan in a float64 column of one dimension, and not understood in others.
    - "t": int64, (3, rows): where a text begins, how many bytes it has, and how many when its escapes are replaced; for
      `copy_json_texts`. One that is missing or null has none.
    - "l": int64, (2, rows): where the numbers of a list of any length begin, and how many there are; for
      `read_json_lists`.

    Keys with escapes, halves of letters, and whole numbers of 19 digits are not understood, nor is a wanted key that
    comes twice. Whether `text` is UTF-8 is the caller's to know.

    Raises:
        ValueError: An argument has the wrong type, shape or layout.
    """

def copy_json_texts(
    text: npt.NDArray[np.uint8], found: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]
) -> None:
    """Copy the texts that `read_json_rows` found one after the other, with what their escapes stand for.

    Raises:
        IndexError: A text reaches outside `text` or `out`.
        ValueError: A text has another size than `found` says, or an argument the wrong type, shape or layout.
    """

def read_json_lists(
    text: npt.NDArray[np.uint8],
    found: npt.NDArray[np.int64],
    out: npt.NDArray[Any],
    is_float: bool,
) -> bool:
    """Put the numbers of lists that `read_json_rows` found into `out`, float64 or int64; return whether all are such.

    Raises:
        IndexError: A list begins outside `text`, or there is no room for it in `out`.
        ValueError: An argument has the wrong type, shape or layout.
    """

class ElementIterator:
    """An iterator over the elements of one block after the other: `_elements` gives those of the current one.

    A class derived from it sets `_elements`, and has two methods. `_go_on(elements)` is called when `elements` has no
    more: it sets others, or raises StopIteration. `_fails(error)` is told of an error of `elements`, which is then
    raised.
    """

    _elements: Iterator[Any]
    _count: int
    """How many elements were handed out, on from what it was set to."""

    def __iter__(self) -> Self: ...
    def __next__(self) -> Any: ...
