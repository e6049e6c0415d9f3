"""The rows of many files that can be read in place, one file after the other."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.columns import Block
from penstock.errors import SpecMismatchError
from penstock.io.errors import DataError
from penstock.io.location import Location
from penstock.nest import Structure, flatten
from penstock.rows import Context, Rows, RowSet, as_index, shifted
from penstock.sources.leaves import Leaf
from penstock.sources.parts import Part, Request
from penstock.spec import dtype_name

READ_NBYTES = 1 << 16  # What a random read must have for the disk to run at its full speed.


def rows_of(parts: Sequence[Part], locations: Sequence[Location], request: Request) -> "FileRows":
    """Return the rows of files, with the fields that were asked for."""
    names, structure = chosen_fields(parts[0].name, list(parts[0].leaves), request)
    return FileRows([part.chosen(names) for part in parts], locations, names, structure)


def chosen_fields(
    file: str, available: Sequence[str], request: Request
) -> tuple[list[str], Structure]:
    """Return the names of the fields in the order of the leaves of a row, and the row's structure."""
    nest = request.fields
    if nest is None:
        nest = "" if list(available) == [""] else {name: name for name in available}
    names, structure = flatten(nest)
    if not names:
        raise DataError("has no arrays", file=file, cure="Check what wrote it.")
    return names, structure


def check_same_fields(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
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


def rows_a_read(natural: int, row_nbytes: int) -> int:
    """Return how many rows make a read worth while: whole chunks, 64 KB of them if they are small."""
    return natural * max(1, READ_NBYTES // max(1, natural * row_nbytes))


class FileRows(Rows):
    """The rows of files that can be read in place."""

    def __init__(
        self,
        parts: Sequence[Part],
        locations: Sequence[Location],
        names: Sequence[str],
        structure: Structure,
    ) -> None:
        check_same_fields([(part.name, _fields(part.leaves)) for part in parts])
        self.parts = parts
        self.locations = locations
        self.names = names
        self.structure = structure
        self.fields = tuple(parts[0].leaves[name].field for name in names)
        self.starts = np.cumsum([0] + [part.num_rows for part in parts])
        self.num_rows = int(self.starts[-1])
        self.chunk_rows = rows_a_read(max(part.chunk_rows for part in parts), self.row_nbytes)
        # The file that needs most, for each field: there may be many files, and this is asked often.
        self.widest = tuple(
            max((part.leaves[name] for part in parts), key=lambda leaf: leaf.staging_nbytes(1))
            for name in names
        )

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
        return max(leaf.staging_nbytes(num_rows) for leaf in self.widest)

    def kept_nbytes(self, ahead: int) -> int:
        """Return the bytes of decoded chunks that are kept because two reads share them."""
        return sum(leaf.kept_nbytes() for leaf in self.widest)

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
        """Return names and lengths of the files, the fields, and what windows are cut by."""
        names = [
            [location.name, part.num_rows]
            for location, part in zip(self.locations, self.parts, strict=True)
        ]
        specs = [repr(field.spec) for field in self.fields]
        return ["files", names, list(self.names), specs, self.chunk_rows, self.row_nbytes]

    def choice(self) -> str:
        """Return how the files are read."""
        how = dict.fromkeys(leaf.how for part in self.parts for leaf in part.leaves.values())
        return f"{'; '.join(how)}; {self.chunk_rows} rows make a read"


def _fields(leaves: Mapping[str, Leaf]) -> dict[str, Any]:
    return {name: leaf.field for name, leaf in leaves.items()}
