"""What a row is made of: the shape and dtype of each leaf of its nest."""

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.lib.format as npy

from penstock.core.nest import Structure, flatten, unflatten
from penstock.errors import SpecMismatchError

DType = np.dtype[Any] | type[bytes] | type[str]
Shape = tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """The shape and dtype of one field of a row.

    A dimension of None may differ from row to row. The dtype is a NumPy one, or `bytes` or `str`
    for text of any length (NumPy's own `S10` and `U10` have a fixed width).

    >>> ArraySpec((100,), "float32")
    ArraySpec((100,), float32)
    >>> ArraySpec((None, 3), "int64").is_fixed
    False
    """

    shape: Shape
    dtype: DType

    def __init__(self, shape: Iterable[int | None], dtype: Any) -> None:
        if isinstance(shape, int) or shape is None:
            raise TypeError(f"shape must be a tuple of sizes, got {shape!r}; write ({shape!r},).")
        object.__setattr__(self, "shape", tuple(_dimension(size) for size in shape))
        object.__setattr__(self, "dtype", _dtype(dtype))

    @property
    def is_text(self) -> bool:
        """Whether the values are bytes or str of any length."""
        return self.dtype is bytes or self.dtype is str

    @property
    def is_fixed(self) -> bool:
        """Whether every row takes the same number of bytes."""
        return not self.is_text and None not in self.shape

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        """The dtype of the arrays handed to the user: object for text."""
        return self.dtype if isinstance(self.dtype, np.dtype) else np.dtype(object)

    @property
    def nbytes(self) -> int:
        """The bytes of one row; only for a spec that is fixed."""
        if not self.is_fixed:
            raise SpecMismatchError(f"{self} has no fixed size.")
        return math.prod(self.fixed_shape) * self.numpy_dtype.itemsize

    @property
    def fixed_shape(self) -> tuple[int, ...]:
        """The shape; only for a spec that has no None in it."""
        return tuple(size for size in self.shape if size is not None)

    def admits(self, shape: tuple[int, ...]) -> bool:
        """Whether a value of this shape fits."""
        return len(shape) == len(self.shape) and all(
            want is None or want == got for want, got in zip(self.shape, shape, strict=True)
        )

    def merged(self, other: "ArraySpec") -> "ArraySpec | None":
        """Return the spec that admits the rows of both; None if their dtypes, ranks or known sizes differ."""
        if self.dtype != other.dtype or len(self.shape) != len(other.shape):
            return None
        shape: list[int | None] = []
        for mine, theirs in zip(self.shape, other.shape, strict=True):
            if mine != theirs and mine is not None and theirs is not None:
                return None
            shape.append(mine if mine == theirs else None)
        return ArraySpec(shape, self.dtype)

    def to_json(self) -> Any:
        """Return the spec as JSON: the shape, and the dtype as `dtype_to_json` writes it."""
        return [list(self.shape), dtype_to_json(self.dtype)]

    def __repr__(self) -> str:
        return f"ArraySpec({self.shape}, {dtype_name(self.dtype)})"


def dtype_name(dtype: DType) -> str:
    """Return `float32`, `bytes`, `[('a', '<i4')]`: what a user would write."""
    return str(dtype) if isinstance(dtype, np.dtype) else dtype.__name__


def spec_of(row: Any) -> Any:
    """Return the nest of `ArraySpec` that describes `row`, an example.

    >>> spec_of((np.zeros(3, "float32"), 7, "text"))
    (ArraySpec((3,), float32), ArraySpec((), int64), ArraySpec((), str))
    """
    leaves, structure = flatten(row)
    return unflatten(structure, [spec_of_value(leaf) for leaf in leaves])


def declared(spec: Any) -> tuple[list[ArraySpec], Structure]:
    """Return the leaves of a nest of specs that a user wrote, and its structure; raise if one is something else."""
    leaves, structure = flatten(spec)
    for leaf in leaves:
        if not isinstance(leaf, ArraySpec):
            raise TypeError(
                f"spec must be a nest of ArraySpec, one for each field of a row, got {leaf!r}; {_spec_cure(leaf)}"
            )
    return leaves, structure


def _spec_cure(leaf: Any) -> str:
    """Return what to write instead: the same in our words, if it has a shape and a dtype as a tf.TensorSpec has."""
    try:
        dtype = leaf.dtype
        shape = [None if size is None else int(size) for size in leaf.shape]
        name = getattr(dtype, "name", None) or str(dtype)
        return f"write {written(ArraySpec(shape, {'string': 'bytes'}.get(name, name)))}."
    except (AttributeError, TypeError, ValueError):
        return "ps.spec_of(row) makes one from an example."


def written(spec: Any) -> str:
    """Return a nest of specs as a user writes it.

    >>> written({"x": ArraySpec((None, 3), "float32"), "y": (ArraySpec((), str),)})
    '{"x": ps.ArraySpec((None, 3), "float32"), "y": (ps.ArraySpec((), "str"),)}'
    """
    if isinstance(spec, ArraySpec):
        name = dtype_name(spec.dtype)
        return f"ps.ArraySpec({spec.shape}, {name if name.startswith(('[', '{', '(')) else json.dumps(name)})"
    if isinstance(spec, dict):
        keys = (json.dumps(key) if isinstance(key, str) else repr(key) for key in spec)
        items = (f"{key}: {written(one)}" for key, one in zip(keys, spec.values(), strict=True))
        return "{" + ", ".join(items) + "}"
    parts = [written(one) for one in spec]
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"


def spec_of_value(value: Any) -> ArraySpec:
    """Return the spec of one leaf of an example row."""
    # NumPy's own text as well (np.str_): a value out of a U10 array has only its own width, not 10.
    if isinstance(value, bytes | str):
        return ArraySpec((), bytes if isinstance(value, bytes) else str)
    # A list of text as objects: NumPy's own text has one width, and loses the NULs at its end.
    array = np.asarray(value, object if _is_list_of_text(value) else None)
    if array.dtype == object:
        kinds = {type(item) for item in array.flat}
        for text in (bytes, str):
            if kinds and all(issubclass(kind, text) for kind in kinds):
                return ArraySpec(array.shape, text)
        raise TypeError(
            f"a field must be a number, an array, bytes or str, got {type(value).__name__}"
            " of dtype object; split it into fields of one dtype each."
        )
    return ArraySpec(array.shape, array.dtype)


def _is_list_of_text(value: Any) -> bool:
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, bytes | str)


def _dimension(size: Any) -> int | None:
    if size is None:
        return None
    try:
        number = int(size)
    except (OverflowError, ValueError):  # Infinite, or not a number.
        number = -1
    if number != size or number < 0:
        raise ValueError(f"a dimension must be None or a whole number >= 0, got {size!r}.")
    return number


def _dtype(dtype: Any) -> DType:
    if dtype is bytes or dtype == "bytes":
        return bytes
    if dtype is str or dtype == "str":
        return str
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except TypeError as error:
        name = name_in_numpy(dtype)
        cure = f'; write "{name}".' if name else "."
        raise TypeError(
            f'dtype must be one of NumPy\'s, such as "float32", bytes or str, got {dtype!r:.80}{cure}'
        ) from error
    if found.hasobject:
        raise TypeError(
            f"dtype must be a plain NumPy dtype, bytes or str, got {found}; "
            "objects cannot be kept in blocks."
        )
    if found.subdtype is not None:
        raise TypeError(f"put the sub-array of {found} into the shape instead.")
    return found


def name_in_numpy(dtype: Any) -> str:
    """Return the name that NumPy has for a dtype of another library; '' if it has none."""
    name = str(getattr(dtype, "name", None) or dtype).rpartition(".")[2]
    if isinstance(dtype, str) or not name.isidentifier():
        return ""
    name = "bytes" if name == "string" else name  # TensorFlow's.
    try:
        _dtype(name)
    except TypeError:
        return ""
    return name


def dtype_to_json(dtype: DType) -> Any:
    """Return the dtype as JSON: 'bytes', '<f4', 'bfloat16', or a list or dict of named columns."""
    if not isinstance(dtype, np.dtype):
        return dtype.__name__
    if dtype.subdtype is not None:
        return [dtype_to_json(dtype.subdtype[0]), list(dtype.subdtype[1])]
    try:
        return _named(npy.dtype_to_descr(_without_metadata(dtype)), dtype)
    except ValueError:
        if dtype.names is None or dtype.fields is None:
            raise
    # Columns that overlap, or are not in the order of their places: no descr can say that.
    fields = [dtype.fields[name] for name in dtype.names]
    return {
        "names": list(dtype.names),
        "formats": [dtype_to_json(field[0]) for field in fields],
        "offsets": [field[1] for field in fields],
        "itemsize": dtype.itemsize,
    }


def _named(descr: Any, dtype: np.dtype[Any]) -> Any:
    """Return a descr with the names of the dtypes of ml_dtypes, which are plain bytes to an .npy file."""
    if dtype.fields is None:
        return dtype.name if _is_extension(dtype) else descr
    columns = []
    for label, inner, *shape in descr:
        name = label[1] if isinstance(label, tuple) else label
        if name in dtype.fields:  # Else it is padding.
            field = dtype.fields[name][0]
            inner = _named(inner, field.subdtype[0] if field.subdtype else field)
        columns.append((label, inner, *shape))
    return columns


def plain_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype as an .npy file can tell it: with plain bytes for the dtypes of ml_dtypes.

    >>> import ml_dtypes
    >>> plain_dtype(np.dtype([("a", "<i4"), ("b", ml_dtypes.bfloat16)]))
    dtype([('a', '<i4'), ('b', 'V2')])
    """
    return _changed(dtype, lambda one: np.dtype(f"V{one.itemsize}") if _is_extension(one) else one)


def _without_metadata(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype without metadata: h5py puts some into dtypes, and NumPy warns when it is lost."""
    return _changed(dtype, lambda one: one if one.metadata is None else np.dtype(one.str))


def _is_extension(dtype: np.dtype[Any]) -> bool:
    return dtype.type.__module__.partition(".")[0] != "numpy"


def _changed(
    dtype: np.dtype[Any], change: Callable[[np.dtype[Any]], np.dtype[Any]]
) -> np.dtype[Any]:
    """Return the dtype with each dtype that is neither columns nor sub-array changed, all in their places."""
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        inner = _changed(base, change)
        return dtype if inner is base else np.dtype((inner, shape))
    if dtype.names is None or dtype.fields is None:
        return change(dtype)
    fields = [dtype.fields[name] for name in dtype.names]
    parts = [_changed(field[0], change) for field in fields]
    is_same = all(mine is field[0] for mine, field in zip(parts, fields, strict=True))
    if is_same and dtype.metadata is None:
        return dtype
    layout = {
        "names": list(dtype.names),
        "formats": parts,
        "offsets": [field[1] for field in fields],
        "titles": [field[2] if len(field) > 2 else None for field in fields],
        "itemsize": dtype.itemsize,
    }
    made: np.dtype[Any] = np.dtype(layout, align=dtype.isalignedstruct)  # type: ignore[call-overload]
    return made


def dtype_from_json(value: Any) -> Any:
    """Return the dtype that `dtype_to_json` wrote; raises TypeError or ValueError."""
    try:
        return _dtype_from_json(value)
    except OverflowError as error:  # Sizes and offsets of any number of digits.
        raise ValueError(str(error)) from error


def _dtype_from_json(value: Any) -> Any:
    if value in ("bytes", "str"):
        return value
    if isinstance(value, dict):
        formats = [_dtype_from_json(one) for one in value.get("formats", ())]
        return np.dtype({**value, "formats": formats})  # type: ignore[call-overload]
    if _is_sub_array(value):
        return np.dtype((_dtype_from_json(value[0]), tuple(value[1])))
    return npy.descr_to_dtype(_descr(value))


def _is_sub_array(value: Any) -> bool:
    """Return whether JSON is [descr, shape]."""
    is_pair = isinstance(value, list) and len(value) == 2 and isinstance(value[1], list)
    return is_pair and all(type(size) is int for size in value[1])


def _descr(value: Any) -> Any:
    """Return the lists of JSON as the tuples that NumPy wants."""
    if isinstance(value, str):
        try:
            np.dtype(value)
        except TypeError:
            import ml_dtypes  # noqa: F401  NumPy knows its dtypes by name from here on.
        return value
    if not isinstance(value, list):
        raise TypeError(f"no dtype: {value!r:.100}")
    if _is_sub_array(value):
        return _descr(value[0]), tuple(value[1])
    columns: list[Any] = []
    for one in value:
        name, descr, *shape = one
        title = tuple(name) if isinstance(name, list) else name
        columns.append((title, _descr(descr), *(tuple(size) for size in shape)))
    return columns
