"""From values of JSON to the values of a field: which type they have, what is missing, and which is bad."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import narrowed
from penstock.core.spec import ArraySpec, dtype_name
from penstock.errors import DataError, FieldError
from penstock.io.formats.lines import Piece, encoding_of, not_utf8
from penstock.sources.reading.fixed_texts import fixed_texts, wide_enough
from penstock.sources.reading.parsed_flow import LineOf
from penstock.sources.reading.times import time_cure, times

Path = tuple[str, ...]
"""Where a value is in an object: the key, and the keys in the objects in it."""
EXACT = 1 << 53
"""Up to here, every whole number is a float64."""
_NAMES = {dict: "an object", list: "a list", str: "text", bool: "a truth", type(None): "null"}


def named(value: Any) -> str:
    """Return what a value of JSON is called in messages."""
    return _NAMES.get(type(value), "a number")


def parse_line(data: bytes, line: int, file: str, offset: int | None = None) -> dict[str, Any]:
    """Return the object on a line, or raise a DataError that names the line."""
    if not data.strip():
        raise DataError(
            f"line {line} has spaces and no row",
            file=file,
            offset=offset,
            cure="Remove them: only an empty line is no row.",
        )
    # Of UTF-16, a line but the first begins with the second half of the line end.
    encoding_offset = 0 if line == 1 else 1
    try:
        found = json.loads(data.decode("utf-8"), parse_int=_whole if b"-0" in data else None)
    except UnicodeDecodeError as error:
        raise not_utf8(line, file, offset, encoding_of(data, encoding_offset)) from error
    except json.JSONDecodeError as error:
        encoding = encoding_of(data, encoding_offset)
        if encoding != "latin1":
            raise not_utf8(line, file, offset, encoding) from error
        raise DataError(
            f"line {line} is no JSON: {error.msg} at character {error.pos + 1}",
            file=file,
            offset=offset,
            cure="Each line must be an object of its own: {...}.",
        ) from error
    except (
        ValueError,
        RecursionError,
    ) as error:  # Numbers of thousands of digits, thousands of brackets.
        raise DataError(
            f"line {line} can't be read as JSON: {error}",
            file=file,
            offset=offset,
            cure="Correct it.",
        ) from error
    if not isinstance(found, dict):
        raise DataError(
            f"line {line} is {named(found)}, and a row must be an object",
            file=file,
            offset=offset,
            cure='Write {"value": ...} on each line.',
        )
    return found


class _MinusZero(int):
    """The whole number -0, which is -0.0 as a float: Python's own forgets that."""

    def __float__(self) -> float:
        return -0.0


def _whole(text: str) -> int:
    return _MinusZero() if text == "-0" else int(text)


def lines_of(piece: Piece) -> list[tuple[int, bytes]]:
    """Return the lines of a piece that are not blank, each with its number."""
    found = []
    line = piece.line
    for one in piece.data.split(b"\n"):
        found += [(line, part) for part in one.split(b"\r") if part]
        line += 1
    return found


def value_at(row: dict[str, Any], path: Path) -> Any:
    """Return the value at a path; None if it, or an object on the way to it, is missing.

    Raises:
        TypeError: What is on the way is no object; its argument is the name of that.
    """
    value: Any = row
    for depth, key in enumerate(path):
        if value is None:
            return None
        if not isinstance(value, dict):
            raise TypeError(".".join(path[:depth]))
        value = value.get(key)
    return value


# -- types ------------------------------------------------------------------------------------------


def kind_of_values(values: Sequence[Any], name: str, file: str) -> ArraySpec:
    """Return the spec that can hold all values, of which some may be missing; raise FieldError if there is none."""
    filled = [value for value in values if value is not None]
    kinds = {named(value) for value in filled}
    if not kinds:
        raise _unclear(name, "has no value in the first 256 KB", name, file, "float32")
    if len(kinds) > 1:
        raise _unclear(name, f"is {' and '.join(sorted(kinds))}, depending on the line", name, file)
    has_gaps = len(filled) != len(values)
    (kind,) = kinds
    if kind == "text":
        return ArraySpec((), str)
    if kind == "a truth":
        if has_gaps:
            raise _unclear(
                name, "is null or missing in some lines, and a truth can't be", name, file
            )
        return ArraySpec((), np.bool_)
    if kind == "a number":
        return ArraySpec((), _kind_of_numbers(filled, name, file, has_gaps=has_gaps))
    if kind == "an object":
        raise _unclear(name, "has only empty objects", name, file)
    if has_gaps:
        raise _unclear(name, "is null or missing in some lines, and a list can't be", name, file)
    return _kind_of_lists(filled, name, file)


def _kind_of_lists(filled: Sequence[Any], name: str, file: str) -> ArraySpec:
    items = [item for value in filled for item in value]
    inner = {named(item) for item in items if item is not None}
    if inner == {"a list"}:
        cure = f"spec={{{name!r}: ps.ArraySpec((None, 3), 'float32')}} reads lists of lists of one length"
        raise FieldError(f"field {name!r} has lists of lists", file=file, cure=f"{cure}.")
    if inner == {"a truth"} and None not in items:
        return ArraySpec((None,), np.bool_)
    if inner == {"text"}:
        return ArraySpec((None,), str)
    if inner != {"a number"}:
        of = " and ".join(sorted(inner)) or "nothing, in the first 256 KB"
        raise _unclear(name, f"has lists of {of}", name, file)
    numbers = [item for item in items if item is not None]
    gaps = len(numbers) != len(items)
    return ArraySpec((None,), _kind_of_numbers(numbers, name, file, has_gaps=gaps))


def _kind_of_numbers(numbers: Sequence[Any], name: str, file: str, *, has_gaps: bool) -> Any:
    if any(isinstance(number, float) for number in numbers):
        return np.float64
    least, most = min(numbers), max(numbers)
    if not has_gaps and least >= -(1 << 63) and most < 1 << 63:
        return np.int64
    if least < -EXACT or most > EXACT:
        what = "has whole numbers beyond 2**53, of which some are missing or too large for int64"
        is_unsigned = not has_gaps and least >= 0 and most < 1 << 64
        raise _unclear(name, what, name, file, *(["uint64"] if is_unsigned else []), "float64")
    return np.float64


def _unclear(name: str, what: str, field: str, file: str, *dtypes: str) -> FieldError:
    """Return the error for a field whose type is not clear; `dtypes` are those that could be set."""
    others = "".join(f' (or "{dtype}", which rounds them)' for dtype in dtypes[1:])
    set_type = (
        f'spec={{{field!r}: "{dtypes[0]}"}}{others} with fields=(...) sets its type. '
        if dtypes
        else ""
    )
    cure = f"{set_type}Choose other fields with fields=(...), or correct it."
    return FieldError(f"field {name!r} {what}", file=file, cure=cure)


# -- values -----------------------------------------------------------------------------------------


def are_whole(values: Sequence[Any]) -> bool:
    """Return whether all numbers, and those in lists, are whole, as far as they are not missing."""
    return all(
        are_whole(value) if isinstance(value, list) else value is None or isinstance(value, int)
        for value in values
    )


def check_exact(rows: Sequence[dict[str, Any]], path: Path, line_of: LineOf, file: str) -> None:
    """Raise a DataError for the first whole number that float64 may not hold; decimals are rounded as ever."""
    for row, one in enumerate(rows):
        try:
            value = value_at(one, path)
        except TypeError:
            return  # It has an error of its own.
        large = [
            item
            for item in (value if isinstance(value, list) else [value])
            if isinstance(item, int) and abs(item) > EXACT
        ]
        if large:
            name = ".".join(path)
            raise DataError(
                f"line {line_of(row)}: field {name!r} is float64, since it has whole numbers with gaps, and that "
                f"holds them up to 2**53, got {_shown(large[0])}",
                file=file,
                cure=f"Read them as rounded numbers: {_as_floats(name, value)}.",
            )


def _as_floats(name: str, value: Any) -> str:
    """Return the argument that reads a number, or a list of them, as float64."""
    kind = 'ps.ArraySpec((None,), "float64")' if isinstance(value, list) else '"float64"'
    return f"spec={{{name!r}: {kind}}}"


def field_values(
    rows: Sequence[dict[str, Any]], path: Path, spec: ArraySpec, line_of: LineOf, file: str
) -> Any:
    """Return the values of a field, or raise a DataError with the line of the first bad one."""
    if spec.numpy_dtype.kind in "mM":
        try:
            return times([_time_text(value_at(row, path)) for row in rows], spec.numpy_dtype)
        except (TypeError, ValueError, OverflowError):
            pass  # The first bad one is found below.
    found = []
    for row, one in enumerate(rows):
        value: Any = None
        try:
            value = value_at(one, path)
            found.append(_converted(value, spec, spec.shape))
        except (TypeError, ValueError, OverflowError) as error:
            name = ".".join(path)
            place = next(
                (depth for depth in range(1, len(path)) if _is_other(one, path[:depth])), 0
            )
            if place:
                raise DataError(
                    f"line {line_of(row)}: field {name!r} is in an object, and {'.'.join(path[:place])!r} is none, got "
                    f"{_shown(value_at(one, path[:place]))}",
                    file=file,
                    cure="Correct it, or leave the field out with fields=(...).",
                ) from error
            raise DataError(
                f"line {line_of(row)}: field {name!r} is {_spec_words(spec)}, got {_shown(value)}",
                file=file,
                cure=_cure(value, spec, name),
            ) from error
    if not isinstance(spec.dtype, np.dtype):
        return found
    if not spec.is_fixed:
        return [np.asarray(one, spec.dtype).reshape(_shape(one, spec)) for one in found]
    return np.array(found, spec.dtype).reshape(len(found), *spec.fixed_shape)


def _is_other(row: dict[str, Any], path: Path) -> bool:
    """Return whether there is something at a path, and no object."""
    try:
        found = value_at(row, path)
    except TypeError:
        return True
    return found is not None and not isinstance(found, dict)


def _shape(value: Any, spec: ArraySpec) -> tuple[int, ...]:
    """Return the shape of nested lists, also of empty ones."""
    return (len(value), *(size for size in spec.shape[1:] if size is not None))


def _spec_words(spec: ArraySpec) -> str:
    lists = f" in lists of shape {spec.shape}".replace("None", "?") if spec.shape else ""
    return f"{dtype_name(spec.dtype)}{lists}"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else f"{text[:40]}..."


def _cure(value: Any, spec: ArraySpec, name: str) -> str:
    kind = spec.dtype.kind if isinstance(spec.dtype, np.dtype) else "t"
    if spec.shape:
        return _list_cure(value, spec, name)
    if kind in "iu" and isinstance(value, int) and not isinstance(value, bool):
        wider = next((one for one in ("int64", "uint64") if _fits(value, one)), "")
        # The other numbers of a uint64 column may need it.
        holds = (
            f'spec={{{name!r}: "{wider}"}} holds it, and '
            if wider and spec.dtype != np.uint64
            else ""
        )
        return f'{holds}spec={{{name!r}: "float64"}} reads rounded numbers.'
    if kind in "iu" and (value is None or isinstance(value, float)):
        return f'spec={{{name!r}: "float32"}} (or "float64") reads decimals, and missing numbers as nan.'
    if kind in "mM" and isinstance(value, str):
        return time_cure(value, spec.numpy_dtype, name)
    if kind in "SU" and isinstance(value, str):
        wider = wide_enough(value, spec.numpy_dtype)
        holds = f'spec={{{name!r}: "{wider}"}} holds it, and ' if wider else ""
        return f"{holds}spec={{{name!r}: str}} reads text of any length."
    if kind == "f" and isinstance(value, int | float) and not isinstance(value, bool):
        return f'spec={{{name!r}: "float64"}} holds it.'
    if kind == "b" and value is None:
        return "Fill it: a truth can't be missing."
    return "Correct it, or leave the field out with fields=(...)."


def _list_cure(value: Any, spec: ArraySpec, name: str) -> str:
    """Return what reads a list that is not as long as the others, or has a number too large for its dtype."""
    leave = "Correct it, or leave the field out with fields=(...)."
    if not isinstance(value, list) or len(spec.shape) != 1 or not isinstance(spec.dtype, np.dtype):
        return leave
    if not value or not all(isinstance(one, int | float) for one in value):
        return leave
    if any(isinstance(one, bool) != (spec.dtype.kind == "b") for one in value):
        return leave
    names = [dtype_name(spec.dtype), "int64", "uint64", "float64"]
    if spec.dtype.kind == "f" or any(isinstance(one, float) for one in value):
        names = [dtype_name(spec.dtype), "float64"]
    fitting = [one for one in names if all(_holds(each, one) for each in value)]
    if spec.shape[0] in (None, len(value)):
        fitting = fitting[:1] if fitting[:1] != names[:1] else []
    shape = spec.shape if spec.shape[0] in (None, len(value)) else (None,)
    if not fitting:
        return leave
    wider = f"spec={{{name!r}: ps.ArraySpec({shape}, {json.dumps(fitting[0])})}}"
    is_rounded = fitting[0] == "float64" and all(isinstance(one, int) for one in value)
    return f"{wider} {'reads rounded numbers' if is_rounded else 'holds it'}."


def _holds(value: Any, dtype: str) -> bool:
    try:
        _number(value, np.dtype(dtype))
    except (TypeError, ValueError, OverflowError):
        return False
    return True


def _converted(value: Any, spec: ArraySpec, shape: tuple[int | None, ...]) -> Any:
    """Return a value as the spec has it; lists of `shape`. Raises TypeError, ValueError or OverflowError."""
    if shape:
        if not isinstance(value, list) or shape[0] not in (None, len(value)):
            raise TypeError("not such a list")
        return [_converted(one, spec, shape[1:]) for one in value]
    if not isinstance(spec.dtype, np.dtype):
        text = "" if value is None else value
        if not isinstance(text, str):
            raise TypeError("no text")
        return text if spec.dtype is str else text.encode("utf-8", "surrogatepass")
    if spec.dtype.kind in "biuf":
        return _number(value, spec.dtype)
    if spec.dtype.kind in "mM":
        return times([_time_text(value)], spec.dtype)[0]
    if not isinstance(value, str):
        raise TypeError("no text")
    return fixed_texts([value], spec.dtype)[0]


def _time_text(value: Any) -> str:
    """Return the text of a time, that of not-a-time if it is missing."""
    if value is not None and not isinstance(value, str):
        raise TypeError("no text")
    return "NaT" if value is None else value


def _number(value: Any, dtype: np.dtype[Any]) -> Any:
    if dtype.kind == "f" and value is None:
        return np.nan
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    is_right = is_whole
    if dtype.kind in "bf":
        is_right = (
            isinstance(value, bool) if dtype.kind == "b" else is_whole or isinstance(value, float)
        )
    if not is_right:
        raise TypeError("no such number")
    if dtype.kind in "iu" and not _fits(value, dtype):
        raise OverflowError(f"out of range for {dtype}")
    return narrowed(np.array(value, np.float64), dtype)[()] if dtype.kind == "f" else value


def _fits(value: int, dtype: np.dtype[Any] | str) -> bool:
    limits = np.iinfo(dtype)
    return bool(limits.min <= value <= limits.max)
