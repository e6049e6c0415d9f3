"""A report as JSON, and back. The form is written down in docs/reports.md; it grows, and never changes."""

import json
import os
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, TypeVar

from penstock.io.atomic import atomic_file
from penstock.reports.figures import (
    Decided,
    DeviceTraffic,
    Sample,
    SkippedFile,
    Span,
    StagePadding,
    StageShuffle,
    StageTime,
)
from penstock.reports.measured import Measured

_VERSION = 1
_PARTS: dict[str, type] = {
    "stages": StageTime,
    "decisions": Decided,
    "padding": StagePadding,
    "shuffles": StageShuffle,
    "skipped_files": SkippedFile,
}
_COLUMNS: dict[str, Any] = {"timeline": Sample, "spans": Span}
R = TypeVar("R", bound=Measured)


def write(report: Measured, path: str | os.PathLike[str]) -> None:
    """Write a report to a file."""
    with atomic_file(Path(path), replace=True) as file:
        file.write(json.dumps(to_dict(report, spans=True)).encode() + b"\n")


def read(path: str | os.PathLike[str], kind: type[R]) -> R:
    """Return the report in a file."""
    text = Path(path).read_text(encoding="utf-8")
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(
            f"{os.fspath(path)} holds no report, but no JSON at all: {error}."
        ) from None
    return from_dict(found, kind)


def to_dict(report: Measured, *, spans: bool) -> dict[str, Any]:
    """Return a report as what JSON can hold."""
    found: dict[str, Any] = {"format": "penstock report", "version": _VERSION}
    for field in fields(report):
        value = getattr(report, field.name)
        if field.name in _COLUMNS:
            rows = value if spans or field.name != "spans" else ()
            names = _COLUMNS[field.name]._fields
            columns = zip(*rows, strict=True) if rows else [()] * len(names)
            value = {name: list(column) for name, column in zip(names, columns, strict=True)}
        elif field.name in _PARTS:
            value = [asdict(one) for one in value]
        elif field.name == "device":
            value = None if value is None else asdict(value)
        elif field.name == "ranks":
            value = [to_dict(one, spans=spans) for one in value]
        elif isinstance(value, tuple):
            value = list(value)
        found[field.name] = value
    return found


def from_dict(found: Any, kind: type[R]) -> R:
    """Return the report that a dict was made of; what a later version has added is left out."""
    name = found.get("format") if isinstance(found, Mapping) else None
    if name != "penstock report":
        raise ValueError(
            f"a report's JSON is a dict with format 'penstock report', got {_short(found)}: write one with "
            "stream.report().to_json(path)."
        )
    values: dict[str, Any] = {}
    for field in fields(kind):
        if field.name not in found:
            continue
        value = found[field.name]
        if field.name in _COLUMNS:
            rows = zip(*(value[name] for name in _COLUMNS[field.name]._fields), strict=True)
            value = tuple(_COLUMNS[field.name](*map(_tuples, row)) for row in rows)
        elif field.name in _PARTS:
            value = tuple(_known(_PARTS[field.name], one) for one in value)
        elif field.name == "device":
            value = None if value is None else _known(DeviceTraffic, value)
        elif field.name == "ranks":
            value = tuple(from_dict(one, kind) for one in value)
        elif isinstance(value, list):
            value = tuple(value)
        values[field.name] = value
    missing = [
        one.name for one in fields(kind) if one.default is MISSING and one.name not in values
    ]
    if missing:
        raise ValueError(
            f"a report's JSON has {', '.join(missing)}, and this has not: it is damaged."
        )
    return kind(**values)


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _known(kind: Any, found: Mapping[str, Any]) -> Any:
    names = {field.name for field in fields(kind)}
    return kind(**{name: _tuples(value) for name, value in found.items() if name in names})


def _short(found: Any) -> str:
    text = repr(found)
    return text if len(text) <= 60 else text[:57] + "..."
