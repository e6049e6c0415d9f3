"""write(format="tfrecord"): a folder of TFRecord files with a tf.train.Example for each row."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import raw_rows
from penstock.core.blocks import Block
from penstock.core.columns import Column, Fixed, Text
from penstock.core.fields import Field
from penstock.core.nest import field_names
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import RangeError
from penstock.io.failures import write_errors
from penstock.memory import allocate_plain
from penstock.sources.tfrecord.codec import ExampleCodec
from penstock.sources.tfrecord.features import Feature, FixedFeature, TensorFeature, VarFeature
from penstock.writers.job import Job
from penstock.writers.parts import write_parts

_LISTED = {"float32", "int64"}  # Dtypes that a list of a tf.train.Example holds unchanged.
_ANY = 'or write format="npy", which holds every dtype.'
_REFUSED = re.compile(
    r"row (\d+) of feature '(.*)' (.*)\.", re.DOTALL
)  # What the native encoder says.


def write(job: Job) -> None:
    """Write all rows; takes the memory of a stream, and of one block of encoded records."""
    write_parts(job, Encoder)


class Encoder:
    """Makes records of rows: float32 and int64 as lists, text as bytes, all else as tensors."""

    suffix = ".tfrecord"

    def __init__(self, node: Node) -> None:
        if node.is_batched:
            raise ValueError(
                f"a TFRecord holds rows, and {node.describe()} makes batches of them; "
                "write before batching, or after .unbatch()."
            )
        self.fields = node.fields
        names = field_names(node.structure)
        _check_names(names)
        features = [
            _named_feature(name, field.spec) for name, field in zip(names, node.fields, strict=True)
        ]
        self.codec = ExampleCodec(names, features)

    def encode(self, block: Block, size: int, first_row: int) -> tuple[Any, int]:
        """Return the first `size` rows as framed records and where each begins and ends; and all their bytes."""
        columns = [
            _native_column(column, field, feature, size)
            for column, field, feature in zip(
                block.columns, self.fields, self.codec.features, strict=True
            )
        ]
        try:
            data, offsets = _native.example_encode(self.codec.plan, columns, size)
        except ValueError as error:
            raise _refusal(error, first_row) from None
        return (data, offsets), data.nbytes

    def open(self, path: Path, first_row: int) -> "RecordFile":
        """Return a new file."""
        return RecordFile(path)


def _check_names(names: Sequence[str]) -> None:
    """Raise if two fields have one name in a record, or one has a name that is none there."""
    for name in names:
        if names.count(name) > 1:
            raise ValueError(
                f"{names.count(name)} fields have the same name in a record, {name!r}: the keys of a nest are joined "
                "by dots; rename one of them first with map."
            )
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"names of features in a record are UTF-8, got {name!r}; rename it first with map."
            ) from None


def _named_feature(name: str, spec: ArraySpec) -> Feature:
    try:
        return feature_of(spec)
    except TypeError:
        raise TypeError(
            f"field {name!r} is {dtype_name(spec.dtype)}, which a TFRecord does not hold; {_cure(spec)}"
        ) from None


def _cure(spec: ArraySpec) -> str:
    """Return what to do about a dtype that records do not have."""
    dtype = spec.numpy_dtype
    if dtype.names is not None:
        return f"make a dict of its columns with map, {_ANY}"
    if dtype.kind in "US":
        kind = "str" if dtype.kind == "U" else "bytes"
        how = f"map({kind})" if not spec.shape else "map(lambda row: row.tolist())"
        return f"make {kind} of any length of it with {how}, {_ANY}"
    if dtype.kind in "mM":
        return f'make numbers of it with map, row.astype("int64"), {_ANY}'
    if dtype.kind == "c":
        return f"map it to complex64 or complex128, {_ANY}"
    if dtype.kind == "f":
        return f"map it to float32 or float64, {_ANY}"
    return f"make bytes of it with map(bytes), {_ANY}"


def _refusal(error: ValueError, first_row: int) -> Exception:
    """Return the error of a row that can't be encoded, with its number among all rows."""
    found = _REFUSED.fullmatch(str(error))
    if found is None:
        return error
    row, name, why = first_row + int(found[1]), found[2], found[3]
    if why == "must be UTF-8":
        return RangeError(
            f"field {name!r} has, in row {row}, text that is no UTF-8 (a lone surrogate); encode it with map, "
            'text.encode("utf-8", "surrogatepass"), and write bytes.'
        )
    return ValueError(f"row {row} of feature {name!r} {why}.")


def feature_of(spec: ArraySpec) -> Feature:
    """Return the feature that a field is written as, and read back with."""
    rank = len(spec.shape)
    is_plain = spec.is_text or spec.numpy_dtype.name in _LISTED
    is_number = (
        not spec.is_text and spec.numpy_dtype.name != "uint64" and spec.numpy_dtype.kind in "biu"
    )
    if spec.shape == (None,) and is_plain:
        return VarFeature(spec.dtype)
    if None not in spec.shape and ((is_plain and rank < 2) or (is_number and rank == 0)):
        return FixedFeature([size for size in spec.shape if size is not None], spec.dtype)
    return TensorFeature(spec.shape, spec.dtype)


def _native_column(column: Column, field: Field, feature: Feature, size: int) -> Any:
    """Return a column in the form that the native encoder reads."""
    if isinstance(column, Fixed):
        rows = column.rows[:size]
        if not rows.dtype.isnative:
            rows = rows.astype(field.spec.numpy_dtype.newbyteorder("="))
        return raw_rows(rows[np.newaxis], 2)
    packed = column.take(np.arange(size), allocate_plain)  # One after the other, without gaps.
    if isinstance(packed, Text):
        return packed.data[: packed.offsets[-1]], packed.offsets, np.ones(size, np.int64)
    sizes = packed.shapes.prod(axis=1, dtype=np.int64)
    parts: tuple[Any, ...]
    if isinstance(packed.values_, Text):
        text = packed.values_
        parts = (text.data[: text.offsets[-1]], text.offsets, sizes)
    else:
        values = packed.values_
        if not values.dtype.isnative:
            values = values.astype(values.dtype.newbyteorder("="))
        parts = (raw_rows(values, 0), sizes)
    if isinstance(feature, TensorFeature) and None in feature.shape:
        parts = (*parts, np.ascontiguousarray(packed.shapes))
    return parts


class RecordFile:
    """A file of framed records."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with write_errors(path):
            self.file = path.open("wb")

    def add(self, encoded: Any, start: int, stop: int) -> None:
        """Write framed records."""
        data, offsets = encoded
        with write_errors(self.path):
            self.file.write(data[offsets[start] : offsets[stop]])

    def finish(self) -> None:
        """Bring all records to the disk."""
        with write_errors(self.path):
            self.file.flush()
            os.fsync(self.file.fileno())

    def close(self) -> None:
        """Close the file."""
        with write_errors(self.path):
            self.file.close()
