"""`.npz` archives: stored arrays are read in place, deflated ones from front to back."""

import contextlib
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from penstock.columns import Fixed, raw_rows
from penstock.fields import Field
from penstock.io.errors import DataError
from penstock.io.location import Location
from penstock.io.npy_format import NpyHeader
from penstock.io.npz_format import (
    STAGING_NBYTES,
    DeflateReader,
    Member,
    read_array_header,
    read_members,
)
from penstock.io.open import open_reader
from penstock.nest import Structure
from penstock.rows import Context, Cursor, Flow, Node, Parcel, rows_per_block
from penstock.sources.file_rows import check_same_fields, chosen_fields, rows_of
from penstock.sources.npy import leaf_of_header
from penstock.sources.parts import Part, Request, check_names, no_rows, unequal_lengths
from penstock.spec import ArraySpec


def open_format(locations: Sequence[Location], request: Request) -> Node:
    """Return the arrays of archives; reads their directories, and the headers of chosen arrays."""
    opened = [_open(location, request) for location in locations]
    deflated = [part for part in opened if isinstance(part, DeflatedPart)]
    stored = [part for part in opened if isinstance(part, Part)]
    if not deflated:
        return rows_of(stored, locations, request)
    if stored:
        raise DataError(
            f"is deflated, and {stored[0].name} is not: a dataset is one or the other",
            file=deflated[0].name,
            cure="Read them apart, and combine them with ps.concatenate(a, b).",
        )
    names, structure = chosen_fields(deflated[0].name, list(deflated[0].headers), request)
    for part in deflated:
        check_names(part.name, names, part.headers)
    check_same_fields([(part.name, part.fields()) for part in deflated])
    return DeflatedFlow(deflated, names, structure)


def _open(location: Location, request: Request) -> "Part | DeflatedPart":
    names = request.names
    with open_reader(location) as reader:
        members = {member.name.removesuffix(".npy"): member for member in read_members(reader)}
        chosen = members if names is None else {n: members[n] for n in names if n in members}
        headers = {name: read_array_header(reader, member) for name, member in chosen.items()}
    check_names(str(location), names or (), members)
    if any(member.is_deflated for member in chosen.values()):
        return DeflatedPart(location, chosen, headers)
    leaves = {
        name: leaf_of_header(location, header, name, direct=request.direct)
        for name, header in headers.items()
    }
    return Part(str(location), leaves)


class DeflatedPart:
    """The arrays of an archive that was packed with np.savez_compressed."""

    def __init__(
        self, location: Location, members: dict[str, Member], headers: dict[str, NpyHeader]
    ) -> None:
        self.location = location
        self.members = members
        self.headers = headers
        self.name = str(location)
        for name, header in headers.items():
            if not header.shape:
                raise no_rows(self.name, name)
            if header.fortran_order and len(header.shape) > 1:
                raise DataError(
                    f"array {name!r} is deflated and in Fortran order, so that its first row ends at "
                    "the end of the file",
                    file=self.name,
                    cure="Save it in C order: np.savez(path, x=np.ascontiguousarray(x)).",
                )

        lengths = {name: header.shape[0] for name, header in headers.items()}
        if len(set(lengths.values())) > 1:
            raise unequal_lengths(self.name, lengths)

    @property
    def num_rows(self) -> int:
        """How many rows the arrays have."""
        return next(iter(self.headers.values())).shape[0]

    def fields(self) -> dict[str, Field]:
        """Return the field of each array."""
        return {n: Field(ArraySpec(h.shape[1:], h.dtype)) for n, h in self.headers.items()}


class DeflatedFlow(Flow):
    """The rows of deflated archives, unpacked from front to back; the cursor is (file, row)."""

    def __init__(
        self, parts: Sequence[DeflatedPart], names: Sequence[str], structure: Structure
    ) -> None:
        self.parts = parts
        self.names = names
        self.structure = structure
        self.fields = tuple(parts[0].fields()[name] for name in names)
        self.num_rows = sum(part.num_rows for part in parts)

    def parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Unpack the rows of each archive into blocks."""
        first, row = (0, 0) if cursor is None else cursor
        step = rows_per_block(self, context.block_nbytes)
        for number in range(first, len(self.parts)):
            part = self.parts[number]
            with contextlib.ExitStack() as stack:
                reader = stack.enter_context(open_reader(part.location))
                unpacked = []
                for name, field in zip(self.names, self.fields, strict=True):
                    one = stack.enter_context(DeflateReader(reader, part.members[name]))
                    one.read_array_header()
                    one.skip(row * field.nbytes)
                    unpacked.append(one)
                for start in range(row, part.num_rows, step):
                    size = min(step, part.num_rows - start)
                    block = context.block(self, size)
                    for one, sink in zip(unpacked, block.sinks, strict=True):
                        assert isinstance(sink, Fixed)
                        one.read_into(raw_rows(sink.grouped, 0))
                    yield Parcel(block.finish(), size, partial(_after, number, start))
                    del block
                for one in unpacked:
                    one.finish()
            row = 0

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks under way, and of what unpacking takes."""
        blocks = (ahead + 2) * self.block_nbytes(rows_per_block(self, block_nbytes))
        return blocks + len(self.names) * STAGING_NBYTES

    def notes(self) -> tuple[str, ...]:
        """Return that resuming costs time."""
        note = (
            "deflated .npz can only be read forward: a resume unpacks what it skips. "
            "cache() keeps the rows, and makes shuffle exact."
        )
        return (note,)

    def describe(self) -> str:
        """Return the call that made it."""
        return f"from_files({len(self.parts)} deflated .npz)"

    def fingerprint(self) -> Any:
        """Return names, sizes and fields of the files."""
        return [[part.location.name, part.location.size, part.num_rows] for part in self.parts]


def _after(number: int, start: int, offset: int) -> Cursor:
    return [number, start + offset]
