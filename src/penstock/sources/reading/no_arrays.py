"""What to write instead of a thing that from_arrays can't take as one array."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from decimal import Decimal
from typing import Any

import numpy as np

_MOST_NAMES = 3  # Of columns, in a snippet.


def no_array(value: Any, name: str) -> TypeError:
    """Return the error for something that is neither an array nor a list nor a table."""
    cure = _cure(value)
    return TypeError(
        f"field {name!r} must be an array (anything with shape, dtype and slicing), or a list of "
        f"bytes or str, or a table, got {type(value).__name__}{f'; {cure}' if cure else ''}."
    )


def _cure(value: Any) -> str:
    kind = type(value)
    package = kind.__module__.partition(".")[0]
    if value is None:
        return "leave it out"
    if isinstance(value, str | os.PathLike):
        return f"files are read by ps.from_files({os.fspath(value)!r:.80})"
    if isinstance(value, bytes):
        return "one text is a list of one: from_arrays([value])"
    if isinstance(value, int | float | complex):
        return "a constant for all rows is np.full(num_rows, value)"
    if package == "penstock":
        if kind.__name__ == "Dataset":
            return "it is a dataset already: use it as it is, and put several side by side by ps.zip(a, b)"
        return "give the arrays that it was made of, or go on with its dataset"
    return _cure_of_another_library(value) or _cure_of_many(value)


def _cure_of_another_library(value: Any) -> str:
    kind = type(value)
    if kind.__name__ == "NpzFile":
        return "write from_arrays(dict(value)), or ps.from_files(path), which reads rows as they are needed"
    if kind.__name__ == "RaggedTensor":
        return "write from_arrays([row.numpy() for row in value])"
    if hasattr(value, "as_numpy_iterator"):  # tf.data
        spec = "ps.spec_of(next(value.as_numpy_iterator()))"
        return f"write ps.from_generator(value.as_numpy_iterator, {spec})"
    if hasattr(value, "tensors"):  # A TensorDataset of torch.
        return "write from_arrays(value.tensors)"
    if kind.__name__ == "DataLoader":
        return "give what its dataset is made of: ps.from_arrays(...).batch(32).to_torch() takes its place"
    return ""


def _cure_of_many(value: Any) -> str:
    if isinstance(value, Iterator) or callable(value):
        return "write ps.from_generator(function, spec) with a function that returns an iterator"
    if isinstance(value, Mapping) or hasattr(value, "keys"):
        return "write from_arrays(dict(value))"
    if isinstance(value, Sequence | bytearray | memoryview) or hasattr(value, "__array__"):
        return "write from_arrays(np.asarray(value))"
    if isinstance(value, Sized) and hasattr(value, "__getitem__"):
        return "write from_arrays(np.arange(len(value))).map(lambda row: value[int(row)])"
    if isinstance(value, set | frozenset):
        return "write from_arrays(sorted(value))"
    if isinstance(value, Iterable):
        return "write ps.from_generator(value, ps.spec_of(next(iter(value))))"
    return ""


def no_list(values: list[Any], name: str) -> TypeError:
    """Return the error for a list of what can't be rows as it is."""
    kinds = {type(value) for value in values}
    names = ", ".join(sorted(kind.__name__ for kind in kinds))
    return TypeError(
        f"field {name!r}: a list must hold only bytes, only str, only numbers or only NumPy arrays, got {names}.\n"
        f"  wrong: from_arrays(rows)\n  right: {_right(values, kinds)}"
    )


def _right(rows: list[Any], kinds: set[type]) -> str:
    if kinds <= {dict}:
        keys = list(rows[0])
        columns = ", ".join(
            f"{key!r}: [row[{key!r}] for row in rows]" for key in keys[:_MOST_NAMES]
        )
        more = ", ..." if len(keys) > _MOST_NAMES else ""
        return (
            f"from_arrays({{{columns}{more}}})\n"
            "         or ps.from_generator(lambda: rows, ps.spec_of(rows[0]))"
        )
    if all(issubclass(kind, os.PathLike) for kind in kinds):
        return "ps.from_files(rows)"
    if all(kind.__module__.startswith("penstock.") for kind in kinds):
        return "ps.concatenate(*rows), or ps.zip(*rows) to put them side by side"
    if all(hasattr(row, "__array__") for row in rows):  # Tensors and images.
        return "from_arrays([np.asarray(row) for row in rows])"
    for dtype in _dtypes(rows, kinds):
        try:
            found = np.asarray(rows, dtype)
        except (TypeError, ValueError):
            continue
        if not found.dtype.hasobject and (
            dtype is not None or not _is_text_of_numbers(found, rows)
        ):
            return f"from_arrays(np.asarray(rows{f', {dtype!r}' if dtype else ''}))"
    if kinds <= {list, tuple}:
        return _right_of_rows(rows)
    return "from_arrays([str(row) for row in rows])"


def _dtypes(rows: list[Any], kinds: set[type]) -> list[str | None]:
    """Return the dtypes that such rows may have, None for that which NumPy finds."""
    if all(hasattr(row, "isoformat") for row in rows):
        return ["datetime64[us]" if all(hasattr(row, "hour") for row in rows) else "datetime64[D]"]
    is_number = all(issubclass(kind, int | float | Decimal | type(None)) for kind in kinds)
    return ["float64"] if is_number else [None]


def _is_text_of_numbers(found: Any, rows: list[Any]) -> bool:
    """Return whether NumPy has made text of numbers, since there is text beside them."""
    return found.dtype.kind in "SU" and {type(one) for one in _items(rows)} - {str, bytes} != set()


def _items(rows: Iterable[Any]) -> Iterator[Any]:
    for row in rows:
        if isinstance(row, list | tuple):
            yield from _items(row)
        else:
            yield row


def _right_of_rows(rows: list[Any]) -> str:
    if len({len(row) for row in rows}) == 1:  # Of several fields.
        return "from_arrays(tuple(list(column) for column in zip(*rows)))"
    if {type(one) for one in _items(rows)} <= {str}:
        return "ps.from_generator(lambda: rows, ps.ArraySpec((None,), str))"
    return "from_arrays([np.asarray(row) for row in rows])"
