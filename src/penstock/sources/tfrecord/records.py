"""Records as columns of features, or as bytes; and the errors of bad records."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Index, raw_rows, starts_of, typed
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Fixed, Ragged, Text
from penstock.core.fields import Field, allocate_block, tops_of
from penstock.core.nest import flatten
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import BudgetError, DataError
from penstock.memory import Allocate, format_nbytes, hold_plain
from penstock.sources.images.picture import RULES
from penstock.sources.tfrecord.codec import (
    ExampleCodec,
    cure_of,
    describe_fault,
    named_features,
)
from penstock.sources.tfrecord.feature_lists import ListFault, SequenceLists, Steps, lists_words
from penstock.sources.tfrecord.features import (
    Feature,
    ImageFeature,
    SequenceFeature,
    TensorFeature,
    VarFeature,
    fixed_shape,
)
from penstock.sources.tfrecord.images import Place, RecordImages

HEADER_NBYTES = 12
"""The length of a record, and the checksum of that length."""
FRAME_NBYTES = HEADER_NBYTES + 4
"""What a record takes besides its payload."""
_MALFORMED = _native.RECORD_FAULTS.index("malformed")
_COLUMN_NBYTES = 16 << 10  # What a column may take in any case.
_MEASURED_NBYTES = 64 << 20  # A row that takes more is not measured: the ledger has to count it.
_ROW_NBYTES = 24  # What a row of a column takes besides its values, where rows differ in size.
Bytes = npt.NDArray[np.uint8]


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

    def payload(self, record: int) -> Bytes:
        """Return the bytes of a record."""
        start = int(self.starts[record]) + HEADER_NBYTES
        return self.buffer[start : start + int(self.lengths[record])]


class Records:
    """How records are decoded. Without features, a row is the bytes of a record."""

    def __init__(self, features: Any, *, verify: bool) -> None:
        self.is_raw = features is None
        leaves, self.structure = flatten(b"" if features is None else features)
        named = [] if features is None else list(named_features(features))
        kinds = [isinstance(feature, SequenceFeature) for _, feature in named]
        self.at = [number for number, is_list in enumerate(kinds) if not is_list]
        """Which leaf each feature of the codec is; the others are lists."""
        self.lists_at = [number for number, is_list in enumerate(kinds) if is_list]
        self.codec = ExampleCodec(
            [named[number][0] for number in self.at], [named[number][1] for number in self.at]
        )
        lists = [named[number][1] for number in self.lists_at]
        self.lists = SequenceLists(
            [named[number][0] for number in self.lists_at],
            [one for one in lists if isinstance(one, SequenceFeature)],
        )
        self.verify = verify
        self.sample_nbytes = 0
        """The mean length of the records that were measured."""
        images = {
            number: feature
            for number, feature in enumerate(self.codec.features)
            if isinstance(feature, ImageFeature)
        }
        names = {number: self.codec.names[number] for number in images}
        self.images = RecordImages(images, names, verify=verify)
        specs = [ArraySpec((), bytes)] if self.is_raw else [_spec(leaf) for leaf in leaves]
        self.fields = tuple(Field(spec) for spec in specs)

    def fingerprint(self) -> Any:
        """Return what tells these features from others, as JSON: names, kinds, and what stands for missing ones."""
        return [
            [
                name,
                type(feature).__name__,
                RULES
                if isinstance(feature, ImageFeature)
                else repr(getattr(feature, "default", None)),
            ]
            for name, feature in zip(self.codec.names, self.codec.features, strict=True)
        ] + [
            [name, "SequenceFeature", feature.allow_missing]
            for name, feature in zip(self.lists.names, self.lists.features, strict=True)
        ]

    def measure(self, payloads: Sequence[Bytes]) -> None:
        """Learn from some records how many bytes rows take, where they differ in size."""
        total = sum(payload.size for payload in payloads)
        self.sample_nbytes = total // max(1, len(payloads))
        if self.lists:
            self._measure_lists(payloads)
        varying = [
            number
            for number in range(len(self.codec.names) or int(self.is_raw))
            if number in self.images or self._field(number).storage_shape is None
        ]
        if not varying:
            return
        if self.is_raw:
            sizes = np.array([[payload.size + 16] for payload in payloads], np.int64)
        else:
            # Of these features only: rows of one size may take any amount of memory.
            sizes = self._measured(payloads, varying)
        if len(sizes):
            means = sizes.sum(axis=0) // len(sizes) + _ROW_NBYTES
            fields = list(self.fields)
            for number, mean in zip(varying, means.tolist(), strict=True):
                if self._field(number).storage_shape is None:
                    at = number if self.is_raw else self.at[number]
                    fields[at] = Field(fields[at].spec, estimate=mean)
            self.fields = tuple(fields)

    def _field(self, number: int) -> Field:
        """Return the field of a feature of the codec."""
        return self.fields[number if self.is_raw else self.at[number]]

    def _measure_lists(self, payloads: Sequence[Bytes]) -> None:
        totals = np.zeros(len(self.lists), np.int64)
        count = 0
        for payload in payloads:
            start, length = np.zeros(1, np.int64), np.array([payload.size], np.int64)
            try:
                lists, faults = self.lists.decode(
                    payload, start, length, framed=False, most=_MEASURED_NBYTES
                )
            except OverflowError:
                continue
            if not faults:
                count += 1
                totals += [self.lists.nbytes(number, one) for number, one in enumerate(lists)]
        fields = list(self.fields)
        for at, total in zip(self.lists_at, totals.tolist(), strict=True):
            fields[at] = Field(fields[at].spec, estimate=total // max(1, count) + _ROW_NBYTES)
        self.fields = tuple(fields)

    def _measured(self, payloads: Sequence[Bytes], varying: Sequence[int]) -> Index:
        """Return the bytes that each of these features takes, a row for each good record."""
        codec = ExampleCodec(
            [self.codec.names[number] for number in varying],
            [self.codec.features[number] for number in varying],
        )
        found: list[list[int]] = []
        for payload in payloads:
            try:
                columns, _, _ = _native.tfrecord_decode(
                    payload,
                    np.zeros(1, np.int64),
                    np.array([payload.size], np.int64),
                    codec.plan,
                    [None] * len(varying),
                    verify=False,
                    framed=False,
                    most=_MEASURED_NBYTES,
                )
            except (_native.RecordError, OverflowError):
                continue  # It is raised, or counted, when rows are read that far.
            sizes = [sum(part.nbytes for part in parts or ()) for parts in columns]
            for place, (number, parts) in enumerate(zip(varying, columns, strict=True)):
                if number in self.images and parts is not None:
                    sizes[place] = self.images.pixels_nbytes(number, parts[0].view(np.uint8))
            found.append(sizes)
        return np.array(found, np.int64).reshape(-1, len(varying))

    def expect(self, lengths: Index) -> None:
        """Expect rows of records with these lengths, which hold as much of each feature as those measured."""
        mean = max(1, self.sample_nbytes)
        tops = tops_of(lengths)
        self.fields = tuple(
            field
            if field.storage_shape is not None
            else replace(
                field,
                tops=tuple(
                    nbytes * field.nbytes // mean + (field.nbytes << power)
                    for power, nbytes in enumerate(tops)
                ),
            )
            for field in self.fields
        )

    def decoding_nbytes(self, num_rows: int) -> int:
        """Return the bytes that columns take on their way to a block, where rows differ in size."""
        varying = [field for field in self.fields if field.storage_shape is None]
        if self.is_raw or not (varying or self.images):
            return 0
        most = sum(max(2 * num_rows * one.nbytes, one.most_nbytes(num_rows)) for one in varying)
        if self.images:  # As they are stored, and the pixels of one.
            most += 2 * num_rows * self.sample_nbytes + self.images.picture_nbytes
        if self.lists:  # As Examples, and with the sizes of their steps.
            most += 4 * num_rows * self.sample_nbytes
        return most + (len(varying) + len(self.images)) * _COLUMN_NBYTES

    def read(self, found: Found, out: Block, context: Context) -> None:
        """Decode all of these records into a block; raise for the first bad one."""
        if _is_uniform(out):
            self._decode(found, out, context)
            return
        # The columns are laid out in different ways, as in batches of batches: decode elsewhere, then copy.
        block = allocate_block(self.fields, len(found.starts), context.allocate, aligned=False)
        self._decode(found, block, context)
        out.copy_from(block.finish(), np.arange(len(found.starts)))

    def job(self, fd: int, begins: Index, ends: Index, out: Block) -> _native.Job:
        """Return the job that reads and decodes records of a file into a block whose rows all have one size."""
        fixed = [sink for sink in out.sinks if isinstance(sink, Fixed)]
        outs = [raw_rows(sink.grouped, 2) for sink in fixed]
        at = fixed[0].slots
        return _native.record_job(fd, begins, ends, self.codec.plan, outs, self.verify, at=at)

    def attempt(self, found: Found, out: Block, context: Context) -> list[DataError]:
        """Decode records into a block, and return the errors of the bad ones.

        If there are errors, the block is of no use: decode the good records into another one.
        """
        if self.is_raw:
            errors = self._bad_records(found, out, context)
            if not errors:
                self._put_payloads(found, out)
            return errors
        try:
            self._decode(found, out, context)
        except DataError:
            return self._bad_records(found, out, context)
        return []

    def _decode(self, found: Found, out: Block, context: Context) -> None:
        if self.is_raw:
            for error in self._bad_records(found, out, context):
                raise error
            self._put_payloads(found, out)
            return
        try:
            with self._decoded(found, out, context, skip=False) as (columns, _, _):
                for number, feature in enumerate(self.codec.features):
                    parts, sink = columns.pop(0), out.sinks[self.at[number]]
                    if number in self.images:
                        spec = self._field(number).spec
                        self.images.decode(number, parts, found.place, spec, sink, context)
                    elif isinstance(sink, Pieces) and parts is not None:
                        sink.add(_column(feature, list(parts), sink.allocate))
            if self.lists:
                self._decode_lists(found, out, context)
        except _native.RecordError as error:
            if (
                self.images or self.lists
            ):  # An image or a list of an earlier record may be bad, too.
                raise self._bad_records(found, out, context)[0] from None
            raise self._error(
                found, error.record, error.offset, error.feature, error.kind, error.found
            ) from None
        except DataError:
            if len(self.images) + len(self.lists) > 1:
                raise self._bad_records(found, out, context)[0] from None
            raise

    @contextmanager
    def _decoded(self, found: Found, out: Block, context: Context, *, skip: bool) -> Iterator[Any]:
        """Give what the native decoder returns; where that is more than was planned, the ledger counts it."""
        mine = [out.sinks[at] for at in self.at]
        sinks = [None if number in self.images else s for number, s in enumerate(mine)]
        fixed = [sink for sink in sinks if isinstance(sink, Fixed)]
        outs = [raw_rows(s.grouped, 2) if isinstance(s, Fixed) else None for s in sinks]
        decode = partial(
            _native.tfrecord_decode,
            found.buffer,
            found.starts,
            found.lengths,
            self.codec.plan,
            [] if self.is_raw else outs,
            self.verify,
            at=fixed[0].slots if fixed else None,
            skip=skip,
        )
        most = planned = self.decoding_nbytes(len(found.starts))
        while True:
            try:
                with hold_plain(0) if most == planned else context.hold(most):
                    try:
                        decoded = decode(most=most)
                    except OverflowError:
                        most *= 2
                        continue
                    yield decoded
                    return
            except BudgetError as error:
                raise self._too_large(found, most, context) from error

    def _too_large(self, found: Found, nbytes: int, context: Context) -> BudgetError:
        """Return the error for records that the budget has no room for: it names the largest of them."""
        largest = int(found.lengths.argmax())
        file, row, start = found.place(largest)
        # An int takes a byte or more in the file, and 8 in memory.
        most = max(nbytes, 8 * int(found.lengths[largest]))
        return too_large(file, row, start, most, context, "decoding it")

    def _put_payloads(self, found: Found, out: Block) -> None:
        (sink,) = out.sinks
        assert isinstance(sink, Pieces)
        offsets = np.zeros(len(found.starts) + 1, np.int64)
        np.cumsum(found.lengths, out=offsets[1:])
        data = sink.allocate(int(offsets[-1]))
        _native.gather_spans(
            found.buffer, found.starts + HEADER_NBYTES, found.lengths, data, offsets[:-1].copy()
        )
        sink.add(Text(data, offsets, bytes))

    def _bad_records(self, found: Found, out: Block, context: Context) -> list[DataError]:
        """Return the error of each bad record; decodes all of them, to be thrown away."""
        bad_images: list[DataError] = []
        with self._decoded(found, out, context, skip=True) as (columns, is_bad, errors):
            if self.images:
                bad_images = self.images.bad(columns, is_bad, found.place, self._field, context)
        if self.is_raw:
            errors = errors[errors[:, 3] != _MALFORMED]  # Raw records need not be Examples.
        found_errors = [
            self._error(found, record, offset, feature, _native.RECORD_FAULTS[fault], came)
            for record, offset, feature, fault, came in errors.tolist()
        ]
        bad_lists: list[DataError] = []
        if self.lists:
            _, faults = self._lists_of(found, context)
            bad_lists = [self._list_error(found, fault) for fault in faults]
        first: dict[int | None, DataError] = {}
        for error in (*found_errors, *bad_images, *bad_lists):
            first.setdefault(error.row, error)
        return sorted(first.values(), key=lambda error: error.row or 0)

    def _decode_lists(self, found: Found, out: Block, context: Context) -> None:
        """Decode the feature lists of records to their columns; raise for the first bad one."""
        lists, faults = self._lists_of(found, context)
        if faults:
            raise self._list_error(found, faults[0])
        for number, one in enumerate(lists):
            sink = out.sinks[self.lists_at[number]]
            assert isinstance(sink, Pieces)
            nbytes = self.lists.nbytes(number, one)
            try:
                sink.add(self.lists.column(number, one, sink.allocate))
            except BudgetError as error:
                raise self._too_large(found, nbytes, context) from error

    def _lists_of(self, found: Found, context: Context) -> tuple[list[Steps], list[ListFault]]:
        """Return the feature lists of records; where they take more than was planned, the ledger counts it."""
        most = planned = self.decoding_nbytes(len(found.starts))
        while True:
            try:
                with hold_plain(0) if most == planned else context.hold(most):
                    return self.lists.decode(
                        found.buffer, found.starts, found.lengths, framed=True, most=most
                    )
            except OverflowError:
                most *= 2
            except BudgetError as error:
                raise self._too_large(found, most, context) from error

    def _list_error(self, found: Found, fault: ListFault) -> DataError:
        file, row, start = found.place(fault.record)
        name, more = "", ""
        if fault.feature >= 0:
            name = f"feature list '{self.lists.names[fault.feature]}' "
        if fault.is_missing:
            more = lists_words(found.payload(fault.record))
        return DataError(f"{name}{fault.problem}{more}", file=file, offset=start, row=row)

    def _error(
        self, found: Found, record: int, offset: int, feature: int, kind: str, came: int
    ) -> DataError:
        problem = describe_fault(kind, came, self.codec.features[feature] if feature >= 0 else None)
        name = ""
        if feature >= 0:
            name = f"feature '{self.codec.names[feature]}' "
            problem += cure_of(kind, self.codec.names[feature], found.payload(record))
        file, row, start = found.place(record)
        return DataError(f"{name}{problem}", file=file, offset=start + offset, row=row)


def too_large(
    file: str, row: int, offset: int, nbytes: int, context: Context, what: str
) -> BudgetError:
    """Return the error for a record that takes more than the budget has left."""
    budget = context.budget or 0
    return BudgetError(
        f"{file}, byte {offset}, row {row}: {what} takes {format_nbytes(nbytes)}, more than the memory budget of "
        f"{format_nbytes(budget)} has left. Write with_options(memory={2 * (budget + 2 * nbytes)}), or more.",
        is_final=True,
    )


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
