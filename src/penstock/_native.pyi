"""Kernels that run at memory speed, without the interpreter lock.

All arguments are checked. After an exception the content of `out` is unspecified.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from _typeshed import ReadableBuffer

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
) -> None:
    """Write to `out[:, lane]` the rows of the blocks of that lane, in the order of `permute` with `keys[lane]`.

    A lane has `len(out)` rows, in blocks of `block_rows`; block k of all lanes, one lane after the other, stands
    for the rows from `places[k] * block_rows` on. Takes 80 bytes a row of `out`.

    Raises:
        ValueError: An argument has the wrong type, shape or layout.
    """

def gather(
    source: npt.NDArray[np.uint8],
    rows: npt.NDArray[np.int64],
    out: npt.NDArray[np.uint8],
    at: npt.NDArray[np.int64] | None = None,
) -> None:
    """Copy `source[rows[j]]` to slot j (or `at[j]`) of `out`, for each j.

    `source` is (rows, row_nbytes), with any row stride, and may be read-only. `out` is (groups,
    group_rows, row_nbytes): slot s is `out[s // group_rows, s % group_rows]`. Only the last axes must be
    contiguous. `out` must share no memory with `source` or with itself. Takes no memory.

    Raises:
        IndexError: A row or a slot is out of range.
        ValueError: An argument has the wrong type, shape or layout.
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
