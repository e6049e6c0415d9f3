"""Every dtype of NumPy and of ml_dtypes, and batches of each in every form that a field can have."""

import ml_dtypes
import numpy as np
import pytest

import penstock as ps
from penstock.core.nest import flatten

DTYPES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "longdouble", "complex64", "complex128", "clongdouble"),
    *(">i2", ">i4", ">i8", ">u2", ">u4", ">u8", ">f2", ">f4", ">f8", ">c8", ">c16"),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4"),
    # ml_dtypes has these since 0.5.
    *(name for name in ("float8_e8m0fnu", "float4_e2m1fn") if hasattr(ml_dtypes, name)),
    *("S5", "U5", ">U5", "datetime64[s]", ">M8[s]", "timedelta64[ms]", "V3"),
    [("a", "i4"), ("b", ">f4")],
]


def dtype_of(dtype):
    """Return a dtype by its name."""
    return np.dtype(getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype)


def is_plain_number(dtype):
    """Whether it is a number of up to 64 bits, or two for complex ones, of NumPy's own."""
    kind = dtype_of(dtype)
    is_long = kind.name in (np.dtype("longdouble").name, np.dtype("clongdouble").name)
    return kind.kind in "biufc" and kind.type.__module__ == "numpy" and not is_long


def batches_of_dtype(dtype):
    """Return datasets of the field x: plain, nested, padded from ragged rows, and a single value."""
    kind = dtype_of(dtype)
    if kind.kind in "SU":
        values = np.array([["ab", "c"]] * 6).astype(kind)
    elif kind.type is np.void and kind.names is None:
        values = np.zeros((6, 2), kind)
    else:
        values = (np.arange(12).reshape(6, 2) % 2 + 1).astype(kind)
    ragged = [row[: 1 + place % 2] for place, row in enumerate(values)]
    return {
        "plain": ps.from_arrays({"x": values}).batch(4),
        "nested": ps.from_arrays({"x": {"in": (values, np.arange(6, dtype="int32"))}}).batch(4),
        "ragged": ps.from_arrays({"x": ragged}).padded_batch(4),
        "single": ps.from_arrays({"x": values}).batch(4).map(lambda row: {"x": row["x"][0, 0]}),
    }


def values_of(leaf):
    """Return the values of an array or tensor as Python objects."""
    if type(leaf).__module__.split(".")[0] == "torch":
        # NumPy has no bfloat16, and torch can only cast the small floats.
        is_small = any(name in str(leaf.dtype) for name in ("bfloat16", "float8"))
        leaf = leaf.float() if is_small else leaf
    array = np.asarray(leaf.numpy() if hasattr(leaf, "numpy") else leaf)
    if array.dtype.kind in "SUO":
        return [one if isinstance(one, str) else one.decode() for one in array.ravel().tolist()]
    if array.dtype.type is np.void:
        return array.tolist()
    return array.astype("complex128").tolist()


def assert_arrives_or_is_refused(dtype, feed_of, *, has):
    """Raise unless each form of a dtype arrives with its values or, if a framework does not have it, is refused."""
    for form, ds in batches_of_dtype(dtype).items():
        if not has:
            with pytest.raises(TypeError, match=r"^field 'x.* has n.*; .*\.map\("):
                feed_of(ds)
            continue
        for found, wanted in zip(feed_of(ds), ds, strict=True):
            for mine, theirs in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
                assert values_of(mine) == values_of(theirs), form
