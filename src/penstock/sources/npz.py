"""`.npz` archives: stored arrays are read in place, deflated ones from front to back."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.core.arrays import raw_rows
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.nest import Structure
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Node, rows_per_block
from penstock.core.spec import ArraySpec
from penstock.core.state import cursor_parts
from penstock.errors import DataError, FieldError
from penstock.io.formats.npy_header import NpyHeader
from penstock.io.formats.npz_members import (
    STAGING_NBYTES,
    DeflateReader,
    Member,
    read_array_header,
    read_members,
)
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Reader
from penstock.sources.npy import leaf_of_header
from penstock.sources.reading.bad_rows import SkippableFlow
from penstock.sources.reading.file_rows import (
    check_same_fields,
    chosen_fields,
    rows_of,
    warn_of_more_fields,
)
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.parts import (
    BAD,
    Part,
    Request,
    attempt_each,
    bad,
    check_names,
    each_field,
    no_rows,
    skipped_words,
    unequal_lengths,
)
from penstock.sources.reading.whole_checks import Claim, WholeCheck, check_now

_CHOOSE = "Choose others with fields=(...)."
_CHECK_NBYTES = 1 << 24  # Checked at once: a stream that is closing waits for no more.


def open_format(locations: Sequence[Location], request: Request) -> Node:
    """Return the arrays of archives; reads their directories, and the headers of chosen arrays."""
    locations, opened = attempt_each(locations, lambda location: _open(location, request), request)
    deflated = [part for part in opened if isinstance(part, DeflatedPart)]
    stored = [part for part in opened if isinstance(part, Part)]
    if not deflated:
        return rows_of(locations, stored, request)
    if stored:
        raise DataError(
            f"is deflated, and {stored[0].name} is not: a dataset is one or the other",
            file=deflated[0].name,
            cure="Read them apart, and combine them with ps.concatenate(a, b).",
        )
    lead = deflated[0]
    names, structure = chosen_fields(lead.name, list(lead.headers), request)

    def check(part: DeflatedPart) -> None:
        check_names(part.name, names, part.headers, part.left_out)
        check_same_fields([(one.name, one.fields()) for one in (lead, part)])

    good = attempt_each(deflated, check, request)[0]
    if request.fields is None:
        warn_of_more_fields(lead.name, names, {one.name: list(one.headers) for one in deflated})
    return DeflatedFlow(good, names, structure)


def _open(location: Location, request: Request) -> "Part | DeflatedPart":
    names = request.names
    with open_reader(location) as reader:
        # Arrays last: `x.npy` is the field x, even if there is a file `x`, too.
        found = sorted(read_members(reader), key=lambda one: one.name.endswith(".npy"))
        members = {member.field: member for member in found}
        check_names(str(location), names or (), members)
        opened, left_out = each_field(
            members if names is None else names,
            lambda name: _array(reader, members[name], request),
            request,
        )
    if any(member.is_deflated for member, _, _ in opened.values()):
        return DeflatedPart(location, opened, left_out, verify=request.verify)
    leaves = {name: leaf for name, (_, _, leaf) in opened.items() if leaf is not None}
    return Part(str(location), leaves, left_out=left_out)


Opened = tuple[Member, NpyHeader, Leaf | None]
"""An array of an archive; None for a leaf if it is deflated."""


def _array(reader: Reader, member: Member, request: Request) -> Opened:
    """Return one array of an archive, after reading its header."""
    file, name = str(reader.location), member.field
    if not member.name.endswith(".npy"):
        raise FieldError(f"{member.name!r} is no array", file=file, cure=_CHOOSE)
    try:
        header = read_array_header(reader, member)
    except DataError as error:
        if type(error) not in (DataError, FieldError):
            raise
        problem = f"array {name!r}: {error.problem}"
        raise type(error)(problem, file=file, offset=error.offset, cure=error.cure) from error
    if not member.is_deflated:
        whole = _whole(reader, member, header) if request.verify else None
        leaf = leaf_of_header(reader.location, header, name, direct=request.direct, whole=whole)
        return member, header, leaf
    if not header.shape:
        raise no_rows(file, name)
    if header.fortran_order and len(header.shape) > 1:
        raise FieldError(
            f"array {name!r} is deflated and in Fortran order, so that its first row ends at "
            "the end of the file",
            file=file,
            cure="Save it in C order: np.savez(path, x=np.ascontiguousarray(x)).",
        )
    return member, header, None


def _whole(reader: Reader, member: Member, header: NpyHeader) -> WholeCheck | None:
    """Return the check of an array while it is read; None if there is more than that to check, which is done now."""
    file = str(reader.location)
    claim = Claim(file, member.field, member.data_offset, member.nbytes, member.crc)
    if header.data_offset + header.nbytes == member.data_offset + member.nbytes:
        return WholeCheck(claim, header.data_offset)
    # Nobody reads what is behind the array: its header is damaged, or a strange program wrote it.
    check_now(claim, reader)
    return None


class DeflatedPart:
    """The arrays of an archive, of which some or all are deflated."""

    def __init__(
        self,
        location: Location,
        arrays: dict[str, Opened],
        left_out: Mapping[str, FieldError],
        *,
        verify: bool,
    ) -> None:
        self.location = location
        self.verify = verify
        self.members = {name: member for name, (member, _, _) in arrays.items()}
        self.headers = {name: header for name, (_, header, _) in arrays.items()}
        self.leaves = {name: leaf for name, (_, _, leaf) in arrays.items() if leaf is not None}
        """Those that are stored, which are read in place."""
        self.left_out = left_out
        self.name = str(location)
        lengths = {name: header.shape[0] for name, header in self.headers.items()}
        if len(set(lengths.values())) > 1:
            raise unequal_lengths(self.name, lengths)

    @property
    def num_rows(self) -> int:
        """How many rows the arrays have."""
        return next(iter(self.headers.values())).shape[0]

    def fields(self) -> dict[str, Field]:
        """Return the field of each array."""
        return {n: Field(ArraySpec(h.shape[1:], h.dtype)) for n, h in self.headers.items()}


class DeflatedFlow(SkippableFlow):
    """The rows of deflated archives, unpacked from front to back; the cursor is (file, row).

    Under `skip` each archive is unpacked once before its first row is handed out: its checksum is at
    its end, and rows of a damaged archive can't be trusted. Threads do that ahead of time.
    """

    def __init__(
        self, parts: Sequence[DeflatedPart], names: Sequence[str], structure: Structure
    ) -> None:
        self.parts = parts
        self.locations = [part.location for part in parts]
        self.names = names
        self.structure = structure
        self.fields = tuple(parts[0].fields()[name] for name in names)
        self.num_rows = sum(part.num_rows for part in parts)

    def with_errors(self, on_error: str) -> Node:
        """Return the flow that skips bad files, or the one that raises."""
        other = super().with_errors(on_error)
        other.num_rows = None if on_error == "skip" else sum(part.num_rows for part in self.parts)
        return other

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Unpack the rows of each archive into blocks."""
        first, row = cursor_parts(self, cursor, (0, 0), most=(len(self.parts), None))
        step = rows_per_block(self, context.block_nbytes)
        for number, damage in self._checked(first, row, context):
            part, start = self.parts[number], row
            try:
                if damage is not None:
                    raise damage
                with contextlib.ExitStack() as stack:
                    unpacked = self._unpacking(part, stack)
                    for one, field in zip(unpacked, self.fields, strict=True):
                        if one is not None:
                            one.skip(row * field.nbytes)
                    while start < part.num_rows:
                        size = min(step, part.num_rows - start)
                        block = context.block(self, size)
                        for one, name, sink in zip(unpacked, self.names, block.sinks, strict=True):
                            assert isinstance(sink, Fixed)
                            if one is not None:
                                one.read_into(raw_rows(sink.grouped, 0))
                            else:
                                part.leaves[name].read(slice(start, start + size), sink, context)
                        parcel = [Parcel(block.finish(), size, partial(_after, number, start))]
                        start += size
                        del block
                        yield parcel.pop()
                    for one in unpacked:
                        if one is not None:
                            one.finish()
            except BAD as error:
                self.skip_bad(error, context, part.num_rows - start)
            row = 0

    def _unpacking(
        self, part: DeflatedPart, stack: contextlib.ExitStack
    ) -> list[DeflateReader | None]:
        """Return a reader for each field, at its first row; None if it is stored."""
        reader = stack.enter_context(open_reader(part.location))
        unpacked = [
            None
            if name in part.leaves
            else stack.enter_context(DeflateReader(reader, part.members[name], verify=part.verify))
            for name in self.names
        ]
        for one in unpacked:
            if one is not None:
                one.read_array_header()
        return unpacked

    def _checked(
        self, first: int, row: int, context: Context
    ) -> Iterator[tuple[int, Exception | None]]:
        """Yield the number of each archive, and its error if the archive was checked and is bad."""
        numbers = range(first, len(self.parts))
        if not self.skip:
            return ((number, None) for number in numbers)

        def check(number: int) -> tuple[int, Exception | None]:
            if number == first and row:  # It was checked before its first rows were handed out.
                return number, None
            try:
                with contextlib.ExitStack() as stack:
                    for one in filter(None, self._unpacking(self.parts[number], stack)):
                        while one.position < one.member.nbytes and not context.executor.is_closing:
                            one.skip(min(_CHECK_NBYTES, one.member.nbytes - one.position))
            except BAD as error:
                return number, bad(error)
            return number, None

        return context.executor.ordered(check, numbers, lambda _: len(self.names) * STAGING_NBYTES)

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return the bytes of the blocks under way, and of what unpacking takes."""
        size = rows_per_block(self, block_nbytes)
        blocks = (ahead + 2) * self.block_nbytes(size)
        at_once = ahead + 2 if self.skip else 1
        stored = [leaf.staging_nbytes(size) for part in self.parts for leaf in part.leaves.values()]
        return blocks + at_once * len(self.names) * STAGING_NBYTES + max(stored, default=0)

    def notes(self) -> tuple[str, ...]:
        """Return the note that resuming costs time."""
        note = (
            "deflated .npz can only be read forward: a resume unpacks what it skips. "
            "cache() keeps the rows, and makes shuffle exact."
        )
        checked = "on_error='skip' unpacks each file twice: first to check it whole."
        return (note, checked) if self.skip else (note,)

    def choice(self) -> str:
        """Return how the files are read, and what was skipped."""
        return f"unpacked from front to back{skipped_words(self)}"

    def describe(self) -> str:
        """Return the call that made it."""
        return f"from_files({len(self.parts)} deflated .npz{', skip' if self.skip else ''})"

    def fingerprint(self) -> Any:
        """Return names, sizes and fields of the files."""
        files = [[part.location.name, part.location.size, part.num_rows] for part in self.parts]
        specs = [field.spec.to_json() for field in self.fields]
        return ["deflated npz", files, list(self.names), specs, self.skip]


def _after(number: int, start: int, offset: int) -> Cursor:
    return [number, start + offset]
