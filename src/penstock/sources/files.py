"""from_files: the rows of many files, as they lie there."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from penstock.columns import Block
from penstock.errors import SpecMismatchError
from penstock.io.errors import DataError
from penstock.io.location import Location
from penstock.io.page_cache import page_cache_room
from penstock.io.paths import PathLike, expand
from penstock.nest import Structure, flatten
from penstock.rows import Context, Node, Rows, RowSet, as_index, shifted
from penstock.sources.leaves import Leaf
from penstock.sources.npy import open_npy
from penstock.sources.npz import DeflatedFlow, DeflatedPart, open_npz
from penstock.sources.parts import Part
from penstock.sources.raw import open_raw
from penstock.spec import ArraySpec, dtype_name

SUFFIXES = {".npy": "npy", ".npz": "npz", ".bin": "raw", ".raw": "raw"}
READ_NBYTES = 1 << 16  # What a random read must have for the disk to run at its full speed.


def open_files(
    paths: PathLike | Iterable[PathLike],
    fields: Any,
    *,
    format: str | None,
    spec: ArraySpec | None,
) -> Node:
    """Return the rows of all files, one file after the other; reads their headers."""
    locations = expand(paths, suffixes=tuple(SUFFIXES) if format is None else ())
    kind = _format(locations, format)
    direct = sum(location.size for location in locations) > page_cache_room()
    wanted = None if fields is None else flatten(fields)[0]
    for name in wanted or ():
        if not isinstance(name, str):
            raise TypeError(f"fields must be names of arrays, got {name!r}.")
    opened = [_open(kind, location, wanted, spec, direct=direct) for location in locations]
    names, structure = _chosen(opened[0], fields)
    deflated = [part for part in opened if isinstance(part, DeflatedPart)]
    if deflated:
        if len(deflated) != len(opened):
            stored = next(part.name for part in opened if isinstance(part, Part))
            raise DataError(
                f"is deflated, and {stored} is not: a dataset is one or the other",
                file=deflated[0].name,
                cure="Read them apart, and combine them with ps.concatenate(a, b).",
            )
        _same_fields([(part.name, part.fields()) for part in deflated])
        return DeflatedFlow(deflated, names, structure)
    parts = [part.chosen(names) for part in opened if isinstance(part, Part)]
    return FileRows(parts, locations, names, structure)


def _format(locations: Sequence[Location], given: str | None) -> str:
    if given is not None:
        if given not in SUFFIXES.values():
            known = ", ".join(sorted(set(SUFFIXES.values())))
            raise ValueError(f"format must be one of {known}, got {given!r}.")
        return given
    found: dict[str, Location] = {}
    for location in locations:
        if location.suffix not in SUFFIXES:
            raise DataError(
                f"its format can't be told from {location.suffix or 'a name without an ending'!r}",
                file=str(location),
                cure=f"Give format=..., one of {', '.join(sorted(set(SUFFIXES.values())))}.",
            )
        found.setdefault(SUFFIXES[location.suffix], location)
    if len(found) > 1:
        names = " and ".join(f"{kind} ({location})" for kind, location in found.items())
        raise ValueError(f"the files of a dataset must have one format, got {names}.")
    return next(iter(found))


def _open(
    kind: str,
    location: Location,
    names: Sequence[str] | None,
    spec: ArraySpec | None,
    *,
    direct: bool,
) -> Part | DeflatedPart:
    if kind == "npz":
        return open_npz(location, names, direct=direct)
    if kind == "raw":
        return open_raw(location, spec, direct=direct)
    return open_npy(location, direct=direct)


def _chosen(first: Part | DeflatedPart, fields: Any) -> tuple[list[str], Structure]:
    """Return the names of the fields in the order of the leaves of a row, and the row's structure."""
    available = list(first.leaves if isinstance(first, Part) else first.headers)
    if fields is None:
        nest: Any = "" if available == [""] else {name: name for name in available}
    else:
        nest = fields
    names, structure = flatten(nest)
    if not names:
        raise DataError("has no arrays", file=first.name, cure="Check what wrote it.")
    return names, structure


def _same_fields(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise if the files of a dataset differ in the dtype or shape of a field."""
    first_name, first = parts[0]
    for name, fields in parts[1:]:
        for field, mine in first.items():
            theirs = fields[field]
            if mine.spec != theirs.spec:
                label = f" in field {field!r}" if field else ""
                raise SpecMismatchError(
                    f"the files of a dataset must have rows of one spec, got {mine.spec} in {first_name} "
                    f"and {theirs.spec} in {name}{label}."
                )


class FileRows(Rows):
    """The rows of files that can be read in place."""

    def __init__(
        self,
        parts: Sequence[Part],
        locations: Sequence[Location],
        names: Sequence[str],
        structure: Structure,
    ) -> None:
        _same_fields([(part.name, _fields(part.leaves)) for part in parts])
        self.parts = parts
        self.locations = locations
        self.names = names
        self.structure = structure
        self.fields = tuple(parts[0].leaves[name].field for name in names)
        self.starts = np.cumsum([0] + [part.num_rows for part in parts])
        self.num_rows = int(self.starts[-1])
        natural = max(part.chunk_rows for part in parts)
        self.chunk_rows = max(natural, READ_NBYTES // max(1, self.row_nbytes), 1)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows of each file into their places."""
        index = as_index(rows)
        if not len(index):
            return
        owners = np.searchsorted(self.starts[1:-1], index, side="right")
        for number in np.unique(owners).tolist():
            part, shift = self.parts[number], -int(self.starts[number])
            slots = np.flatnonzero(owners == number)
            whole = len(slots) == len(index)
            mine: RowSet = shifted(rows, shift) if whole else index[slots] + shift
            for name, sink in zip(self.names, out.sinks, strict=True):
                part.leaves[name].read(mine, sink if whole else sink.at(slots), context)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return what the field that needs most takes: fields are read one after the other."""
        return max(
            leaf.staging_nbytes(num_rows)
            for part in self.parts[:1]
            for leaf in part.leaves.values()
        )

    def locate(self, row: int, epoch: int) -> str:
        """Return the file, and the number of the row in it."""
        number = int(np.searchsorted(self.starts[1:-1], row, side="right"))
        return f"row {row - int(self.starts[number])} of {self.parts[number].name}"

    def describe(self) -> str:
        """Return the call that made it."""
        kind = self.locations[0].suffix or "raw"
        shown = f"{len(self.parts)} {kind} files" if len(self.parts) > 1 else self.locations[0].name
        dtypes = ", ".join(dtype_name(field.spec.dtype) for field in self.fields)
        return f"from_files({shown}: {dtypes})"

    def fingerprint(self) -> Any:
        """Return names and lengths of the files, and the fields."""
        names = [
            [location.name, part.num_rows]
            for location, part in zip(self.locations, self.parts, strict=True)
        ]
        return ["files", names, list(self.names), [repr(field.spec) for field in self.fields]]

    def choice(self) -> str:
        """Return how the files are read."""
        how = dict.fromkeys(leaf.how for part in self.parts for leaf in part.leaves.values())
        return f"{'; '.join(how)}; {self.chunk_rows} rows make a read"


def _fields(leaves: Mapping[str, Leaf]) -> dict[str, Any]:
    return {name: leaf.field for name, leaf in leaves.items()}
