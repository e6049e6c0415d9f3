"""The first rows of a dataset, as a table: images as pictures, series as sparklines."""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.io.atomic import atomic_file
from penstock.reports import style
from penstock.reports.half_blocks import side_by_side
from penstock.reports.png import is_image, thumbnail

_SPARKS = "▁▂▃▄▅▆▇█"
_LEAST_SERIES = 8
_MOST_SPARKS = 24
_MOST_POINTS = 160
_MOST_ITEMS = 6  # Of a short array, in text.
_MOST_TEXT = 40
_MOST_LISTED = 64  # Items of an array that `to_dict` lists; of others it has the first few.
_MOST_CLASSES = 8
_PICTURE_COLUMNS = 24  # Of an image in a terminal, in characters.
_MOST_WIDTH = 120  # Of a table in a terminal, in characters.


@dataclass(frozen=True, slots=True)
class PeekField:
    """One field of the rows: its name and type, and what the rows that are shown have in it."""

    name: str
    dtype: str
    shape: tuple[int | None, ...]
    minimum: float | None = None
    mean: float | None = None
    maximum: float | None = None
    num_nan: int = 0
    lengths: tuple[int, int] | None = None
    """The shortest and the longest, of text and of rows that differ in length."""
    classes: tuple[str, ...] | None = None
    """The values, of a field with one whole number, bool or text a row, if there are few."""

    @property
    def kind(self) -> str:
        """The dtype with the shape."""
        sizes = "x".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.dtype}[{sizes}]" if sizes else self.dtype

    def facts(self) -> str:
        """Return the statistics in words."""
        parts = []
        if self.minimum is not None and self.maximum is not None and self.mean is not None:
            parts.append(
                f"{_number(self.minimum)} to {_number(self.maximum)}, mean {_number(self.mean)}"
            )
        if self.num_nan:
            parts.append(f"{self.num_nan} NaN")
        if self.lengths is not None:
            low, high = self.lengths
            parts.append(f"length {low}" if low == high else f"lengths {low} to {high}")
        if self.classes is not None:
            parts.append(f"{len(self.classes)} different" if len(self.classes) > 1 else "all alike")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True, eq=False)
class Peek:
    """The first rows of a dataset; `print` it, show it in a notebook, or look at its fields.

    >>> import numpy as np, penstock as ps
    >>> print(ps.from_arrays((np.arange(6.0), ["a", "b", "a", "c", "d", "e"])).peek(3))
    from_arrays((6) float64, (6) str): the first 3 of 6 rows
         0 float64         1 str
      0  0                 'a'
      1  1                 'b'
      2  2                 'a'
         0 to 2, mean 1    length 1; 2 different
    """

    call: str
    title: str
    fields: tuple[PeekField, ...]
    rows: tuple[tuple[Any, ...], ...]
    """The values of each row, a leaf of the nest after the other."""
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        heads = [f"{one.name} {one.kind}" for one in self.fields]
        table = [heads, *([_shown(value) for value in row] for row in self.rows)]
        if self.rows:
            table.append([one.facts() for one in self.fields])
        widths = [max(len(row[number]) for row in table) for number in range(len(heads))]
        if sum(widths) + 4 * len(widths) > _MOST_WIDTH:
            return "\n".join(self._upright(table))
        labels = ["", *(str(number) for number in range(len(self.rows))), ""]
        wide = max(map(len, labels))
        lines = [f"{self.call}: {self.title}"]
        for label, row in zip(labels, table, strict=False):
            cells = "    ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
            lines.append(f"  {label:>{wide}}  {cells}".rstrip())
        return "\n".join([*lines, *(f"note: {one}" for one in self.notes)])

    def _upright(self, table: list[list[str]]) -> Iterator[str]:
        """Yield the lines of a table that is too wide: field after field."""
        yield f"{self.call}: {self.title}"
        for number, one in enumerate(self.fields):
            facts = one.facts()
            yield f"  {one.name} {one.kind}" + (f": {facts}" if facts else "")
            for row in range(len(self.rows)):
                yield f"    {row}  {table[row + 1][number]}".rstrip()
        yield from (f"note: {one}" for one in self.notes)

    def pictures(self, columns: int, *, is_true: bool) -> Iterator[str]:
        """Yield lines that show the images of each field in a terminal that is so wide.

        With `is_true` it has 24 bits a colour; else it has 256 colours.
        """
        for number, one in enumerate(self.fields):
            images = [row[number] for row in self.rows if is_image(row[number])]
            most = max(1, (columns + 2) // (_PICTURE_COLUMNS + 2))
            if images:
                yield f"{one.name} {one.kind}"
                wide = min(columns, _PICTURE_COLUMNS)
                yield from side_by_side(images[:most], wide, is_true=is_true)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page of one file: images as pictures, series as lines."""
        with atomic_file(Path(path), replace=True) as file:
            page = style.page(f"penstock: {self.call}", self._body())
            file.write(page.encode("utf-8", "backslashreplace"))

    def _repr_html_(self) -> str:
        return style.fragment(self._body())

    def _body(self) -> str:
        heads = "".join(
            f'<th>{escape(one.name)}<br><span style="font-weight:400">{escape(one.kind)}</span></th>'
            for one in self.fields
        )
        rows = [
            f'<tr><td class="num muted">{number}</td>{"".join(map(_cell, row))}</tr>'
            for number, row in enumerate(self.rows)
        ]
        facts = "".join(f'<td class="muted">{escape(one.facts())}</td>' for one in self.fields)
        last = f"<tr><td></td>{facts}</tr>" if self.rows else ""
        notes = "".join(f'<p class="muted">{escape(one)}</p>' for one in self.notes)
        return (
            f"<p><b>{escape(self.call)}</b>: {escape(self.title)}</p>"
            f"<table><thead><tr><th></th>{heads}</tr></thead><tbody>{''.join(rows)}{last}</tbody></table>{notes}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as dicts, lists, numbers and text; of large arrays the first values only."""
        fields = [
            {
                "name": one.name,
                "dtype": one.dtype,
                "shape": list(one.shape),
                "minimum": _json(one.minimum),
                "mean": _json(one.mean),
                "maximum": _json(one.maximum),
                "num_nan": one.num_nan,
                "lengths": None if one.lengths is None else list(one.lengths),
                "classes": None if one.classes is None else list(one.classes),
            }
            for one in self.fields
        ]
        rows = [[_json(value) for value in row] for row in self.rows]
        return {
            "call": self.call,
            "title": self.title,
            "fields": fields,
            "rows": rows,
            "notes": list(self.notes),
        }


def field_of(
    name: str, dtype: str, shape: tuple[int | None, ...], values: Sequence[Any]
) -> PeekField:
    """Return a field, with the statistics of the values that are shown."""
    if not values:
        return PeekField(name, dtype, shape)
    if dtype in ("str", "bytes"):
        texts = [
            text
            for value in values
            for text in (value.flat if isinstance(value, np.ndarray) else (value,))
        ]
        lengths = (min(map(len, texts)), max(map(len, texts))) if texts else None
        classes = _classes(texts) if not shape else None
        return PeekField(name, dtype, shape, lengths=lengths, classes=classes)
    arrays = [np.asarray(value) for value in values]
    sizes = [len(array) for array in arrays if array.ndim]
    lengths = (min(sizes), max(sizes)) if sizes and shape[:1] == (None,) else None
    numbers = [
        array.astype(np.float64).ravel()
        for array in arrays
        if array.dtype.kind in "buif" or _is_float(array)
    ]
    flat = np.concatenate(numbers) if numbers else np.empty(0)
    good = flat[~np.isnan(flat)]
    is_whole = not shape and arrays[0].dtype.kind in "biu"
    if not good.size:
        return PeekField(name, dtype, shape, num_nan=int(flat.size), lengths=lengths)
    return PeekField(
        name,
        dtype,
        shape,
        minimum=float(good.min()),
        mean=_mean(good),
        maximum=float(good.max()),
        num_nan=int(flat.size - good.size),
        lengths=lengths,
        classes=_classes([array.item() for array in arrays]) if is_whole else None,
    )


def _mean(values: Array) -> float:
    with np.errstate(
        all="ignore"
    ):  # Of infinite numbers, or of those that are too large to be added up.
        return float((values / len(values)).sum())


def _is_float(array: Array) -> bool:
    return array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2")


def _classes(values: Sequence[Any]) -> tuple[str, ...] | None:
    found = tuple(dict.fromkeys(str(value) for value in values))
    return found if len(found) <= _MOST_CLASSES else None


def _number(value: float) -> str:
    if not math.isfinite(value):
        return str(value)
    return str(round(value)) if value == round(value) and abs(value) < 1e6 else f"{value:.4g}"


def _is_series(value: Any) -> bool:
    return (
        isinstance(value, np.ndarray)
        and value.ndim == 1
        and len(value) >= _LEAST_SERIES
        and value.dtype.kind in "buif"
    )


def _shown(value: Any) -> str:
    """Return a value as text in a cell."""
    if isinstance(value, str | bytes):
        value = bytes(value) if isinstance(value, bytes) else str(value)  # Not those of NumPy.
        return (
            repr(value)
            if len(value) <= _MOST_TEXT
            else f"{value[: _MOST_TEXT - 3]!r}... ({len(value)})"
        )
    array = np.asarray(value)
    if not array.ndim:
        return _scalar(array)
    sizes = "x".join(map(str, array.shape))
    if is_image(array):
        return f"image {sizes} {array.dtype}, {_range(array)}"
    if _is_series(array):
        return f"{_sparks(array)} {_range(array)} ({len(array)})"
    if array.ndim == 1 and array.size <= _MOST_ITEMS:
        return "[" + " ".join(_item(one) for one in array) + "]"
    head = " ".join(_item(one) for one in array.ravel()[: _MOST_ITEMS - 2])
    return f"{sizes} [{head} ...]" if array.size else f"{sizes} []"


def _item(value: Any) -> str:
    return _shown(value) if isinstance(value, str | bytes) else _scalar(np.asarray(value))


def _scalar(array: Array) -> str:
    return f"{array.item():.6g}" if array.dtype.kind == "f" else str(array.item())


def _range(array: Array) -> str:
    good = _finite(array)
    return f"{_number(good.min())}..{_number(good.max())}" if good.size else "no number"


def _finite(array: Array) -> Array:
    numbers = array.astype(np.float64).ravel()
    found: Array = numbers[np.isfinite(numbers)]
    return found


def _sparks(array: Array) -> str:
    good = _finite(array)
    if not good.size:
        return "?" * min(_MOST_SPARKS, len(array))
    low, high = float(good.min()), float(good.max())
    parts = np.array_split(array.astype(np.float64), min(_MOST_SPARKS, len(array)))
    marks = []
    for part in parts:
        kept = part[np.isfinite(part)]
        # Halves: the difference of the largest numbers would be infinite.
        share = (
            (_mean(kept) / 2 - low / 2) / (high / 2 - low / 2) if kept.size and high > low else 0
        )
        place = min(1.0, max(0.0, share))
        marks.append(_SPARKS[min(7, int(8 * place))] if kept.size else " ")
    return "".join(marks)


def _cell(value: Any) -> str:
    """Return a value as a cell of a table of HTML."""
    array = np.asarray(value) if isinstance(value, np.ndarray) else None
    if array is not None and is_image(array):
        sizes = "x".join(map(str, array.shape))
        height, width = array.shape[:2]
        scale = 80 / max(height, width)
        return (
            f'<td class="thumb"><img alt="image {sizes}" title="{sizes} {array.dtype}" src="{thumbnail(array)}" '
            f'width="{max(1, round(width * scale))}" height="{max(1, round(height * scale))}" '
            'style="image-rendering:pixelated;border-radius:3px"></td>'
        )
    if array is not None and _is_series(array):
        facts = f'<span class="muted">{escape(_range(array))} ({len(array)})</span>'
        return f'<td class="thumb">{_sparkline(array)}{facts}</td>'
    return f'<td class="call">{escape(_shown(value))}</td>'


def _sparkline(array: Array) -> str:
    parts = np.array_split(array.astype(np.float64), min(_MOST_POINTS, len(array)))
    values = [
        float(part[np.isfinite(part)].mean()) if np.isfinite(part).any() else math.nan
        for part in parts
    ]
    good = [value for value in values if not math.isnan(value)]
    low, high = (min(good), max(good)) if good else (0.0, 1.0)
    points = [
        f"{118 * number / max(1, len(values) - 1) + 1:.1f},{26 - 24 * (value - low) / (high - low or 1.0):.1f}"
        for number, value in enumerate(values)
        if not math.isnan(value)
    ]
    return (
        '<svg width="120" height="28" role="img" aria-label="series"><polyline fill="none" stroke="var(--c0)" '
        f'stroke-width="1.4" points="{" ".join(points)}"/></svg>'
    )


def _json(value: Any) -> Any:
    """Return a value as what JSON can hold."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    array = np.asarray(value)
    items = [_plain(one) for one in array.ravel()[:_MOST_LISTED].tolist()]
    if not array.ndim:
        return items[0]
    if array.size <= _MOST_LISTED and array.ndim == 1:
        return items
    return {"shape": list(array.shape), "dtype": str(array.dtype), "first": items}


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)  # JSON has no NaN.
    if isinstance(value, bool | int | str):
        return value
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
