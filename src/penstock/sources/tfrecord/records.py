"""Records as columns of features, or as bytes; and the errors of bad records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Index, raw_rows, starts_of, typed
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Fixed, Ragged, Text
from penstock.core.fields import Field, allocate_block
from penstock.core.nest import flatten
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.memory import Allocate, allocate_plain
from penstock.sources.tfrecord.codec import ExampleCodec, describe_fault
from penstock.sources.tfrecord.features import Feature, TensorFeature, VarFeature, fixed_shape

HEADER_NBYTES = 12
"""The length of a record, and the checksum of that length."""
FRAME_NBYTES = HEADER_NBYTES + 4
"""What a record takes besides its payload."""
_MALFORMED = _native.RECORD_FAULTS.index("malformed")
_ROW_NBYTES = 24  # What a row of a column takes besides its values, where rows differ in size.
Bytes = npt.NDArray[np.uint8]
Place = Callable[[int], tuple[str, int, int]]
"""The file of record j of a call, the record's number in it, and the byte where it starts."""


@dataclass(frozen=True, slots=True)
class Found:
    """Records in memory: record j starts at `starts[j]` and has a payload of `lengths[j]` bytes."""

    buffer: Bytes
    starts: Index
    lengths: Index
    place: Place

    def only(self, rows: Index) -> "Found":
        """Return these records only."""
        names = rows.tolist()
        return Found(
            self.buffer, self.starts[rows], self.lengths[rows], lambda row: self.place(names[row])
        )


class Records:
    """How records are decoded. Without features, a row is the bytes of a record."""

    def __init__(self, features: Any, *, verify: bool) -> None:
        self.is_raw = features is None
        self.codec = ExampleCodec([], []) if features is None else ExampleCodec.of(features)
        leaves, self.structure = flatten(b"" if features is None else features)
        self.verify = verify
        specs = [ArraySpec((), bytes)] if self.is_raw else [_spec(leaf) for leaf in leaves]
        self.fields = tuple(Field(spec) for spec in specs)

    def fingerprint(self) -> Any:
        """Return what tells these features from others, as JSON: names, kinds, and what stands for missing ones."""
        return [
            [name, type(feature).__name__, repr(getattr(feature, "default", None))]
            for name, feature in zip(self.codec.names, self.codec.features, strict=True)
        ]

    def measure(self, payloads: Sequence[bytes]) -> None:
        """Learn from some records how many bytes rows take, where they differ in size."""
        if not payloads:
            return
        ends = np.cumsum([0, *map(len, payloads)])
        buffer = np.frombuffer(b"".join(payloads), np.uint8)
        found = Found(buffer, ends[:-1].astype(np.int64), np.diff(ends), lambda row: ("", row, 0))
        bad = self._bad(found, is_framed=False)
        good = found.only(np.flatnonzero(~bad))
        size = len(good.starts)
        if not size:
            return
        block = allocate_block(self.fields, size, allocate_plain, aligned=False)
        self._decode(good, block, is_framed=False)
        self.fields = tuple(
            field
            if isinstance(column, Fixed)
            else Field(field.spec, estimate=column.nbytes // size + _ROW_NBYTES)
            for field, column in zip(self.fields, block.finish().columns, strict=True)
        )

    def read(self, found: Found, out: Block, context: Context) -> None:
        """Decode all of these records into a block; raise for the first bad one."""
        if _is_uniform(out):
            self._decode(found, out)
            return
        # The columns are laid out in different ways, as in batches of batches: decode elsewhere, then copy.
        block = allocate_block(self.fields, len(found.starts), context.allocate, aligned=False)
        self._decode(found, block)
        out.copy_from(block.finish(), np.arange(len(found.starts)))

    def attempt(self, found: Found, out: Block) -> list[DataError]:
        """Decode records into a block, and return the errors of the bad ones.

        If there are errors, the block is of no use: decode the good records into another one.
        """
        if self.is_raw:
            errors = self._bad_records(found, is_framed=True)
            if not errors:
                self._put_payloads(found, out, is_framed=True)
            return errors
        try:
            self._decode(found, out)
        except DataError:
            return self._bad_records(found, is_framed=True)
        return []

    def _decode(self, found: Found, out: Block, *, is_framed: bool = True) -> None:
        if self.is_raw:
            for error in self._bad_records(found, is_framed=is_framed):
                raise error
            self._put_payloads(found, out, is_framed=is_framed)
            return
        fixed = [sink for sink in out.sinks if isinstance(sink, Fixed)]
        try:
            columns, _, _ = _native.tfrecord_decode(
                found.buffer,
                found.starts,
                found.lengths,
                self.codec.plan,
                [raw_rows(s.grouped, 2) if isinstance(s, Fixed) else None for s in out.sinks],
                self.verify and is_framed,
                framed=is_framed,
                at=fixed[0].slots if fixed else None,
            )
        except _native.RecordError as error:
            raise self._error(
                found, error.record, error.offset, error.feature, error.kind, error.found
            ) from None
        for feature, sink, parts in zip(self.codec.features, out.sinks, columns, strict=True):
            if isinstance(sink, Pieces) and parts is not None:
                sink.add(_column(feature, list(parts), sink.allocate))

    def _put_payloads(self, found: Found, out: Block, *, is_framed: bool) -> None:
        (sink,) = out.sinks
        assert isinstance(sink, Pieces)
        offsets = np.zeros(len(found.starts) + 1, np.int64)
        np.cumsum(found.lengths, out=offsets[1:])
        data = sink.allocate(int(offsets[-1]))
        starts = found.starts + HEADER_NBYTES if is_framed else found.starts
        _native.gather_spans(found.buffer, starts, found.lengths, data, offsets[:-1].copy())
        sink.add(Text(data, offsets, bytes))

    def _bad_records(self, found: Found, *, is_framed: bool) -> list[DataError]:
        """Return the error of each bad record."""
        _, _, errors = self._try(found, is_framed=is_framed)
        if self.is_raw:
            errors = errors[errors[:, 3] != _MALFORMED]  # Raw records need not be Examples.
        return [
            self._error(found, record, offset, feature, _native.RECORD_FAULTS[fault], came)
            for record, offset, feature, fault, came in errors.tolist()
        ]

    def _bad(self, found: Found, *, is_framed: bool) -> npt.NDArray[np.bool_]:
        if self.is_raw:
            return np.zeros(len(found.starts), np.bool_)
        bad: npt.NDArray[np.bool_] = self._try(found, is_framed=is_framed)[1]
        return bad

    def _try(self, found: Found, *, is_framed: bool) -> Any:
        """Decode into memory that is thrown away, going on after bad records, and return their errors."""
        size = len(found.starts)
        block = allocate_block(self.fields, size, allocate_plain, aligned=False)
        outs = [raw_rows(s.grouped, 2) if isinstance(s, Fixed) else None for s in block.sinks]
        return _native.tfrecord_decode(
            found.buffer,
            found.starts,
            found.lengths,
            self.codec.plan,
            [] if self.is_raw else outs,
            self.verify and is_framed,
            framed=is_framed,
            skip=True,
        )

    def _error(
        self, found: Found, record: int, offset: int, feature: int, kind: str, came: int
    ) -> DataError:
        problem = describe_fault(kind, came, self.codec.features[feature] if feature >= 0 else None)
        name = f"feature '{self.codec.names[feature]}' " if feature >= 0 else ""
        file, row, start = found.place(record)
        return DataError(f"{name}{problem}", file=file, offset=start + offset, row=row)


def frame_error(error: _native.RecordError, *, file: str, row: int, offset: int) -> DataError:
    """Return the error for a record whose beginning or end is not where it should be."""
    return DataError(describe_fault(error.kind, error.found), file=file, offset=offset, row=row)


def _spec(feature: Feature) -> ArraySpec:
    return ArraySpec(feature.shape, feature.dtype)


def _is_uniform(out: Block) -> bool:
    """Return whether all columns of fixed rows have the same slots in the same groups."""
    fixed = [sink for sink in out.sinks if isinstance(sink, Fixed)]
    return all(
        sink.grouped.shape[:2] == fixed[0].grouped.shape[:2]
        and (sink.slots is fixed[0].slots or _are_equal(sink.slots, fixed[0].slots))
        for sink in fixed[1:]
    )


def _are_equal(mine: Index | None, theirs: Index | None) -> bool:
    return mine is not None and theirs is not None and np.array_equal(mine, theirs)


def _column(feature: Feature, parts: list[Any], allocate: Allocate) -> Text | Ragged:
    """Return a column that the native decoder made, in memory that the ledger counts."""
    has_shapes = isinstance(feature, TensorFeature) and None in feature.shape
    shapes = parts.pop() if has_shapes else None
    sizes: Index = parts.pop()
    if shapes is None and isinstance(feature, VarFeature):
        shapes = sizes.reshape(-1, 1)
    elif shapes is None:
        shape = np.array(fixed_shape(feature.shape), np.int64)
        shapes = np.broadcast_to(shape, (len(sizes), len(shape))).copy()
    data = allocate(parts[0].size)
    data[: parts[0].size] = parts[0]
    if isinstance(feature.dtype, np.dtype):
        width = feature.dtype.itemsize
        values = typed(data, 0, (parts[0].size // width,), feature.dtype)
        return Ragged(values, starts_of(sizes, width, aligned=False), shapes)
    text = Text(data, parts[1], feature.dtype)
    return text if feature.shape == () else Ragged(text, starts_of(sizes, 1, aligned=False), shapes)
