"""The codec of tf.train.Examples: its native plan, features inferred, single records encoded and decoded.

A record is read as protobuf reads it: fields in any order, lists packed or not and in several parts,
unknown fields passed over, submessages merged, the last of equal keys. Features are checked as
`tf.io.parse_example` checks them. Where the two disagree, protobuf wins: `parse_example` refuses
unknown fields inside `Features`, reads only the first list of a `Feature` and only its first part, and
lets an earlier `Feature` of the same name through where a later one without a list should hide it.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from penstock import _native
from penstock.errors import RecordError
from penstock.io.inner import in_memory
from penstock.sources.images.decoders import open_picture
from penstock.sources.images.in_blocks import decoded
from penstock.sources.tfrecord.features import (
    FLOATS,
    INTS,
    KINDS,
    TYPE_NAMES,
    TYPES,
    Array,
    Feature,
    FixedFeature,
    ImageFeature,
    SequenceFeature,
    TensorFeature,
    VarFeature,
    cast,
    dtype_name,
    fixed_shape,
)

# The dtypes of lists of bytes, floats and ints, if none is declared.
LIST_DTYPES = (bytes, "float32", "int64")
TensorInfo = tuple[int, tuple[int, ...]]
ReadableBuffer = bytes | Array
Nest = Any  # of features: dicts and tuples of them


class ExampleCodec:
    """Named features, and the native plan that reads and writes them. The nest is flat here."""

    __slots__ = ("features", "names", "plan")

    def __init__(self, names: Sequence[str], features: Sequence[Feature]) -> None:
        self.names = tuple(names)
        self.features = tuple(features)
        repeated = {name for name in self.names if self.names.count(name) > 1}
        if repeated:
            raise ValueError(
                f"each feature must be read once, got {sorted(repeated)} more than once; "
                "read it once, and use it twice in a map."
            )
        self.plan = _native.ExamplePlan(
            [_native_feature(*pair) for pair in zip(self.names, self.features, strict=True)]
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return ExampleCodec, (self.names, self.features)

    @staticmethod
    def of(nest: Nest) -> "ExampleCodec":
        """Return the codec of a nest of features, its leaves in the order of `nest.flatten`."""
        pairs = list(named_features(nest))
        return ExampleCodec([name for name, _ in pairs], [feature for _, feature in pairs])

    def describe(self, error: _native.RecordError) -> str:
        """Return the message for a bad record: the rule, what came, the cure."""
        if error.feature < 0:
            return describe_fault(error.kind, error.found)
        name, feature = self.names[error.feature], self.features[error.feature]
        return f"feature '{name}': {describe_fault(error.kind, error.found, feature)}"


def named_features(nest: Nest, key: str | None = None) -> Iterator[tuple[str, Feature]]:
    """Yield name and feature of each leaf; dicts in the order of their sorted keys, as in all nests."""
    if isinstance(nest, Feature):
        name = nest.name if nest.name is not None else key
        if name is None:
            raise ValueError(
                f"a feature outside a dict must have a name, got {nest!r}; "
                "add name='...' as it is called in the file."
            )
        yield name, nest
    elif type(nest).__name__ in _OF_TENSORFLOW:
        raise TypeError(f"features must be penstock's own, got {nest!r}; write {_rewritten(nest)}.")
    elif isinstance(nest, dict):
        for part in sorted(nest):
            yield from named_features(nest[part], str(part))
    elif isinstance(nest, tuple):
        for item in nest:
            yield from named_features(item, key)
    else:
        raise TypeError(
            "features must be FixedFeature, VarFeature, TensorFeature, ImageFeature or SequenceFeature "
            f"in dicts and tuples, got {type(nest).__name__}."
        )


_OF_TENSORFLOW = ("FixedLenFeature", "FixedLenSequenceFeature", "VarLenFeature", "RaggedFeature")


def _rewritten(feature: Any) -> str:
    """Return what to write instead of a feature of tf.io."""
    name = getattr(feature.dtype, "name", str(feature.dtype))
    dtype = {"string": "bytes"}.get(name, name)
    if type(feature).__name__ == "FixedLenFeature":
        default = "" if feature.default_value is None else f", default={feature.default_value!r}"
        return f'ps.FixedFeature({tuple(feature.shape)}, "{dtype}"{default})'
    return f'ps.VarFeature("{dtype}")'


def encode_example(row: Mapping[str, Any], features: Mapping[str, Feature] | None = None) -> bytes:
    """Return one tf.train.Example as bytes, without the frame of a TFRecord.

    Without `features` each value becomes a list of floats (float32 in the file), ints or bytes, and
    loses its shape.

    >>> decode_example(encode_example({"label": 7, "name": "seven"}))
    {'label': array([7]), 'name': [b'seven']}
    """
    chosen: dict[str, Feature] = dict(features or {})
    for name in chosen.keys() - row.keys():
        raise ValueError(f"row must have all features, got none of the name '{name}'.")
    for name in row.keys() - chosen.keys():
        chosen[name] = VarFeature(_list_dtype_of(name, row[name]))
    codec = ExampleCodec([chosen[key].name or key for key in chosen], list(chosen.values()))
    columns = [_column_of(key, row[key], feature) for key, feature in chosen.items()]
    data, _ = _native.example_encode(codec.plan, columns, 1, framed=False)
    return data.tobytes()


def decode_example(record: bytes, features: Nest = None) -> Any:
    """Return the values of one tf.train.Example.

    Without `features` that is a dict of all features: float32 and int64 arrays, and lists of bytes;
    None for a feature that holds no list. With a nest of features it is a nest like that.

    >>> record = encode_example({"label": 7})
    >>> decode_example(record, (FixedFeature((), "int32", name="label"),))
    (array(7, dtype=int32),)
    """
    if features is not None:
        return _rebuild(features, iter(_decode(record, ExampleCodec.of(features))))
    found = _features_of(record)
    names = [name for name, kind, _, _ in found if kind]
    listed = [VarFeature(LIST_DTYPES[kind - 1]) for _, kind, _, _ in found if kind]
    values = dict(zip(names, _decode(record, ExampleCodec(names, listed)), strict=True))
    return {
        name: values[name].tolist() if KINDS[kind] == "bytes" else values.get(name)
        for name, kind, _, _ in found
    }


def infer_features(records: Iterable[ReadableBuffer]) -> dict[str, Feature]:
    """Return the features that fit all of these records, such as the first few of a file.

    A feature that is in each record and has one size becomes a FixedFeature, or a TensorFeature if
    its bytes are tensors; any other becomes a VarFeature.

    >>> infer_features([encode_example({"x": [1.0, 2.0], "ids": range(k)}) for k in (1, 2)])
    {'ids': VarFeature(dtype=dtype('int64'), name=None), 'x': FixedFeature(shape=(2,), ...)}
    """
    num_records = 0
    found: dict[str, list[tuple[int, int, TensorInfo | None]]] = {}
    for record in records:
        num_records += 1
        for name, kind, count, tensor in _features_of(record):
            if kind:
                found.setdefault(name, []).append((kind, count, tensor))
    if not num_records:
        raise ValueError("records must hold at least one record to infer features from, got none.")
    features: dict[str, Feature] = {}
    for name in sorted(found):
        kinds = {kind for kind, _, _ in found[name]}
        if len(kinds) > 1:
            raise ValueError(
                f"feature '{name}' must be of one kind in all records, got "
                f"{' and '.join(sorted(KINDS[kind] for kind in kinds))}; say which with features=."
            )
        dtype = LIST_DTYPES[kinds.pop() - 1]
        counts = {count for _, count, _ in found[name]}
        common = _common_tensor([tensor for _, _, tensor in found[name]])
        if len(found[name]) < num_records or len(counts) > 1:
            features[name] = VarFeature(dtype)
        elif common is not None:
            features[name] = common
        else:
            count = counts.pop()
            features[name] = FixedFeature(() if count == 1 else (count,), dtype)
    return features


def describe_fault(kind: str, found: int = 0, feature: Feature | None = None) -> str:
    """Return the message for a fault of this kind: the rule, what came, the cure."""
    wanted = f" {feature.shape} {dtype_name(feature.dtype)}" if feature is not None else ""
    is_tensor = isinstance(feature, TensorFeature)
    is_image = isinstance(feature, ImageFeature)
    listed = KINDS[found] if kind == "wrong_kind" else ""
    is_float = feature is not None and dtype_name(feature.dtype) in FLOATS
    number = np.uint32(found).view(np.float32) if kind == "out_of_range" and is_float else found
    stored = TYPE_NAMES.get(found, f"DataType {found}") if kind == "tensor_type" else ""
    return {
        "truncated": "the record must end within the file, but is cut off; "
        "the file is incomplete, or is not a TFRecord file.",
        "length_checksum": "the record's length must match its checksum, and does not; the file is "
        "damaged, compressed in a way that was not declared, or not a TFRecord file.",
        "data_checksum": "the record's data must match its checksum, and does not; "
        "the file is damaged.",
        "length_differs": "the record must have the length that the index has, and does not; "
        "the file changed after it was indexed.",
        "malformed": "the record must be a tf.train.Example, and is not; "
        "read other records with raw=True.",
        "missing": "must be in every record, and is missing; "
        + (
            "skip such records with on_error='skip'."
            if is_tensor or is_image
            else "give it a default."
        ),
        "wrong_kind": f"must be a list of {_kind_name(feature)}, got {listed}; "
        "declare the dtype that it has.",
        "wrong_size": f"must be one tensor as bytes, got {found} values."
        if is_tensor
        else f"must be one image as bytes, got {found} values."
        if is_image
        else f"must have the values of{wanted}, got {found} of them; "
        "write VarFeature for a list of any length.",
        "out_of_range": f"must fit into{wanted}, got {number}; declare a wider dtype.",
        "not_utf8": "must be UTF-8, and is not; declare it as bytes.",
        "bad_tensor": "must be a tensor serialised by TensorFlow, and is not; "
        "declare it as FixedFeature((), bytes).",
        "tensor_type": f"must be a tensor of{wanted}, got {stored}; declare the dtype that it has.",
        "tensor_shape": f"must be a tensor of{wanted}, got one of {found} values in another shape; "
        "write None for a dimension that varies.",
        "tensor_expands": f"must not grow without bounds, got one value repeated {found} times; "
        "declare its shape without None.",
    }[kind]


def cure_of(kind: str, name: str, record: ReadableBuffer) -> str:
    """Return what the record itself tells of a feature that is not as declared; '' if that is no help."""
    if kind not in ("missing", "wrong_kind"):
        return ""
    try:
        found = {one[0]: one for one in _native.example_features(record)}
    except _native.RecordError:
        return ""
    if kind == "missing":
        names = ", ".join(map(repr, sorted(found)[:_MOST_NAMED])) or "no features"
        return f" The record has {names}{' and more' if len(found) > _MOST_NAMED else ''}."
    info = found[name][3] if name in found else None
    if info is None:
        return ""
    dtype = TYPE_NAMES.get(info[0], "...")
    return f' These bytes are a serialised tensor: declare TensorFeature({info[1]}, "{dtype}").'


_MOST_NAMED = 20


def _features_of(record: ReadableBuffer) -> list[tuple[str, int, int, TensorInfo | None]]:
    try:
        return _native.example_features(record)
    except _native.RecordError as error:
        raise described(error, describe_fault(error.kind, error.found)) from None


def described(error: _native.RecordError, message: str) -> RecordError:
    """Return the error of one record in words, with the place in the record."""
    text = f"{message[:-1]} (byte {error.offset} of the record)."
    return RecordError(text, kind=error.kind, offset=error.offset)


def _decode(record: bytes, codec: ExampleCodec) -> list[Any]:
    """Return the values of one record, a leaf each."""
    fixed = [_fixed_row(feature) for feature in codec.features]
    outs = [None if row is None else row.view(np.uint8) for row in fixed]
    starts = np.zeros(1, np.int64)
    lengths = np.array([len(record)], np.int64)
    try:
        columns, _, _ = _native.tfrecord_decode(
            record, starts, lengths, codec.plan, outs, framed=False
        )
    except _native.RecordError as error:
        raise described(error, codec.describe(error)) from None
    return [
        _value(feature, column) if row is None else row.reshape(fixed_shape(feature.shape))
        for feature, row, column in zip(codec.features, fixed, columns, strict=True)
    ]


def _fixed_row(feature: Feature) -> Array | None:
    """Return memory for one row, (1, 1, count), if rows have one size; else None."""
    if isinstance(feature, ImageFeature):
        return None
    if None in feature.shape or not isinstance(feature.dtype, np.dtype):
        return None
    return np.zeros((1, 1, math.prod(fixed_shape(feature.shape))), feature.dtype)


def _value(feature: Feature, column: Any) -> Any:
    """Return the only row of a column as the array, bytes or str that it is."""
    parts = list(column)
    if isinstance(feature, ImageFeature):
        return _pixels(parts[0], feature)
    shape = feature.shape
    if None in shape:
        shape = tuple(parts.pop()[0].tolist()) if isinstance(feature, TensorFeature) else (-1,)
    if isinstance(feature.dtype, np.dtype):
        return parts[0].view(feature.dtype).reshape(shape)
    data, offsets, _ = parts
    items = [data[a:b].tobytes() for a, b in pairwise(offsets)]
    texts = [item.decode() for item in items] if feature.dtype is str else items
    if shape == ():
        return texts[0]
    array = np.empty(len(texts), object)
    array[:] = texts
    return array.reshape(shape)


def _pixels(data: Array, feature: ImageFeature) -> Array:
    """Return the pixels of an image file."""
    file = in_memory("image", "the image of the record", data)
    with open_picture(file, feature.size) as picture:
        return decoded(picture, feature.channels)


def _column_of(name: str, value: Any, feature: Feature) -> Any:
    """Return one row in the form that the native encoder reads."""
    if isinstance(feature, ImageFeature):
        raise TypeError(
            f"'{name}' is an ImageFeature, which only decodes; encode the image yourself, and write its bytes."
        )
    dtype = feature.dtype
    array = np.asarray(value, None if isinstance(dtype, np.dtype) else object)
    if isinstance(feature, VarFeature):
        array = array.reshape(-1)
    elif array.ndim != len(feature.shape) or any(
        size not in (None, got) for size, got in zip(feature.shape, array.shape, strict=True)
    ):
        raise ValueError(f"'{name}' must have the shape {feature.shape}, got {array.shape}.")
    parts: tuple[Array, ...]
    if isinstance(dtype, np.dtype):
        raw = np.frombuffer(cast(name, array, dtype).tobytes(), np.uint8)
        if None not in feature.shape:
            return raw.reshape(1, 1, -1)
        parts = (raw,)
    else:
        if not all(isinstance(item, bytes | str) for item in array.flat):
            raise TypeError(f"'{name}' must be bytes or str, got {value!r}.")
        items = [item.encode() if isinstance(item, str) else item for item in array.flat]
        offsets = np.cumsum([0, *map(len, items)], dtype=np.int64)
        parts = (np.frombuffer(b"".join(items), np.uint8), offsets)
    parts = (*parts, np.array([array.size], np.int64))
    if isinstance(feature, TensorFeature) and None in feature.shape:
        parts = (*parts, np.array(array.shape, np.int64).reshape(1, -1))
    return parts


def _list_dtype_of(name: str, value: Any) -> Any:
    """Return the dtype of the list that a value becomes."""
    array = np.asarray(value, object if isinstance(value, bytes | str) else None)
    if array.dtype.name in FLOATS | INTS:
        return array.dtype
    if array.dtype.kind in "SUO" and all(
        isinstance(item, bytes | str) for item in np.asarray(value, object).flat
    ):
        return bytes
    raise TypeError(
        f"'{name}' must be floats, ints, bytes or str, got {type(value).__name__} of dtype "
        f"{array.dtype}; declare it as a TensorFeature if it is a tensor of another dtype."
    )


def _rebuild(nest: Nest, values: Iterator[Any]) -> Any:
    """Return the nest with each feature replaced by the next value."""
    if isinstance(nest, dict):
        rebuilt = {key: _rebuild(nest[key], values) for key in sorted(nest)}
        return {key: rebuilt[key] for key in nest}
    if isinstance(nest, tuple):
        return tuple(_rebuild(item, values) for item in nest)
    return next(values)


def _common_tensor(tensors: list[TensorInfo | None]) -> TensorFeature | None:
    """Return the feature that all of these tensors fit, if there is one."""
    known = [tensor for tensor in tensors if tensor is not None]
    if len(known) < len(tensors) or len({(number, len(shape)) for number, shape in known}) != 1:
        return None
    sizes = [set(axis) for axis in zip(*(shape for _, shape in known), strict=True)]
    try:
        return TensorFeature(
            [axis.pop() if len(axis) == 1 else None for axis in sizes], TYPE_NAMES[known[0][0]]
        )
    except ImportError:  # its dtype needs ml_dtypes: read as bytes
        return None


def _native_feature(name: str, feature: Feature) -> tuple[str, str, int, list[int], bool, Any]:
    if isinstance(feature, SequenceFeature):
        raise TypeError(
            f"'{name}' is a SequenceFeature, and this is about single tf.train.Examples; "
            "SequenceExamples are read with from_tfrecord."
        )
    if isinstance(
        feature, ImageFeature
    ):  # The file is a single list of bytes; pixels are made of it later.
        return name, "fixed", TYPES["bytes"], [], False, None
    form = {FixedFeature: "fixed", VarFeature: "variable", TensorFeature: "tensor"}[type(feature)]
    shape = [] if form == "variable" else [-1 if size is None else size for size in feature.shape]
    default: Any = None
    if isinstance(feature, FixedFeature) and feature.default is not None:
        if isinstance(feature.dtype, np.dtype):
            default = np.asarray(feature.default, feature.dtype).tobytes()
        else:
            items = np.asarray(feature.default, object).reshape(-1).tolist()
            default = [item.encode() if isinstance(item, str) else item for item in items]
    return name, form, TYPES[dtype_name(feature.dtype)], shape, feature.dtype is str, default


def _kind_name(feature: Feature | None) -> str:
    if (
        feature is None
        or isinstance(feature, TensorFeature | ImageFeature)
        or not isinstance(feature.dtype, np.dtype)
    ):
        return "bytes"
    return "floats" if feature.dtype.name in FLOATS else "ints"
