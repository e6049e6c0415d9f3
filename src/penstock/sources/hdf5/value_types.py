"""The types of HDF5 as NumPy's: which dtype holds the values of a file, and whether it is their very bytes.

HDF5 can describe numbers that NumPy has no dtype for: 12 bits of 16, a float with another exponent, text that
is filled up with spaces, columns in any place. Such values are converted by HDF5, as they are read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.optional import require

_WIDTHS = (1, 2, 4, 8)


class UnreadableTypeError(TypeError):
    """Values of this type can't be held by a NumPy array of plain values."""


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of HDF5 in memory."""

    dtype: np.dtype[Any]
    """What holds a value; of an array type, one with a sub-array."""
    memory: Any
    """The same dtype as HDF5 describes it, for HDF5 to convert to."""
    is_plain: bool
    """Whether values lie in the file byte for byte as they do in an array of `dtype`."""

    @property
    def item(self) -> np.dtype[Any]:
        """The dtype without its sub-arrays."""
        found = self.dtype
        while found.subdtype is not None:
            found = found.subdtype[0]
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a value: () unless the type is an array."""
        found = self.dtype
        shape: tuple[int, ...] = ()
        while found.subdtype is not None:
            found, inner = found.subdtype
            shape += inner
        return shape


def value_type(stored: Any) -> ValueType:
    """Return how values of a type of HDF5 are held in memory; raise UnreadableTypeError if they can't be."""
    _h5t()
    convert = _CONVERSIONS.get(stored.get_class())
    if convert is None:
        raise UnreadableTypeError(_NAMES.get(stored.get_class(), "a type that is not known here"))
    dtype, memory = convert(stored)
    if dtype.hasobject or memory.get_size() != dtype.itemsize:
        raise UnreadableTypeError(f"values that {dtype} does not hold")
    return ValueType(dtype, memory, bool(stored.equal(memory)))


def list_dtype(stored: Any) -> np.dtype[Any]:
    """Return the dtype of the items of a type of lists; raise UnreadableTypeError if h5py does not read them right.

    It makes the arrays itself. It takes numbers in another byte order for its own, and fails at empty
    lists of anything but numbers.
    """
    base = stored.get_super()
    dtype = value_type(base).dtype
    try:
        made = base.dtype
    except Exception as error:
        raise UnreadableTypeError("lists of numbers that h5py does not know") from error
    if dtype.kind not in "biufc" or not dtype.isnative or made != dtype:
        raise UnreadableTypeError(f"lists of {dtype}")
    return dtype


def _h5t() -> Any:
    return require("h5py", "reading .h5", "hdf5").h5t


def _order(stored: Any) -> str:
    return ">" if stored.get_order() == _h5t().ORDER_BE else "<"


def _in_order_of(stored: Any, dtype: np.dtype[Any]) -> Any:
    """Return the type of a dtype; a single byte has no order, and is given the one that the file says."""
    memory = _h5t().py_create(dtype)
    if dtype.itemsize == 1 and stored.get_size() == 1:
        memory.set_order(stored.get_order())
    return memory


def _width(stored: Any, what: str) -> int:
    """Return the bytes of the smallest integer that holds the values."""
    size = stored.get_size()
    if size > _WIDTHS[-1]:
        raise UnreadableTypeError(f"{what} of {size} bytes")
    return next(width for width in _WIDTHS if width >= size)


def _integer(stored: Any) -> tuple[np.dtype[Any], Any]:
    kind = "u" if stored.get_sign() == _h5t().SGN_NONE else "i"
    dtype = np.dtype(f"{_order(stored)}{kind}{_width(stored, 'integers')}")
    return dtype, _in_order_of(stored, dtype)


def _float(stored: Any) -> tuple[np.dtype[Any], Any]:
    h5t = _h5t()
    ordered = stored.copy()
    # NumPy has no VAX order: HDF5 turns it around.
    ordered.set_order(h5t.ORDER_BE if _order(stored) == ">" else h5t.ORDER_LE)
    try:
        dtype = np.dtype(ordered.dtype)  # The smallest that has its range and its precision.
    except ValueError as error:
        raise UnreadableTypeError("floats that are wider than any of NumPy's") from error
    return dtype, h5t.py_create(dtype)


def _string(stored: Any) -> tuple[np.dtype[Any], Any]:
    if stored.is_variable_str():
        raise UnreadableTypeError("text of any length within another type")
    # h5py notes the encoding in its dtype, for the type of HDF5; NumPy has no use for it.
    return np.dtype(f"S{stored.get_size()}"), _h5t().py_create(stored.dtype)


def _bitfield(stored: Any) -> tuple[np.dtype[Any], Any]:
    width = _width(stored, "bit fields")
    order = "BE" if stored.get_order() == _h5t().ORDER_BE else "LE"
    memory = getattr(_h5t(), f"STD_B{8 * width}{order}")
    return np.dtype(f"{_order(stored)}u{width}"), memory


def _opaque(stored: Any) -> tuple[np.dtype[Any], Any]:
    """Return the bytes as they are, or as the dtype that h5py has written to their tag."""
    size = stored.get_size()
    try:
        tagged = np.dtype(stored.dtype.str)
    except TypeError:
        tagged = np.dtype(f"V{size}")
    is_plain = tagged.itemsize == size and not tagged.hasobject
    return tagged if is_plain else np.dtype(f"V{size}"), stored.copy()


def _enumeration(stored: Any) -> tuple[np.dtype[Any], Any]:
    h5py = require("h5py", "reading .h5", "hdf5")
    base = value_type(stored.get_super())
    numbers = range(stored.get_nmembers())
    members = {stored.get_member_name(n): stored.get_member_value(n) for n in numbers}
    names = [
        one if isinstance(one, bytes) else one.encode() for one in h5py.get_config().bool_names
    ]
    if members == dict(zip(names, (0, 1), strict=True)):
        return np.dtype(bool), h5py.h5t.py_create(np.dtype(bool))
    # Not the same names over another integer: HDF5 would turn a number without a name into -1.
    return base.dtype, stored.copy() if base.is_plain else base.memory


def _array(stored: Any) -> tuple[np.dtype[Any], Any]:
    base = value_type(stored.get_super())
    shape = tuple(map(int, stored.get_array_dims()))
    return np.dtype((base.dtype, shape)), _h5t().array_create(base.memory, shape)


def _compound(stored: Any) -> tuple[np.dtype[Any], Any]:
    h5py = require("h5py", "reading .h5", "hdf5")
    numbers = range(stored.get_nmembers())
    labels = [stored.get_member_name(number) for number in numbers]
    places = [stored.get_member_offset(number) for number in numbers]
    try:
        names = [label.decode() for label in labels]
    except UnicodeDecodeError as error:
        raise UnreadableTypeError("columns whose names are no UTF-8") from error
    parts = [value_type(stored.get_member_type(number)) for number in numbers]
    dtypes = [part.dtype for part in parts]
    if tuple(names) == h5py.get_config().complex_names and _is_complex(dtypes):
        dtype = np.dtype(f"{dtypes[0].str[0]}c{2 * dtypes[0].itemsize}")
        places = [0, dtypes[0].itemsize]
    else:
        layout: dict[str, Any] = {"names": names, "formats": dtypes}
        # Else packed: a column that takes more bytes in memory would lie over the next one.
        if all(part.is_plain for part in parts) and places == sorted(places):
            layout |= {"offsets": places, "itemsize": stored.get_size()}
        dtype = np.dtype(layout)  # type: ignore[call-overload]
        places = [dtype.fields[name][1] for name in names]
    memory = h5py.h5t.create(h5py.h5t.COMPOUND, dtype.itemsize)
    for label, place, part in zip(labels, places, parts, strict=True):
        memory.insert(label, place, part.memory)
    return dtype, memory


def _is_complex(dtypes: list[np.dtype[Any]]) -> bool:
    """Return whether two columns are the parts of a complex number that NumPy has."""
    first, second = dtypes
    return first == second and first.kind == "f" and first.itemsize in (4, 8, 16)


# By the numbers of HDF5's classes, which are those of its file format: h5py may not be here yet.
_CONVERSIONS: dict[int, Callable[[Any], tuple[np.dtype[Any], Any]]] = {
    0: _integer,
    1: _float,
    3: _string,
    4: _bitfield,
    5: _opaque,
    6: _compound,
    8: _enumeration,
    10: _array,
}
_NAMES = {
    2: "times of HDF5",
    7: "references to other parts of the file",
    9: "lists within another type",
}
