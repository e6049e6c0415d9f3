"""The rows of many files with random access, one file after the other."""

import copy
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.evidence import Evidence
from penstock.core.fields import Field, allocate_block
from penstock.core.nest import Structure, flatten
from penstock.core.rows import Context, FileVersion, RowSet, Runs, bounds
from penstock.core.spec import dtype_name
from penstock.errors import (
    AccessError,
    DataError,
    FileChangedError,
    MissingFileError,
    NotAFileError,
    SpecMismatchError,
    warn_user,
)
from penstock.io.location import Location
from penstock.sources.reading.bad_rows import BadRun, SkippableRows
from penstock.sources.reading.column_sets import ColumnSet, column_sets, staging_nbytes
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.parts import BAD, Part, Request, attempt_each, bad, skipped_words
from penstock.sources.reading.read_blocks import block_rows, grain_words, grains_of

# Where reads begin that follow each other, as a share of all sets.
_FIRST_SETS = (0, 1 / 2, 1 / 4, 3 / 4)
_MOST_INDEX_NBYTES = 1 << 26  # Of more, each file gets its share, or does without.


def rows_of(locations: Sequence[Location], parts: Sequence[Part], request: Request) -> "FileRows":
    """Return the rows of files, with the fields that were asked for."""
    lead = next((part for part in parts if part.leaves), parts[0])
    names, structure = chosen_fields(lead.name, list(lead.leaves), request)
    first: list[tuple[str, Mapping[str, Field]]] = []

    def choose(one: tuple[Location, Part]) -> Part:
        part = one[1].chosen(names)
        mine = part.name, {name: leaf.field for name, leaf in part.leaves.items()}
        if not first:
            first.append(mine)
        check_same_fields([first[0], mine])
        return part

    good, chosen = attempt_each(list(zip(locations, parts, strict=True)), choose, request)
    if request.fields is None:
        warn_of_more_fields(lead.name, names, {part.name: list(part.leaves) for part in parts})
    return FileRows(chosen, [location for location, _ in good], names, structure)


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


def warn_of_more_fields(
    first: str, names: Sequence[str], files: Mapping[str, Sequence[str]]
) -> None:
    """Say that files have fields which the first one has not, so that they are not read."""
    more = {file: sorted(set(found) - set(names)) for file, found in files.items()}
    more = {file: found for file, found in more.items() if found}
    if more:
        file, found = next(iter(more.items()))
        others = f" (and {len(more) - 1} more files)" if len(more) > 1 else ""
        warn_user(
            f"{file}{others} has {', '.join(map(repr, found))}, which {first} has not: that is left out. Name the "
            "fields that all files have, if it is not wanted: fields=(...)."
        )


def check_same_fields(parts: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
    """Raise if the files of a dataset differ in the dtype or shape of a field."""
    first_name, first = parts[0]
    for name, fields in parts[1:]:
        for field, mine in first.items():
            theirs = fields[field]
            # Most often they are one object: the comparison of two takes longer, and there may be many files.
            if mine.spec is not theirs.spec and mine.spec != theirs.spec:
                label = f" in field {field!r}" if field else ""
                raise SpecMismatchError(
                    f"the files of a dataset must have rows of one spec, got {mine.spec} in {first_name} "
                    f"and {theirs.spec} in {name}{label}. Files in a list follow each other; for files side by "
                    "side, give them names: from_files({'x': 'x.npy', 'y': 'y.npy'})."
                )


class _Turns:
    """Counts the reads of a stream."""

    def __init__(self) -> None:
        self._turns = itertools.count()

    def next(self) -> int:
        """Return how many there were before."""
        return next(self._turns)

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""


class FileRows(SkippableRows):
    """The rows of files with random access, one file after the other."""

    reads_apart = True

    def __init__(
        self,
        parts: Sequence[Part],
        locations: Sequence[Location],
        names: Sequence[str],
        structure: Structure,
    ) -> None:
        self.parts = parts
        self.locations = locations
        self.names = names
        self.structure = structure
        counts = [part.num_rows for part in parts]
        leaves = {name: [part.leaves[name] for part in parts] for name in names}
        self.fields = tuple(
            _joined([leaf.field for leaf in leaves[name]], counts) for name in names
        )
        self.starts = np.cumsum([0, *counts])
        self.part_starts: list[int] = self.starts.tolist()
        self.num_rows = int(self.starts[-1])
        self.grains = grains_of([leaves[name] for name in names])
        self.picks = all(leaf.picks for name in names for leaf in leaves[name])
        # Found once, since there may be many files.
        self.known_bad = [leaf for name in names for leaf in leaves[name] if leaf.is_known_bad]
        self.widest = self.widest_leaves()
        self.checks_nbytes = sum(leaf.checks_nbytes() for name in names for leaf in leaves[name])
        self.index_nbytes = _indexed_nbytes([leaf for name in names for leaf in leaves[name]])

    def widest_leaves(self) -> tuple[Leaf, ...]:
        """Return, for each field, the leaf that needs most memory, as far as that is known by now."""
        return tuple(
            max((part.leaves[name] for part in self.parts), key=lambda leaf: leaf.staging_nbytes(1))
            for name in self.names
        )

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows of each file into their places."""
        if isinstance(rows, slice):
            self.fill_runs([(rows.start, rows.stop - rows.start)], out, context)
            return
        for number, slots in self._owned(rows):
            part, shift = self.parts[number], -int(self.starts[number])
            mine = rows + shift if slots is None else rows[slots] + shift
            leaves: list[Any] = [part.leaves[name] for name in self.names]
            sinks = out.sinks if slots is None else out.at(slots).sinks
            for one in column_sets(leaves):
                if len(one) == 1:
                    leaves[one[0]].read(mine, sinks[one[0]], context)
                else:
                    together = ColumnSet([leaves[each] for each in one])
                    together.read(mine, [sinks[each] for each in one], context)

    def _owned(self, rows: Index) -> Iterator[tuple[int, Index | None]]:
        """Yield each file that has some of the rows, and which of them; None for all."""
        if not len(rows):
            return
        first, last = (bisect_right(self.part_starts, row) - 1 for row in bounds(rows))
        if first == last:
            yield first, None
            return
        owners = np.searchsorted(self.starts[1:-1], rows, side="right")
        for number in np.unique(owners).tolist():
            yield number, np.flatnonzero(owners == number)

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read the runs; those of one file that follow each other are read together."""
        self.fill_columns(slice(0, len(self.fields)), runs, out, context)

    def fill_columns(self, columns: slice, runs: Runs, out: Block, context: Context) -> None:
        """Read the runs of some fields."""
        done = 0
        names = self.names[columns]
        for number, group in itertools.groupby(self._cut(runs), key=itemgetter(0)):
            mine = [(start, length) for _, start, length in group]
            stop = done + sum(length for _, length in mine)
            leaves = [self.parts[number].leaves[name] for name in names]
            sinks = out.sinks if stop - done == out.num_rows else out.span(done, stop).sinks
            for one in self._in_turn(column_sets(leaves), context):
                if len(one) == 1:
                    leaves[one[0]].read_runs(mine, sinks[one[0]], context)
                else:
                    together = ColumnSet([leaves[each] for each in one])
                    together.read_runs(mine, [sinks[each] for each in one], context)
            done = stop

    def raise_known(self) -> None:
        """Raise the error of the first file that is known to have bad rows: better now than in epoch 3."""
        for leaf in self.known_bad:
            leaf.raise_known()

    def only(self, number: int) -> "FileRows":
        """Return the rows of the files with one field."""
        name = self.names[number]
        # Copies: how many chunks a leaf retains depends on the fields that are read with it.
        parts = [replace(part, leaves={name: copy.copy(part.leaves[name])}) for part in self.parts]
        return FileRows(parts, self.locations, [name], flatten(0)[1])

    def _in_turn(self, sets: list[tuple[int, ...]], context: Context) -> Sequence[tuple[int, ...]]:
        """Return sets of columns, beginning with another one for each read.

        Threads that read neighbouring rows share chunks: so each decodes those of other columns first.
        """
        if len(sets) == 1:
            return sets
        turn = context.resources.get(("turns", id(self)), _Turns).next()
        first = int(len(sets) * _FIRST_SETS[turn % len(_FIRST_SETS)])
        return sets[first:] + sets[:first]

    def _cut(self, runs: Runs) -> Iterator[tuple[int, int, int]]:
        """Yield (file, first row in the file, length) for each run; one that spans several files is cut."""
        starts = self.part_starts
        for start, length in runs:
            stop = start + length
            while start < stop:
                number = bisect_right(starts, start) - 1
                end = min(stop, starts[number + 1])
                yield number, start - starts[number], end - start
                start = end

    def bad_runs(self, start: int, stop: int, context: Context) -> Iterator[BadRun]:
        """Yield the bad rows among `start` to `stop`, found by reading each field a chunk at a time."""
        owners = np.searchsorted(self.starts[1:-1], [start, stop - 1], side="right")
        for number in range(int(owners[0]), int(owners[1]) + 1):
            first, last = np.clip(self.starts[number : number + 2], start, stop).tolist()
            if first < last:
                yield from self._bad_runs_of(number, first, last, context)

    def _bad_runs_of(
        self, number: int, start: int, stop: int, context: Context
    ) -> Iterator[BadRun]:
        part, shift = self.parts[number], int(self.starts[number])
        for leaf in part.leaves.values():
            for first, last in leaf.cuts(start - shift, stop - shift):
                begin, end = max(start, first + shift), min(stop, last + shift)
                block = allocate_block((leaf.field,), end - begin, context.allocate, aligned=False)
                try:
                    leaf.read(slice(begin - shift, end - shift), block.sinks[0], context)
                except BAD as error:
                    found = bad(error)
                    if _is_whole(found, part):  # No need to look at the rest.
                        rows = f"rows {start - shift} to {part.num_rows}"
                        yield BadRun(start, stop, f"{rows} of {part.name}", found)
                        return
                    yield BadRun(begin, end, f"rows {first} to {last} of {part.name}", found)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return what the field that needs most takes: fields are read one after the other."""
        return staging_nbytes(self.widest, num_rows)

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of decoded chunks that two reads share, of checksums, and of indexes of chunks."""
        retained = sum(leaf.retained_nbytes() for leaf in self.widest)
        return retained + self.checks_nbytes + self.index_nbytes

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
        """Return names and lengths of the files, the fields, and the sizes that a shuffle's windows depend on."""
        names = [
            [location.name, part.num_rows]
            for location, part in zip(self.locations, self.parts, strict=True)
        ]
        specs = [field.spec.to_json() for field in self.fields]
        return ["files", names, list(self.names), specs, grain_words(self)]

    def files_read(self) -> Iterator[FileVersion]:
        """Yield the files, those that some fields lie in by themselves, and those with checksums."""
        yield from self.locations
        for part in self.parts:
            for name in self.names:
                yield from part.leaves[name].files
                yield from part.leaves[name].check_files()

    def evidence(self) -> Iterator[Evidence]:
        """Yield the files: that of each part, and those that some of its fields lie in by themselves."""
        yield from super().evidence()
        listed = set(self.locations)
        for part in self.parts:
            for name in self.names:
                for one in part.leaves[name].files:
                    if one not in listed:
                        yield Evidence(f"file {one.name}", one.identity, "file")

    def choice(self) -> str:
        """Return how the files are read."""
        how = dict.fromkeys(leaf.reading() for part in self.parts for leaf in part.leaves.values())
        return f"{'; '.join(how)}; {block_rows(self)} rows make a read{skipped_words(self)}"


def _is_whole(error: Exception, part: Part) -> bool:
    """Return whether an error is about a file as a whole: it vanished, changed, may not be read."""
    kinds = (MissingFileError, AccessError, NotAFileError, FileChangedError)
    return isinstance(error, kinds) and error.file == part.name


def _joined(fields: Sequence[Field], counts: Sequence[int]) -> Field:
    """Return the field of rows of several files; where rows differ in size, those of any file may be the largest."""
    first = fields[0]
    if first.storage_shape is not None or all(one == first for one in fields):
        return first
    num_rows = sum(counts)
    total = sum(one.estimate * count for one, count in zip(fields, counts, strict=True))
    estimate = total // max(1, num_rows) or first.estimate
    filled = [one.tops for one, count in zip(fields, counts, strict=True) if count]
    tops: tuple[int, ...] = ()
    if all(filled) and filled:
        # No more than the largest rows of each file together, nor than the largest row so many times.
        most = max(one[0] for one in filled)
        powers = range((num_rows - 1).bit_length() + 1)
        sums = [sum(one[min(power, len(one) - 1)] for one in filled) for power in powers]
        tops = tuple(min(most << power, nbytes) for power, nbytes in zip(powers, sums, strict=True))
    return replace(first, estimate=estimate, tops=tops)


def _indexed_nbytes(leaves: Sequence[Leaf]) -> int:
    """Return what the indexes of all files take together, after limiting those of very many."""
    indexed = [leaf for leaf in leaves if leaf.index_nbytes]
    if sum(leaf.index_nbytes for leaf in indexed) > _MOST_INDEX_NBYTES:
        for leaf in indexed:
            leaf.limit_index(_MOST_INDEX_NBYTES // len(indexed))
    return sum(leaf.index_nbytes for leaf in indexed)
