"""The features of a tf.train.Example, as a user declares them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.spec import name_in_numpy

Array = npt.NDArray[Any]
DType = np.dtype[Any] | type[bytes] | type[str]
Shape = tuple[int | None, ...]

# The numbers of TensorFlow's DataType, by the names of NumPy's (and ml_dtypes').
TYPES = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6, "bytes": 7,
    "str": 7, "complex64": 8, "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17,
    "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23, "float8_e5m2": 24,
    "float8_e4m3fn": 25, "float8_e4m3fnuz": 26, "float8_e4m3b11fnuz": 27, "float8_e5m2fnuz": 28,
}  # fmt: skip
TYPE_NAMES = {number: name for name, number in TYPES.items() if name != "str"}
FLOATS = {"float16", "bfloat16", "float32", "float64"}
INTS = {"int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"}
KINDS = ("nothing", "bytes", "floats", "ints")


@dataclass(frozen=True, slots=True)
class FixedFeature:
    """A feature with the same number of values in each record: a list of floats, ints or bytes.

    The list is of floats for float dtypes, of ints for int dtypes and bool, of bytes for `bytes`
    and `str`. An int that the dtype cannot hold is an error. Without a `default` the feature must
    be in every record. `name` is its name in the file, where that is not its key in the nest.

    >>> FixedFeature((2,), "float32", default=0.0)
    FixedFeature(shape=(2,), dtype=dtype('float32'), default=(0.0, 0.0), name=None)
    """

    shape: Shape
    dtype: DType
    default: Any = None
    name: str | None = None

    def __init__(
        self, shape: Sequence[int], dtype: Any, default: Any = None, *, name: str | None = None
    ) -> None:
        sizes = _shape(shape, "FixedFeature")
        object.__setattr__(self, "shape", sizes)
        object.__setattr__(self, "dtype", _list_dtype(dtype, "FixedFeature"))
        if None in sizes:
            raise ValueError(
                f"shape of a FixedFeature must have no None in it, got {sizes}; "
                f'write VarFeature("{dtype_name(self.dtype)}") for a list of any length.'
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "default", _default(default, fixed_shape(sizes), self.dtype))


@dataclass(frozen=True, slots=True)
class VarFeature:
    """A feature with any number of values: a list of floats, ints or bytes; empty if it is missing.

    >>> VarFeature("int64").shape
    (None,)
    """

    dtype: DType
    name: str | None = None

    def __init__(self, dtype: Any, *, name: str | None = None) -> None:
        object.__setattr__(self, "dtype", _list_dtype(dtype, "VarFeature"))
        object.__setattr__(self, "name", name)

    @property
    def shape(self) -> Shape:
        """The shape of a row."""
        return (None,)


@dataclass(frozen=True, slots=True)
class TensorFeature:
    """A feature that holds one tensor as bytes, as `tf.io.serialize_tensor` makes them.

    A dimension of None may differ from record to record.

    >>> TensorFeature((None, 3), "float32")
    TensorFeature(shape=(None, 3), dtype=dtype('float32'), name=None)
    """

    shape: Shape
    dtype: DType
    name: str | None = None

    def __init__(self, shape: Sequence[int | None], dtype: Any, *, name: str | None = None) -> None:
        object.__setattr__(self, "shape", _shape(shape, "TensorFeature"))
        object.__setattr__(self, "dtype", _dtype(dtype, "TensorFeature", set(TYPES)))
        object.__setattr__(self, "name", name)


@dataclass(frozen=True, slots=True)
class ImageFeature:
    """A feature that holds one image file as bytes (JPEG, PNG, BMP, WebP, GIF or TIFF), decoded to uint8 pixels.

    They are those that `from_files` makes of an image in a folder. `size` is the height and width that images are
    resized to; without it, they have the sizes that they have: (None, None, channels). `channels` is 3 for RGB, or 1
    for grey. Needs `pip install 'penstock[images]'`.

    >>> ImageFeature((224, 224)).shape, ImageFeature(channels=1).shape
    ((224, 224, 3), (None, None, 1))
    """

    size: tuple[int, int] | None = None
    channels: int = 3
    name: str | None = None

    def __init__(
        self, size: Sequence[int] | None = None, *, channels: int = 3, name: str | None = None
    ) -> None:
        if size is not None:
            size = (size, size) if isinstance(size, int) else tuple(size)
            if len(size) != 2 or any(type(side) is not int or side < 1 for side in size):
                raise ValueError(
                    f"size of an ImageFeature must be (height, width), each at least 1, got {size!r}; "
                    "channels=1 or channels=3 says how many colours there are."
                )
        if type(channels) is not int or channels not in (1, 3):
            raise ValueError(
                f"channels of an ImageFeature must be 3 (RGB) or 1 (grey), got {channels!r}."
            )
        object.__setattr__(self, "size", size)
        object.__setattr__(self, "channels", channels)
        object.__setattr__(self, "name", name)

    @property
    def shape(self) -> Shape:
        """The shape of a row."""
        return (*(self.size or (None, None)), self.channels)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of a pixel."""
        return np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class SequenceFeature:
    """A feature list of a tf.train.SequenceExample: a step has values of `shape`, and a row is all steps of a record.

    A row has the shape (steps, *shape), and steps may differ from record to record. With the shape (None,) the steps
    of a record may differ in length, too: shorter ones are padded with zeros (text: with empty text), as
    `tf.sparse.to_dense` does. With `allow_missing`, a record without the list has no steps; else that is an error. The
    other features of the nest are then those of the context.

    >>> SequenceFeature((3,), "float32").shape
    (None, 3)
    """

    step_shape: Shape
    dtype: DType
    allow_missing: bool = False
    name: str | None = None

    def __init__(
        self,
        shape: Sequence[int | None],
        dtype: Any,
        *,
        allow_missing: bool = False,
        name: str | None = None,
    ) -> None:
        sizes = _shape(shape, "SequenceFeature")
        if None in sizes and sizes != (None,):
            raise ValueError(
                f"shape of a SequenceFeature, that of a step, must have no None in it or be (None,), got {sizes}."
            )
        object.__setattr__(self, "step_shape", sizes)
        object.__setattr__(self, "dtype", _list_dtype(dtype, "SequenceFeature"))
        object.__setattr__(self, "allow_missing", bool(allow_missing))
        object.__setattr__(self, "name", name)

    @property
    def shape(self) -> Shape:
        """The shape of a row."""
        return (None, *self.step_shape)


Feature = FixedFeature | VarFeature | TensorFeature | ImageFeature | SequenceFeature


def dtype_name(dtype: DType) -> str:
    """Return `float32`, `bytes`: the key of TYPES."""
    return dtype.name if isinstance(dtype, np.dtype) else dtype.__name__


def cast(name: str, array: Array, dtype: np.dtype[Any]) -> Array:
    """Return the values in another dtype, if it can hold them."""
    with np.errstate(all="ignore"):
        values: Array = array.astype(dtype)
    if dtype.name in INTS:
        fits = array.size == 0 or (array.dtype.name in INTS and np.array_equal(values, array))
    else:
        fits = array.dtype.name in TYPES and (array.dtype.kind != "c" or dtype.kind == "c")
        fits = fits and bool((np.isinf(values) == np.isinf(array)).all())
    if not fits:
        raise ValueError(f"'{name}' must fit into {dtype}, got {array.dtype} values that do not.")
    return values


def fixed_shape(shape: Shape) -> tuple[int, ...]:
    """Return a shape that has no None in it, with the type that says so."""
    return tuple(size for size in shape if size is not None)


def _shape(shape: Any, what: str) -> Shape:
    if isinstance(shape, int) or shape is None:
        raise TypeError(
            f"shape of a {what} must be a tuple of sizes, got {shape!r}; write ({shape!r},)."
        )
    sizes = tuple(None if size is None else int(size) for size in shape)
    if any(size is not None and size < 0 for size in sizes):
        raise ValueError(f"shape of a {what} must have sizes of at least 0, got {sizes}.")
    return sizes


def _list_dtype(dtype: Any, what: str) -> DType:
    return _dtype(dtype, what, FLOATS | INTS | {"bytes", "str"})


def _dtype(dtype: Any, what: str, allowed: set[str]) -> DType:
    """Return the NumPy dtype, `bytes` or `str` that was meant, if a file can hold it."""
    if dtype in (bytes, "bytes"):
        return bytes
    if dtype in (str, "str"):
        return str
    if isinstance(dtype, str) and dtype in TYPES and dtype.startswith(("bfloat", "float8")):
        try:
            import ml_dtypes  # an optional dependency: it gives NumPy these dtypes
        except ImportError:
            raise ImportError(
                f"reading {dtype} needs ml_dtypes: pip install 'penstock[tensors]'"
            ) from None
        dtype = getattr(ml_dtypes, dtype)
    rule = f"dtype of a {what} must be one of {', '.join(sorted(allowed))}"
    try:
        found: np.dtype[Any] = np.dtype(dtype).newbyteorder("=")
    except TypeError as error:
        name = name_in_numpy(dtype)
        cure = f'; write "{name}".' if name in allowed else "."
        raise TypeError(f"{rule}, got {dtype!r:.80}{cure}") from error
    if found.name not in allowed:
        raise TypeError(f"{rule}, got {found}.")
    return found


def _default(default: Any, shape: tuple[int, ...], dtype: DType) -> Any:
    """Return the default in the shape of the feature, as scalars in tuples."""
    if default is None:
        return None
    if isinstance(dtype, np.dtype):
        array = np.asarray(default)
        if array.dtype.kind not in "fiub" and array.dtype.name not in FLOATS:
            raise TypeError(f"default of a {dtype} feature must be numbers, got {default!r}.")
        array = cast("default", array, dtype)
    else:
        array = np.asarray(default, object)
        if not all(isinstance(item, dtype) for item in array.flat):
            raise TypeError(
                f"default of a {dtype.__name__} feature must be {dtype.__name__}, got {default!r}."
            )
    if array.shape not in ((), shape):
        raise ValueError(f"default must be one value or have the shape {shape}, got {array.shape}.")
    return _frozen(np.broadcast_to(array, shape).tolist())


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value
