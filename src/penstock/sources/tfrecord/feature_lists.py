"""The feature lists of tf.train.SequenceExamples, as columns: a row is as long as its record has steps."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Array, Index, typed
from penstock.core.columns import Ragged, Text
from penstock.memory import Allocate
from penstock.sources.tfrecord.codec import ExampleCodec, describe_fault
from penstock.sources.tfrecord.features import SequenceFeature, VarFeature, dtype_name, fixed_shape

_MOST_NAMED = 10  # Lists of a record, in a message.
_FIRST_TAG = 0x0A  # Of a record, its context; of its lists, an entry; of an entry, its name.
_LISTS_TAG = 0x12
_NO_SEQUENCE = (
    "the record must be a tf.train.SequenceExample whose lists have steps of one kind, and is not; "
    "read other records with raw=True."
)


@dataclass(frozen=True, slots=True)
class ListFault:
    """What is wrong with a record: which list it is about, -1 for none, and in words."""

    record: int
    feature: int
    problem: str
    is_missing: bool = False
    """Whether the record has no such list."""


@dataclass(frozen=True, slots=True)
class Steps:
    """One list of many records, as the native decoder made it."""

    parts: tuple[Array, ...]
    """The values, and of text where each begins, without the number of values of each record."""
    num_steps: Index
    """Of each record."""
    counts: Index
    """The values of each step."""


class SequenceLists:
    """The lists that are wanted of each record."""

    def __init__(self, names: Sequence[str], features: Sequence[SequenceFeature]) -> None:
        self.names = list(names)
        self.features = list(features)
        self.codec = ExampleCodec(names, [VarFeature(one.dtype) for one in features])

    def __len__(self) -> int:
        return len(self.names)

    def decode(
        self, buffer: Any, starts: Index, lengths: Index, *, framed: bool, most: int
    ) -> tuple[list[Steps], list[ListFault]]:
        """Return the lists of records, and what is wrong with bad ones: if there are any, the lists are of no use.

        Raises OverflowError if the values take more than `most` bytes.
        """
        data, at, sizes, steps, counts, bad = _native.sequence_lists(
            buffer, starts, lengths, self.names, framed=framed
        )
        columns, _, errors = _native.tfrecord_decode(
            data,
            at,
            sizes,
            self.codec.plan,
            [None] * len(self),
            verify=False,
            framed=False,
            skip=True,
            most=most,
        )
        faults = {int(record): ListFault(int(record), -1, _NO_SEQUENCE) for record in bad}
        for record, _, number, fault, found in errors.tolist():
            kind = _native.RECORD_FAULTS[fault]
            # What a list must be is what its values must be.
            problem = describe_fault(kind, found, self.codec.features[number])
            faults.setdefault(record, ListFault(record, number, problem))
        lists = []
        for number, parts in enumerate(columns):
            assert parts is not None
            one = Steps(tuple(parts[:-1]), np.maximum(steps[:, number], 0), counts[number])
            for record, problem in self._wrong(number, steps[:, number], one):
                is_missing = bool(steps[record, number] == -1)
                faults.setdefault(record, ListFault(record, number, problem, is_missing))
            lists.append(one)
        return lists, [faults[record] for record in sorted(faults)]

    def _wrong(self, number: int, steps: Index, one: Steps) -> list[tuple[int, str]]:
        """Return the records that lack a list, or have a step of another size, and why that is wrong."""
        feature = self.features[number]
        found: list[tuple[int, str]] = []
        if not feature.allow_missing:
            problem = (
                "must be in every record, and is missing; allow_missing=True reads it as no steps."
            )
            found += [(int(record), problem) for record in np.flatnonzero(steps == -1)]
        if None not in feature.step_shape:
            size = math.prod(fixed_shape(feature.step_shape))
            wrong = np.flatnonzero(one.counts != size)
            owners = np.repeat(np.arange(len(one.num_steps)), one.num_steps)
            for step in wrong.tolist():
                record = int(owners[step])
                place = step - int(one.num_steps[:record].sum())
                wanted = f"{feature.step_shape} {dtype_name(feature.dtype)}"
                problem = (
                    f"must have the values of {wanted} in each step, got {one.counts[step]} of them in step {place}; "
                    "write (None,) for steps of any length."
                )
                found.append((record, problem))
        return found

    def nbytes(self, number: int, one: Steps) -> int:
        """Return the bytes of the column of a list, with what stands for shorter steps."""
        feature = self.features[number]
        nbytes = sum(part.nbytes for part in one.parts)
        if None in feature.step_shape:
            width = feature.dtype.itemsize if isinstance(feature.dtype, np.dtype) else 8
            nbytes += width * int((one.num_steps * _longest(one)).sum())
        return nbytes

    def column(self, number: int, one: Steps, allocate: Allocate) -> Ragged:
        """Return the column of a list, in memory that the ledger counts."""
        feature = self.features[number]
        if None in feature.step_shape:
            return _padded(feature, one, allocate)
        size = math.prod(fixed_shape(feature.step_shape))
        shapes = np.empty((len(one.num_steps), 1 + len(feature.step_shape)), np.int64)
        shapes[:, 0] = one.num_steps
        shapes[:, 1:] = fixed_shape(feature.step_shape)
        starts = _starts(one.num_steps * size)
        if not isinstance(feature.dtype, np.dtype):
            text = Text(_copied(one.parts[0], allocate), one.parts[1], feature.dtype)
            return Ragged(text, starts, shapes)
        width = feature.dtype.itemsize
        nbytes = one.parts[0].size
        values = typed(_copied(one.parts[0], allocate), 0, (nbytes // width,), feature.dtype)
        return Ragged(values, starts, shapes)


def _padded(feature: SequenceFeature, one: Steps, allocate: Allocate) -> Ragged:
    """Return steps of any length, each padded to the longest of its record."""
    firsts, widths = _starts(one.num_steps), _longest(one)
    shapes = np.column_stack([one.num_steps, widths])
    starts = _starts(shapes.prod(axis=1))
    total = int(shapes.prod(axis=1).sum())
    owners = np.repeat(np.arange(len(one.num_steps)), one.num_steps)
    places = starts[owners] + (np.arange(len(owners)) - firsts[owners]) * widths[owners]
    # Where each value goes: they keep their order.
    sources = np.repeat(_starts(one.counts), one.counts)
    at = np.repeat(places, one.counts) + np.arange(len(sources)) - sources
    if not isinstance(feature.dtype, np.dtype):
        lengths = allocate(8 * total)[: 8 * total].view(np.int64)
        lengths[:] = 0
        lengths[at] = np.diff(one.parts[1])
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Ragged(Text(_copied(one.parts[0], allocate), offsets, feature.dtype), starts, shapes)
    values = typed(allocate(total * feature.dtype.itemsize), 0, (total,), feature.dtype)
    values[:] = 0
    values[at] = one.parts[0].view(feature.dtype)
    return Ragged(values, starts, shapes)


def _longest(one: Steps) -> Index:
    """Return the most values that a step of each record has."""
    widths = np.zeros(len(one.num_steps), np.int64)
    full = np.flatnonzero(one.num_steps)
    if len(full):
        widths[full] = np.maximum.reduceat(one.counts, _starts(one.num_steps)[full])
    return widths


def _starts(sizes: Index) -> Index:
    return np.cumsum(sizes) - sizes


def _copied(data: Array, allocate: Allocate) -> Array:
    memory = allocate(data.size)
    memory[: data.size] = data
    return memory


def has_lists(record: Any) -> bool:
    """Return whether a record has feature lists, where a tf.train.Example has nothing."""
    data, at = bytes(record), 0
    while at < len(data):
        tag, at = _varint(data, at)
        if tag == _LISTS_TAG:
            return True
        if tag != _FIRST_TAG:  # Neither a context nor lists: it is something else.
            return False
        length, at = _varint(data, at)
        at += length
    return False


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return value, at


def list_names(record: bytes) -> list[str]:
    """Return the names of the feature lists of a record; raise ValueError if it can't be read."""
    return sorted(
        name.decode()
        for lists in _parts(record, _LISTS_TAG)
        for entry in _parts(lists, _FIRST_TAG)
        for name in _parts(entry, _FIRST_TAG)
    )


def lists_words(record: Any) -> str:
    """Return which feature lists a record has, for messages; '' if it can't be read."""
    try:
        names = list_names(bytes(record))
    except ValueError:  # It is cut off, or a name is no UTF-8.
        return ""
    if not names:
        return " The record has no feature lists: FixedFeature and VarFeature read those of a tf.train.Example."
    shown = ", ".join(map(repr, names[:_MOST_NAMED]))
    return f" The record has {shown}{' and more' if len(names) > _MOST_NAMED else ''}."


def _parts(message: bytes, wanted: int) -> Iterator[bytes]:
    """Yield the messages or texts with one tag of a protobuf message; raise ValueError where it can't be read."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        size, at = _varint(message, at)
        if tag & 7 != 2 or at + size > len(
            message
        ):  # 2: a message or text, which all of these are.
            raise ValueError
        if tag == wanted:
            yield message[at : at + size]
        at += size
