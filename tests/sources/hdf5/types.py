"""Types that HDF5 can describe, most of them not NumPy's, with values that they hold; and files of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5t

NUM_ROWS = 50
COUNT = np.arange(NUM_ROWS)
NUMBERS = COUNT * 37 % 2000 - 1000
HALVES = (COUNT - 20) * 0.5
LAYOUTS = ("contiguous", "compact", "chunked", "packed")


@dataclass(frozen=True)
class Typed:
    """A type of a file, values that it holds, and the type by which these are written."""

    stored: Any
    values: Any
    memory: Any = None
    is_plain: bool = False
    """Whether its bytes are those of a NumPy array."""

    def write(self, path: Path, layout: str = "contiguous", **options: Any) -> None:
        properties = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if layout == "compact":
            properties.set_layout(h5py.h5d.COMPACT)
        elif layout != "contiguous":
            properties.set_chunk((7,))
        if layout == "packed":
            properties.set_shuffle()
            properties.set_deflate(4)
        memory = h5t.py_create(self.values.dtype) if self.memory is None else self.memory
        with h5py.File(path, "w", **options) as file:
            space = h5py.h5s.create_simple((len(self.values),))
            made = h5py.h5d.create(file.id, b"x", self.stored, space, properties)
            values = np.ascontiguousarray(self.values)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, memory)

    def rows(self, dtype: np.dtype) -> list[Any]:
        """Return the values as an array of the dtype that was read: each must be the same number in it."""
        return list(exactly(self.values, dtype))


def exactly(values: Any, dtype: np.dtype) -> Any:
    """Return values in another dtype, after checking that none is changed by that; columns go by name."""
    if values.dtype.names is None or dtype.names is None:
        found = values.astype(dtype)
        np.testing.assert_array_equal(found, values)
        return found
    assert sorted(dtype.names) == sorted(values.dtype.names)
    found = np.zeros(values.shape, dtype)
    for name in dtype.names:
        kind = dtype.fields[name][0]
        found[name] = exactly(values[name], kind.subdtype[0] if kind.subdtype else kind)
    return found


def integer(
    size: int, precision: int, offset: int = 0, *, sign: bool = True, order: int = 0
) -> Any:
    made = (h5t.STD_I64LE if sign else h5t.STD_U64LE).copy()
    made.set_precision(precision)
    made.set_size(size)
    made.set_offset(offset)
    made.set_order(order)
    return made


def floating(
    size: int, exponent: int, mantissa: int, bias: int, *, offset: int = 0, order: int = 0
) -> Any:
    """Return a float of a sign, `exponent` bits and `mantissa` bits."""
    made = h5t.IEEE_F64LE.copy()
    made.set_fields(exponent + mantissa, mantissa, exponent, 0, mantissa)
    made.set_precision(1 + exponent + mantissa)
    made.set_size(size)
    made.set_ebias(bias)
    made.set_offset(offset)
    made.set_order(order)
    return made


def extended(size: int, order: int = 0) -> Any:
    """Return the float of 80 bits of x87."""
    made = h5t.NATIVE_LDOUBLE.copy()
    made.set_size(size)
    made.set_order(order)
    return made


def text(size: int, padding: int, encoding: int = h5t.CSET_ASCII) -> Any:
    made = h5t.C_S1.copy()
    made.set_size(size)
    made.set_strpad(padding)
    made.set_cset(encoding)
    return made


def compound(size: int, *members: tuple[str | bytes, int, Any]) -> Any:
    made = h5t.create(h5t.COMPOUND, size)
    for name, offset, kind in members:
        made.insert(name if isinstance(name, bytes) else name.encode(), offset, kind)
    return made


def enumeration(base: Any, **members: int) -> Any:
    made = h5t.enum_create(base)
    for name, value in members.items():
        made.enum_insert(name.encode(), value)
    return made


def bits(stored: Any, precision: int, offset: int) -> Any:
    """Return a bit field of some of its bits; h5py can only set them through the type of an integer."""
    made = stored.copy()
    as_integer = h5t.TypeIntegerID(made.id)
    as_integer.set_precision(precision)
    as_integer.set_offset(offset)
    as_integer.locked = True  # The type is closed once, by `made`.
    return made


def tagged(tag: bytes) -> Any:
    made = h5t.create(h5t.OPAQUE, 4)
    made.set_tag(tag)
    return made


def array(base: Any, *shape: int) -> Any:
    return h5t.array_create(base, shape)


BFLOAT16 = floating(2, 8, 7, 127)
F4, F8, I4 = h5t.IEEE_F32LE, h5t.IEEE_F64LE, h5t.STD_I32LE
LE, BE = h5t.ORDER_LE, h5t.ORDER_BE
WORDS = np.array([b"abcd"[: n % 5] for n in COUNT], "S5")
COMPLEX = (HALVES + 1j * COUNT).astype("c8")
PAIRS = np.zeros(NUM_ROWS, [("a", "<i4"), ("b", "<f8")])
PAIRS["a"], PAIRS["b"] = NUMBERS, HALVES
NESTED = np.zeros(NUM_ROWS, [("p", PAIRS.dtype), ("q", "<f4", (3,))])
NESTED["p"], NESTED["q"] = PAIRS, HALVES[:, None] + np.arange(3)
TRIPLES = (COUNT[:, None] * 3 + np.arange(3)).astype("f4")
GRIDS = np.arange(NUM_ROWS * 6, dtype="i4").reshape(NUM_ROWS, 2, 3)
GAPS = compound(24, ("a", 4, I4), ("b", 12, F8))
INNER = compound(14, ("b", 0, F8), ("a", 8, I4))

TYPES: dict[str, Typed] = {
    "bfloat16": Typed(BFLOAT16, HALVES),
    "bfloat16, big-endian": Typed(floating(2, 8, 7, 127, order=BE), HALVES),
    "float16": Typed(h5t.IEEE_F16LE, HALVES.astype("f2"), is_plain=True),
    "float16 with another bias": Typed(floating(2, 5, 10, 10), HALVES),
    "float8 of 4 and 3 bits": Typed(floating(1, 4, 3, 7), (COUNT % 15 - 7).astype("f8")),
    "float8 of 5 and 2 bits": Typed(floating(1, 5, 2, 15), (COUNT % 9 - 4).astype("f8")),
    "float of 3 bytes": Typed(floating(3, 7, 16, 63), HALVES),
    "float of 24 bits in 4 bytes": Typed(floating(4, 7, 16, 63), HALVES),
    "float of 24 bits, shifted": Typed(floating(4, 7, 16, 63, offset=8), HALVES),
    "float32, big-endian": Typed(h5t.IEEE_F32BE, HALVES.astype(">f4"), is_plain=True),
    "long double": Typed(h5t.NATIVE_LDOUBLE, HALVES.astype("g") / 3, is_plain=True),
    "long double of 12 bytes": Typed(extended(12), HALVES.astype("g") / 3),
    "long double of 10 bytes": Typed(extended(10), HALVES.astype("g") / 3),
    "long double, big-endian": Typed(extended(16, BE), HALVES.astype("g") / 3, is_plain=True),
    **{
        f"{'' if sign else 'u'}int12 at bit {offset}, {name}": Typed(
            integer(2, 12, offset, sign=sign, order=order), NUMBERS if sign else NUMBERS % 999
        )
        for sign in (True, False)
        for offset in (0, 4)
        for name, order in (("little", LE), ("big", BE))
    },
    "int24": Typed(integer(3, 24), NUMBERS),
    "uint24, big-endian": Typed(integer(3, 24, sign=False, order=BE), NUMBERS % 999),
    "int40": Typed(integer(5, 40), NUMBERS * 10**8),
    "int16 in 4 bytes": Typed(integer(4, 16), NUMBERS),
    "int24 at bit 8": Typed(integer(4, 24, 8), NUMBERS),
    "int8, big-endian": Typed(h5t.STD_I8BE, COUNT.astype("i1"), is_plain=True),
    "text, spaces": Typed(text(5, h5t.STR_SPACEPAD), WORDS),
    "text, nulls": Typed(text(5, h5t.STR_NULLPAD), WORDS, is_plain=True),
    "text, ended": Typed(text(5, h5t.STR_NULLTERM), WORDS),
    "text in UTF-8, spaces": Typed(
        text(5, h5t.STR_SPACEPAD, h5t.CSET_UTF8), WORDS, text(5, h5t.STR_NULLPAD, h5t.CSET_UTF8)
    ),
    "text in UTF-8": Typed(
        text(5, h5t.STR_NULLPAD, h5t.CSET_UTF8),
        WORDS,
        text(5, h5t.STR_NULLPAD, h5t.CSET_UTF8),
        is_plain=True,
    ),
    "enumeration": Typed(
        kind := enumeration(I4, A=0, B=1), (COUNT % 5).astype("i4"), kind, is_plain=True
    ),
    "enumeration of 12 bits": Typed(
        enumeration(integer(2, 12, 4), A=0, B=1),
        (COUNT % 2).astype("i2"),
        enumeration(h5t.STD_I16LE, A=0, B=1),
    ),
    "truth": Typed(h5t.py_create(np.dtype(bool)), COUNT % 3 == 0, is_plain=True),
    "truth of 4 bytes": Typed(enumeration(I4, FALSE=0, TRUE=1), COUNT % 3 == 0),
    "truth turned around": Typed(
        kind := enumeration(h5t.STD_I8LE, FALSE=1, TRUE=0),
        (COUNT % 2).astype("i1"),
        kind,
        is_plain=True,
    ),
    "complex": Typed(compound(8, ("r", 0, F4), ("i", 4, F4)), COMPLEX, is_plain=True),
    "complex with gaps": Typed(compound(16, ("r", 0, F4), ("i", 8, F4)), COMPLEX),
    "complex, imaginary part first": Typed(compound(8, ("r", 4, F4), ("i", 0, F4)), COMPLEX),
    "complex of bfloat16": Typed(compound(4, ("r", 0, BFLOAT16), ("i", 2, BFLOAT16)), COMPLEX),
    "complex of long doubles, big-endian": Typed(
        compound(32, ("r", 0, extended(16, BE)), ("i", 16, extended(16, BE))),
        COMPLEX.astype("G") / 3,
        is_plain=True,
    ),
    "columns": Typed(compound(12, ("a", 0, I4), ("b", 4, F8)), PAIRS, is_plain=True),
    "columns with gaps": Typed(GAPS, PAIRS, is_plain=True),
    "columns turned around": Typed(compound(12, ("a", 8, I4), ("b", 0, F8)), PAIRS),
    "columns of 12 bits": Typed(compound(10, ("a", 0, integer(2, 12, 4)), ("b", 2, F8)), PAIRS),
    "bfloat16 as the first column": Typed(compound(6, ("b", 0, BFLOAT16), ("a", 2, I4)), PAIRS),
    "bfloat16 as the last column": Typed(compound(6, ("a", 0, I4), ("b", 4, BFLOAT16)), PAIRS),
    "columns of columns": Typed(
        compound(50, ("p", 2, INNER), ("q", 20, array(h5t.IEEE_F32BE, 3))), NESTED, is_plain=True
    ),
    "columns of arrays of bfloat16": Typed(
        compound(26, ("p", 2, INNER), ("q", 20, array(BFLOAT16, 3))), NESTED
    ),
    "opaque": Typed(
        kind := tagged(b"of ours"),
        np.array([bytes([n, 0, 1, 0]) for n in COUNT], "V4"),
        kind,
        is_plain=True,
    ),
    "opaque, with a tag that lies": Typed(
        kind := tagged(b"NUMPY:|O"),
        np.array([bytes([n, 0, 1, 0]) for n in COUNT], "V4"),
        kind,
        is_plain=True,
    ),
    "dates of h5py": Typed(
        kind := h5t.py_create(h5py.opaque_dtype("M8[ms]"), logical=True),
        COUNT.astype("M8[ms]"),
        kind,
        is_plain=True,
    ),
    "bit field": Typed(h5t.STD_B8LE, COUNT.astype("u1"), h5t.STD_B8LE, is_plain=True),
    "bit field, big-endian": Typed(
        h5t.STD_B32BE, COUNT.astype(">u4"), h5t.STD_B32BE, is_plain=True
    ),
    "bit field of 10 bits": Typed(bits(h5t.STD_B16LE, 10, 3), COUNT.astype("u2"), h5t.STD_B16LE),
    "array": Typed(array(F4, 3), TRIPLES, array(F4, 3), is_plain=True),
    "array of bfloat16": Typed(array(BFLOAT16, 3), TRIPLES, array(F4, 3)),
    "array of arrays": Typed(
        array(array(h5t.STD_I32BE, 3), 2), GRIDS, array(array(I4, 3), 2), is_plain=True
    ),
    "array of columns": Typed(
        array(GAPS, 2),
        np.stack([PAIRS, PAIRS], 1),
        array(h5t.py_create(PAIRS.dtype), 2),
        is_plain=True,
    ),
    "array of text": Typed(
        array(text(5, h5t.STR_SPACEPAD), 2),
        np.stack([WORDS, WORDS[::-1]], 1),
        array(text(5, h5t.STR_NULLPAD), 2),
    ),
    "array of truth": Typed(
        array(enumeration(I4, FALSE=0, TRUE=1), 2),
        np.stack([COUNT % 3 == 0, COUNT % 2 == 0], 1),
        array(h5t.py_create(np.dtype(bool)), 2),
    ),
}


def quadruple() -> Any:
    made = h5t.NATIVE_LDOUBLE.copy()
    made.set_precision(128)
    made.set_fields(127, 112, 15, 0, 112)
    made.set_ebias(16383)
    made.set_norm(h5t.NORM_IMPLIED)
    return made


REFUSED: dict[str, tuple[Any, str]] = {
    "float of 113 bits": (quadruple(), "wider than any of NumPy's"),
    "int128": (integer(16, 128), "integers of 16 bytes"),
    "time": (h5t.UNIX_D32LE, "times of HDF5"),
    "reference": (h5t.STD_REF_OBJ, "references"),
    "reference to a region": (h5t.STD_REF_DSETREG, "references"),
    "column of references": (compound(16, ("a", 0, I4), ("b", 8, h5t.STD_REF_OBJ)), "references"),
    "array of text of any length": (
        array(h5t.py_create(h5py.string_dtype(), logical=True), 2),
        "text of any length within another type",
    ),
    "column of lists": (
        compound(24, ("a", 0, I4), ("b", 8, h5t.vlen_create(F4))),
        "lists within another type",
    ),
    "lists of columns": (h5t.vlen_create(GAPS), "lists of"),
    "lists of lists": (h5t.vlen_create(h5t.vlen_create(F4)), "lists within another type"),
    "lists in another byte order": (h5t.vlen_create(h5t.STD_I32BE), "lists of >i4"),
    "lists of int24": (h5t.vlen_create(integer(3, 24)), "lists of numbers that h5py"),
    "columns without UTF-8": (compound(4, (b"\xff", 0, I4)), "no UTF-8"),
}
