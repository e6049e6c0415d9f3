"""The first look at JSON Lines files: their fields, and types, which are found in the first piece and then fixed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.core.fields import Field
from penstock.core.nest import flatten
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FieldError
from penstock.io.formats.lines import TEXT_NBYTES, Piece, mark_nbytes, read_pieces
from penstock.io.location import Location
from penstock.io.unpacked import is_packed, open_text
from penstock.memory import default_budget
from penstock.sources.jsonl.flow import JsonFlow
from penstock.sources.jsonl.parsing import JSON_LINES
from penstock.sources.jsonl.rows import JsonRows
from penstock.sources.jsonl.values import (
    Path,
    are_whole,
    kind_of_values,
    lines_of,
    parse_line,
    value_at,
)
from penstock.sources.reading.line_index import index_lines
from penstock.sources.reading.parts import (
    Request,
    attempt_each,
    check_names,
    each_field,
    given_specs,
)
from penstock.sources.reading.times import check_unit

_LEAST_NBYTES = 1 << 20  # That the first line may have in any case.
_GZIP = b"\x1f\x8b"
_RAGGED_NBYTES = 24  # Of a list, besides its values.
_NOTE = (
    "from_files(..., on_error='skip') finds fields and types in the other rows, and "
    "with_options(on_error='skip') skips this one."
)


def open_format(locations: Sequence[Location], request: Request) -> JsonFlow | JsonRows:
    """Return the fields of files; rows are found by one scan of each, packed and remote ones are read forward."""
    rows: list[dict[str, Any]] = []

    def look(location: Location) -> int:
        if not rows:
            rows.extend(_first_rows(location, request))
        with open_text(location) as reader:
            return mark_nbytes(reader)

    locations, starts = attempt_each(locations, look, request)
    file = str(locations[0])
    if not rows:
        raise DataError("has no rows, and so no fields", file=file, cure="Leave it out.")
    paths = _paths(rows, file)
    specs = given_specs(request.spec, [*paths, *(request.names or ())], file)
    # Of a file that was looked at as a whole, a field that was not met has no values.
    is_one = len(locations) == 1 and not is_packed(locations[0])
    is_all = is_one and locations[0].size <= TEXT_NBYTES
    for name in request.names or ():
        if name in specs and name not in paths:  # It may be so rare that it was not met yet.
            paths[name] = _unmet_path(name, paths, file, is_all=is_all)
    names = list(paths) if request.names is None else request.names

    exact: set[str] = set()

    def spec_of(name: str) -> ArraySpec:
        if name in specs:
            return _checked(specs[name], name)
        values = _values_of(rows, paths[name], name, file)
        spec = kind_of_values(values, name, file)
        if spec.dtype == np.float64 and are_whole(values):
            exact.add(name)
        return spec

    check_names(file, names, paths)
    for name in names:
        parents = [paths[name][:depth] for depth in range(1, len(paths[name]))]
        if any(paths[other] in parents for other in names):
            raise DataError(f"field {name!r} is in another field", file=file, cure="Choose one.")
    found, _ = each_field(dict.fromkeys(names), spec_of, request)
    nest = _nest(found, paths) if request.fields is None else request.fields
    names, structure = flatten(nest)
    mean = _mean_nbytes(rows, [paths[name] for name in names], [found[name] for name in names])
    fields = tuple(
        Field(found[name], estimate=nbytes) for name, nbytes in zip(names, mean, strict=True)
    )
    chosen = [paths[name] for name in names]
    flow = JsonFlow(
        locations, chosen, structure, fields, exact=frozenset(exact), direct=request.direct
    )
    if flow.is_packed or any(location.is_remote for location in locations):
        return flow
    indexes = index_lines(locations, starts, JSON_LINES, direct=request.direct)
    return flow if indexes is None else JsonRows(flow, indexes)


def _unmet_path(name: str, paths: Mapping[str, Path], file: str, *, is_all: bool) -> Path:
    """Return the path of a field that was not met yet; raise if it can't be told which one it is."""
    path = tuple(name.split("."))
    objects = {known[:depth] for known in paths.values() for depth in range(1, len(known))}
    if len(path) > 1 and path[:1] not in objects and not is_all:
        raise DataError(
            f"no line of the first 256 KB has field {name!r}, nor {path[0]!r}: it can't be told whether it is a key "
            f"of that name, or in an object {path[0]!r}",
            file=file,
            cure=f"Put a file, or a line, that has it first: {{{json.dumps(name)}: ...}}.",
        )
    return path


def _values_of(rows: Sequence[dict[str, Any]], path: Path, name: str, file: str) -> list[Any]:
    try:
        return [value_at(row, path) for row in rows]
    except TypeError as error:
        raise FieldError(
            f"field {name!r} is in objects in some lines, and {error.args[0]!r} is no object in others",
            file=file,
            cure="Choose other fields with fields=(...).",
        ) from None


def _first_rows(location: Location, request: Request) -> list[dict[str, Any]]:
    """Return the rows in which fields and types are found; if the request says so, bad ones are skipped."""
    with open_text(location) as reader:
        # No budget is known yet: a first line that would not fit the default one is taken for damage.
        most = max(_LEAST_NBYTES, default_budget() // JsonFlow.copies)
        piece = next(read_pieces(reader, dialect=JSON_LINES, most=most), Piece(0, 1, b""))
    if piece.data.startswith(_GZIP) and not is_packed(location):
        raise DataError(
            "is packed by gzip, which its name does not say",
            file=str(location),
            cure="Give it a name that ends in .gz, such as .jsonl.gz.",
        )
    rows = []
    first: DataError | None = None
    for line, data in lines_of(piece):
        try:
            rows.append(parse_line(data, line, str(location)))
        except DataError as error:
            first = first or error
            if not request.skip:
                error.add_note(_NOTE)
                raise
    if first is not None and not rows:
        raise first
    return rows


def _paths(rows: Sequence[dict[str, Any]], file: str) -> dict[str, Path]:
    """Return where the values of rows are, by name, in the order in which they come first."""
    paths: dict[Path, None] = {}
    for row in rows:
        paths.update(dict.fromkeys(_leaves(row, ())))
    # An object that is empty, or null, in some rows has its fields from others.
    inner = {path[:depth] for path in paths for depth in range(1, len(path))}
    found: dict[str, Path] = {}
    for path in paths:
        if path in inner:
            continue
        name = ".".join(path)
        if name in found:
            raise DataError(
                f"two fields are called {name!r}: a key with a point in it, and one in an object",
                file=file,
                cure="Rename one of them.",
            )
        found[name] = path
    if not found:
        raise DataError("has objects without keys only", file=file, cure="Check what wrote it.")
    return found


def _leaves(row: dict[str, Any], above: Path) -> Iterator[Path]:
    for key, value in row.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, (*above, key))
        else:
            yield (*above, key)


def _checked(spec: ArraySpec, name: str) -> ArraySpec:
    """Return the spec that the user gave for a field, after checking that JSON can have it."""
    kind = spec.dtype.kind if isinstance(spec.dtype, np.dtype) else "text"
    is_right = kind in "biuf" and None not in spec.shape[1:]
    is_right |= kind == "text" and spec.shape in ((), (None,))
    if not is_right and (kind not in "mMSU" or spec.shape != ()):
        raise ValueError(
            "a field of JSON Lines is a number, a truth, text, a time, a list of texts, or lists of numbers of which "
            f"only the first length may differ, got {spec} for field {name!r}."
        )
    check_unit(spec.dtype, name)
    return spec


def _nest(names: Sequence[str] | dict[str, ArraySpec], paths: dict[str, Path]) -> dict[str, Any]:
    """Return the names of fields as a nest like the objects they are in."""
    nest: dict[str, Any] = {}
    for name in names:
        *parents, key = paths[name]
        at = nest
        for one in parents:
            at = at.setdefault(one, {})
        at[key] = name
    return nest


def _mean_nbytes(
    rows: Sequence[dict[str, Any]], paths: Sequence[Path], specs: Sequence[ArraySpec]
) -> list[int]:
    """Return the bytes of a value of each field, on average, where they differ in size."""
    found = []
    for path, spec in zip(paths, specs, strict=True):
        total = 0
        for row in rows if not spec.is_fixed else ():
            try:
                value = value_at(row, path)
            except TypeError:
                continue
            if isinstance(value, str | list):
                width = 1 if spec.is_text else spec.numpy_dtype.itemsize
                inner = [size for size in spec.shape[1:] if size is not None]
                total += len(value) * width * int(np.prod(inner, dtype=np.int64))
        found.append(total // len(rows) + _RAGGED_NBYTES)
    return found
