"""Tables in memory: pandas, polars, pyarrow, and whatever has the Arrow C interface. A column is a field."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.nest import Structure, field_names, unflatten
from penstock.core.optional import require
from penstock.core.spec import ArraySpec
from penstock.sources.arrow.in_memory import column_leaf, missing_value
from penstock.sources.reading.leaves import Leaf, leaf_of

_ARROW_FILL, _PANDAS_FILL = "fill_null", "fillna"


def opened(values: Sequence[Any], structure: Structure) -> Any:
    """Return the nest with a dict of leaves for each table, and a leaf for each column of one."""
    names = field_names(structure)
    return unflatten(
        structure, [_opened(value, name) for value, name in zip(values, names, strict=True)]
    )


def _opened(value: Any, name: str) -> Any:
    kind = type(value)
    packages = {base.__module__.partition(".")[0] for base in kind.__mro__}
    if "pandas" in packages:
        return _of_pandas(value, name)
    if "polars" in packages and hasattr(value, "collect"):
        raise TypeError(f"field {name!r} is a {kind.__name__}; give its rows: frame.collect().")
    if hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__"):
        return _of_arrow(value, name)
    return value


def _of_arrow(value: Any, name: str) -> Any:
    pa = require("pyarrow", f"reading a {type(value).__name__} of {_package(value)}", "tables")
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return column_leaf(value, name, _ARROW_FILL)
    if isinstance(value, pa.RecordBatchReader):
        value = (
            value.read_all().combine_chunks()
        )  # It is nobody else's: one piece is read faster than many.
    elif not isinstance(value, pa.Table):
        value = _imported(value)
    if not isinstance(value, pa.Table):
        return column_leaf(value, name, _ARROW_FILL)
    return {
        one: column_leaf(value.column(number), one, _ARROW_FILL)
        for number, one in enumerate(_unlike(value.column_names, name))
    }


def _imported(value: Any) -> Any:
    """Return what has the Arrow C interface as a table, or as a column if it is none."""
    pa = require("pyarrow", "reading Arrow arrays", "tables")
    if not hasattr(value, "__arrow_c_stream__"):
        array = pa.array(value)
        is_table = pa.types.is_struct(array.type)
        return (
            pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)]) if is_table else array
        )
    try:
        return pa.RecordBatchReader.from_stream(value).read_all()  # pa.table() would load pandas.
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError):
        return pa.chunked_array(value)


def _unlike(names: Sequence[str], name: str) -> Sequence[str]:
    """Return the names of columns, after checking that there are some, and no two alike."""
    if not names:
        raise ValueError(f"field {name!r} is a table without columns.")
    twice = [one for one, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"two columns are called {twice[0]!r}; give each a name of its own.")
    return names


def _package(value: Any) -> str:
    return type(value).__module__.partition(".")[0]


def _of_pandas(value: Any, name: str) -> Any:
    ndim = getattr(value, "ndim", 0)
    if ndim == 2 and hasattr(value, "columns"):
        names = [
            ".".join(map(str, one)) if isinstance(one, tuple) else str(one) for one in value.columns
        ]
        return {
            one: _pandas_column(value.iloc[:, number], one)
            for number, one in enumerate(_unlike(names, name))
        }
    if ndim == 1 and hasattr(value, "to_numpy") and not hasattr(value, "levels"):
        return _pandas_column(value, name)
    raise TypeError(
        f"field {name!r} must be an array or a table, got a {type(value).__name__} of pandas; "
        "make it a DataFrame (to_frame, reset_index), a Series or an Index."
    )


def _pandas_column(column: Any, name: str) -> Leaf:
    """Return the leaf of a Series, Index or array of pandas."""
    dtype = column.dtype
    if isinstance(dtype, np.dtype) and not dtype.hasobject:
        return leaf_of(column.to_numpy(), name)
    kind = type(dtype).__name__
    if kind == "DatetimeTZDtype":
        return leaf_of(column.to_numpy(dtype=f"datetime64[{dtype.unit}]"), name)  # As UTC.
    if kind == "SparseDtype":
        raise TypeError(f"field {name!r} is sparse; make it dense: column.sparse.to_dense().")
    if kind in ("PeriodDtype", "IntervalDtype"):
        raise TypeError(
            f"field {name!r} has dtype {dtype}; make it times or numbers (to_timestamp, mid), or leave it out."
        )
    if isinstance(dtype, np.dtype) and len(column) and isinstance(column.array[0], np.ndarray):
        return leaf_of(list(column), name)
    try:
        pa = require("pyarrow", f"reading {dtype}", "tables")
    except ImportError:
        return _without_arrow(column, name)
    values = getattr(column, "array", column)
    try:
        found = (
            values.__arrow_array__()
            if hasattr(values, "__arrow_array__")
            else pa.array(values, from_pandas=True)
        )
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise TypeError(
            f"field {name!r} of pandas has dtype {dtype}, whose values are not of one kind: {error}; "
            "cast it (astype), or leave it out."
        ) from error
    return column_leaf(found, name, _PANDAS_FILL)


def _without_arrow(column: Any, name: str) -> Leaf:
    """Return the leaf of a column whose dtype is pandas' own, by way of NumPy: pyarrow is not installed."""
    dtype = column.dtype
    is_missing = np.asarray(column.isna())
    own = getattr(dtype, "numpy_dtype", None)  # Of pandas' numbers that may be missing.
    if own is not None and own.kind in "biuf":
        if is_missing.any() and own.kind != "f":
            raise _missing(column, name, is_missing)
        return leaf_of(
            column.to_numpy(dtype=own, **({"na_value": np.nan} if own.kind == "f" else {})), name
        )
    if is_missing.any():
        raise _missing(column, name, is_missing)
    values = np.asarray(column)  # The values of categories; objects of text.
    if not values.dtype.hasobject:
        return leaf_of(values, name)
    found = values.tolist()
    if {type(one) for one in found} in ({str}, {bytes}):
        return leaf_of(found, name)
    require("pyarrow", f"reading field {name!r} of {dtype}", "tables")
    raise AssertionError("pyarrow is not installed")


def _missing(column: Any, name: str, is_missing: Array) -> ValueError:
    own = getattr(column.dtype, "numpy_dtype", None)
    spec = ArraySpec((), str if own is None else own)
    return missing_value(name, int(is_missing.argmax()), str(column.dtype), spec, _PANDAS_FILL)
