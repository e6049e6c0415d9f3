"""Text of times to arrays, as NumPy reads it, but for what it reads as another time than the text says."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

_DATE = r"\s*[-+]?[0-9]{1,4}(?:-[0-9]{2}(?:-[0-9]{2})?)?"
_DAY = re.compile(rf"{_DATE}|(?i:nat)|")
_TIME = re.compile(
    rf"({_DATE}[T ][0-9]{{2}}(?::[0-9]{{2}}(?::[0-9]{{2}})?)?)((?<=:[0-9]{{2}}:[0-9]{{2}})\.[0-9]*)?"
    r"(?:Z|([-+][0-9]{2}):?([0-9]{2})?)?"
)
_MARKS = {10: "T ", 13: ":", 16: ":", 19: "."}  # Where they stand in YYYY-MM-DDThh:mm:ss.fff.
_NUM_DATE = 10  # Letters of YYYY-MM-DD.
_FINE = frozenset({"ns", "ps", "fs", "as"})  # The others hold all years of four digits.
_COARSE = np.dtype("datetime64[ms]")  # The coarsest that NumPy makes of all of those.
_NEAR = 1000  # Milliseconds.
_LIMITS = np.iinfo(np.int64)


def times(texts: Sequence[str], dtype: np.dtype[Any]) -> Any:
    """Return ISO dates and times as datetime64, in UTC if they have an offset, or whole numbers as timedelta64.

    Digits finer than the unit are left out. "NaT" and "" are not-a-time.

    Raises:
        ValueError: A text is no such time.
        OverflowError: The unit does not hold it.
    """
    found = np.asarray(texts, "U")
    if dtype.kind == "m":
        return _checked_spans(found.astype(dtype.newbyteorder("=")), texts)
    if not _are_plain(found):
        found = np.asarray([_in_utc(text) for text in texts], "U")
    values = found.astype(dtype)
    if np.datetime_data(dtype)[0] in _FINE:
        # NumPy wraps around in silence, by 18 seconds or more. Units such as 7 ns cut some milliseconds.
        apart = _bits(values.astype(_COARSE)) - _bits(found.astype(_COARSE))
        if ((apart < -_NEAR) | (apart > _NEAR)).any():
            raise OverflowError(f"out of range for {dtype}")
    return values


def wider_unit(text: str, dtype: np.dtype[Any]) -> str | None:
    """Return the finest dtype that holds a time that this one does not; None if there is none."""
    if dtype.kind != "M" or np.datetime_data(dtype)[0] not in _FINE:
        return None
    for unit in ("ns", "us"):
        try:
            times([text], np.dtype(f"datetime64[{unit}]"))
        except (ValueError, OverflowError):
            continue
        return f"datetime64[{unit}]"
    return None


def time_cure(text: str, dtype: np.dtype[Any], name: str) -> str:
    """Return what to write, so that a text can be read as a time, or as what it is."""
    wider = wider_unit(text, dtype)
    if wider is not None:
        return f'{dtype} does not reach so far: spec={{{name!r}: "{wider}"}} holds it.'
    if dtype.kind == "m":
        return (
            f"Spans of time are whole numbers of their unit, and spec={{{name!r}: str}} reads text."
        )
    return f"Times are written as 2024-01-31 or 2024-01-31T23:59:59, and spec={{{name!r}: str}} reads text."


def check_unit(dtype: Any, name: str) -> None:
    """Raise ValueError for times without a unit, which no array can hold."""
    is_time = isinstance(dtype, np.dtype) and dtype.kind in "mM"
    if is_time and np.datetime_data(dtype)[0] == "generic":
        raise ValueError(
            f'a spec of times must have a unit, got {dtype} for {name!r}; write "{dtype}[s]".'
        )


def _bits(values: Any) -> Any:
    """Return times as whole numbers, of which a not-a-time is the least: so it is equal to itself."""
    return values.view(np.int64)


def _are_plain(found: Any) -> bool:
    """Return whether all texts are YYYY-MM-DD, with or without a time, and without an offset; fast."""
    width = found.dtype.itemsize // 4
    if not len(found) or width < _NUM_DATE:
        return False
    letters = found.view(np.uint32).reshape(len(found), width)
    if not ((letters[:, 4] == ord("-")) & (letters[:, 7] == ord("-"))).all():
        return False
    rest = letters[:, _NUM_DATE:]
    right = (rest == 0) | (rest - ord("0") < 10)  # Unsigned: what is below "0" is large.
    for at, marks in _MARKS.items():
        if at < width:
            column = letters[:, at]
            right[:, at - _NUM_DATE] = (column == 0) | np.isin(column, list(map(ord, marks)))
    return bool(right.all())


def _in_utc(text: str) -> str:
    """Return a time without its offset, after checking that it is written as ISO says.

    NumPy also takes `20240131` for a year, and `now` for a time, and warns of each offset.
    """
    if _DAY.fullmatch(text):
        return text
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"no ISO time: {text[:40]!r}")
    time, fraction, hours, minutes = match.groups()
    if hours is None:
        return text.removesuffix("Z")
    if abs(int(hours)) > 23 or int(minutes or 0) > 59:
        raise ValueError("an offset of more than a day")
    offset = abs(int(hours)) * 60 + int(minutes or 0)
    moved = np.datetime64(time, "s") - np.timedelta64(-offset if hours[0] == "-" else offset, "m")
    return f"{moved}{fraction or ''}"


def _checked_spans(values: Any, texts: Sequence[str]) -> Any:
    """Return spans of time, after checking that none was cut to the largest number that there is."""
    bits = _bits(values)
    for at in np.flatnonzero((bits == _LIMITS.max) | (bits == _LIMITS.min)):
        text = texts[int(at)].strip()
        if text and text.lower() != "nat":
            raise OverflowError(f"out of range: {text[:40]!r}")
    return values
