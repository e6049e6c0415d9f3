"""The rows of many files with random access, one file after the other."""

import itertools
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any

import numpy as np

from penstock.core.blocks import Block
from penstock.core.evidence import Evidence
from penstock.core.fields import Field, allocate_block
from penstock.core.nest import Structure, flatten
from penstock.core.rows import Context, RowSet, Runs, as_index, shifted
from penstock.core.spec import dtype_name
from penstock.errors import (
    AccessError,
    DataError,
    FileChangedError,
    MissingFileError,
    NotAFileError,
    SpecMismatchError,
)
from penstock.io.location import Location
from penstock.sources.reading.bad_rows import BadRun, SkippableRows
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.parts import BAD, Part, Request, attempt_each, bad, skipped_words
from penstock.sources.reading.read_blocks import block_rows, grain_words, grains_of


def rows_of(locations: Sequence[Location], parts: Sequence[Part], request: Request) -> "FileRows":
    """Return the rows of files, with the fields that were asked for."""
    lead = next((part for part in parts if part.leaves), parts[0])
    names, structure = chosen_fields(lead.name, list(lead.leaves), request)
    first: list[Part] = []

    def choose(one: tuple[Location, Part]) -> Part:
        part = one[1].chosen(names)
        check_same_fields([(p.name, _fields(p.leaves)) for p in (*first, part)])
        if not first:
            first.append(part)
        return part

    good, chosen = attempt_each(list(zip(locations, parts, strict=True)), choose, request)
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


class FileRows(SkippableRows):
    """The rows of files with random access, one file after the other."""

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
        self.fields = tuple(
            _joined([part.leaves[name].field for part in parts], [part.num_rows for part in parts])
            for name in names
        )
        self.starts = np.cumsum([0] + [part.num_rows for part in parts])
        self.inner_starts: list[int] = self.starts[1:-1].tolist()
        self.num_rows = int(self.starts[-1])
        self.grains = grains_of([[part.leaves[name] for part in parts] for name in names])
        # Found once, since there may be many files.
        self.widest = self.widest_leaves()
        self.checks_nbytes = sum(
            part.leaves[name].checks_nbytes() for part in parts for name in names
        )

    def widest_leaves(self) -> tuple[Leaf, ...]:
        """Return, for each field, the leaf that needs most memory, as far as that is known by now."""
        return tuple(
            max((part.leaves[name] for part in self.parts), key=lambda leaf: leaf.staging_nbytes(1))
            for name in self.names
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

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read the runs; those of one file that follow each other are read together."""
        done = 0
        for number, group in itertools.groupby(self._cut(runs), key=itemgetter(0)):
            mine = [(start, length) for _, start, length in group]
            stop = done + sum(length for _, length in mine)
            for name, sink in zip(self.names, out.sinks, strict=True):
                self.parts[number].leaves[name].read_runs(mine, sink.span(done, stop), context)
            done = stop

    def _cut(self, runs: Runs) -> Iterator[tuple[int, int, int]]:
        """Yield (file, first row in the file, length) for each run; one that spans several files is cut."""
        for start, length in runs:
            stop = start + length
            while start < stop:
                number = bisect_right(self.inner_starts, start)
                first = self.inner_starts[number - 1] if number else 0
                end = min(stop, first + self.parts[number].num_rows)
                yield number, start - first, end - start
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
        return max(leaf.staging_nbytes(num_rows) for leaf in self.widest)

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of decoded chunks that are retained because two reads share them, and of checksums."""
        return sum(leaf.retained_nbytes() for leaf in self.widest) + self.checks_nbytes

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


def _fields(leaves: Mapping[str, Leaf]) -> dict[str, Any]:
    return {name: leaf.field for name, leaf in leaves.items()}
