"""Tables in memory: pandas, polars, pyarrow, and whatever has the Arrow C interface. A column is a field."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.nest import Structure, field_names, unflatten
from penstock.core.optional import require
from penstock.core.spec import ArraySpec
from penstock.sources.arrow.in_memory import column_leaf, missing_value
from penstock.sources.reading.leaves import Leaf, leaf_of

_NOT_ARROW = {
    "Object": "holds Python objects; make numbers or text of them",
    "Int128": "has whole numbers of 128 bits; cast them to pl.Int64, pl.Float64 or pl.String",
    "UInt128": "has whole numbers of 128 bits; cast them to pl.UInt64, pl.Float64 or pl.String",
}
"""Types of polars that Arrow does not have, and what to do. Of objects polars gives their addresses in memory."""


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
    if "polars" in packages:
        _check_polars(value, name)
    if hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__"):
        return _of_arrow(value, name)
    return value


def _check_polars(value: Any, name: str) -> None:
    """Raise TypeError for a column, or a Series, of which Arrow has no such type."""
    dtypes = {name: value.dtype} if hasattr(value, "dtype") else dict(getattr(value, "schema", {}))
    for column, dtype in dtypes.items():
        for inner in _inner_types(dtype):
            if inner in _NOT_ARROW:
                raise TypeError(f"column {column!r} {_NOT_ARROW[inner]}, or leave it out.")


def _inner_types(dtype: Any) -> Iterator[str]:
    """Yield the name of a type of polars, and of those in its lists and structs."""
    yield str(dtype)
    if getattr(dtype, "inner", None) is not None:
        yield from _inner_types(dtype.inner)
    for field in getattr(dtype, "fields", ()):
        yield from _inner_types(field.dtype)


def _arrow_leaf(column: Any, name: str) -> Leaf:
    """Return the leaf of a column of Arrow's."""
    types = require("pyarrow", "reading Arrow arrays", "tables").types
    fill = "fill_null({})"
    if types.is_dictionary(column.type):
        # Polars' Enum takes no new word.
        fill = f"cast it to {column.type.value_type}, then {fill}"
    return column_leaf(column, name, fill)


def _of_arrow(value: Any, name: str) -> Any:
    pa = require("pyarrow", f"reading a {type(value).__name__} of {_package(value)}", "tables")
    if isinstance(value, pa.Array | pa.ChunkedArray):
        return _arrow_leaf(value, name)
    if isinstance(value, pa.RecordBatchReader):
        value = (
            value.read_all().combine_chunks()
        )  # It is nobody else's: one piece is read faster than many.
    elif not isinstance(value, pa.Table):
        value = _imported(value, name)
    if not isinstance(value, pa.Table):
        return _arrow_leaf(value, name)
    return {
        one: _arrow_leaf(value.column(number), one)
        for number, one in enumerate(_unlike(value.column_names, name))
    }


def _imported(value: Any, name: str) -> Any:
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
        pass
    try:
        return pa.chunked_array(value)
    except OSError:
        # A series of categories of polars before 1.34 says one type and gives another; its table is right.
        if not hasattr(value, "to_frame"):
            raise
        return pa.RecordBatchReader.from_stream(value.to_frame()).read_all().column(0)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise TypeError(
            f"field {name!r} is a {type(value).__name__} of {_package(value)} that pyarrow can't read: {error}; cast "
            "what it does not know, or leave it out."
        ) from error


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
    except OverflowError as error:
        raise TypeError(
            f"field {name!r} of pandas has whole numbers that no integer of 64 bits holds; make them text "
            '(astype(str)) or rounded numbers (astype("float64")), or leave it out.'
        ) from error
    except UnicodeEncodeError as error:
        raise TypeError(
            f"field {name!r} of pandas has text that is no Unicode: {error}; replace it "
            '(map(lambda text: text.encode("utf-8", "replace").decode())), or leave it out.'
        ) from error
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError) as error:
        raise TypeError(
            f"field {name!r} of pandas has dtype {dtype}, whose values are not of one kind: {error}; "
            "cast it (astype), or leave it out."
        ) from error
    return column_leaf(found, name, _pandas_fill(dtype, is_bool=pa.types.is_boolean(found.type)))


def _pandas_fill(dtype: Any, *, is_bool: bool = False) -> str:
    """Return how what is missing is filled: categories take no new one, and objects should be all of one kind."""
    if type(dtype).__name__ == "CategoricalDtype":
        return 'astype("object").fillna({})'
    return 'astype("boolean").fillna({})' if is_bool else "fillna({})"


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
    dtype = column.dtype
    is_category = type(dtype).__name__ == "CategoricalDtype"
    own = dtype.categories.dtype if is_category else getattr(dtype, "numpy_dtype", None)
    is_number = isinstance(own, np.dtype) and not own.hasobject
    spec = ArraySpec((), own if is_number else str)
    return missing_value(name, int(is_missing.argmax()), str(dtype), spec, _pandas_fill(dtype))
