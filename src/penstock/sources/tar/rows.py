"""WebDataset tars: a row is a sample, the files of one key; its fields are their extensions."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Index
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Text, merge
from penstock.core.fields import Field, allocate_block, tops_of
from penstock.core.grains import Grain
from penstock.core.nest import Structure
from penstock.core.rows import Context, RowSet, as_index
from penstock.core.spec import ArraySpec
from penstock.errors import (
    AccessError,
    DataError,
    FieldError,
    FileChangedError,
    MissingFileError,
    NotAFileError,
    SpecMismatchError,
    warn_user,
)
from penstock.io.inner import InnerFile, in_file
from penstock.io.location import Location
from penstock.io.open import describe_reading, open_reader
from penstock.io.reader import Range, Reader
from penstock.io.sizes import GAP_NBYTES, PIECE_NBYTES
from penstock.memory import allocate_plain, format_nbytes
from penstock.sources.images.decoders import require_decoders
from penstock.sources.images.picture import RULES
from penstock.sources.images.rows import checked_size
from penstock.sources.reading.bad_rows import BadRun, SkippableRows
from penstock.sources.reading.file_rows import chosen_fields
from penstock.sources.reading.open_files import reader_of
from penstock.sources.reading.parts import (
    BAD,
    Request,
    attempt_each,
    bad,
    check_names,
    each_field,
    skipped_words,
)
from penstock.sources.reading.read_blocks import block_rows, grain_words
from penstock.sources.tar.fields import (
    IMAGES,
    INTEGERS,
    KEY,
    LOOKED_AT,
    TEXTS,
    ArrayField,
    BytesField,
    Found,
    ImageField,
    IntegerField,
    ReadField,
    TarField,
    TextField,
    array_spec,
)
from penstock.sources.tar.index import TarIndex, tar_indexes

_WHOLE = (MissingFileError, AccessError, NotAFileError, FileChangedError)
_SHARE = 2  # A field is one that at least one in so many samples has.
_CURE = (
    "The files of a sample must follow each other (tar --sort=name); on_error='skip' leaves out samples like this, "
    "and fields=(...) chooses others."
)


def open_format(locations: Sequence[Location], request: Request) -> "TarRows":
    """Return the samples of tars; reads their headers once, and a few images and arrays to learn their shapes."""
    size = checked_size(request.size)
    like: dict[str, tuple[str, ArraySpec]] = {}
    found = dict(zip((one.url for one in locations), tar_indexes(locations), strict=True))

    def attempt(location: Location) -> TarIndex:
        index = found[location.url]
        if isinstance(index, DataError):
            raise index
        if index.damage is not None:
            if not request.skip or not index.num_samples:
                raise index.damage
            request.skipped.append(index.damage)  # The samples before it are sound.
        if not index.num_samples:
            problem = "it has no samples: no files with a key and an extension, such as 0001.jpg"
            raise DataError(problem, file=str(location), cure="Check what wrote it.")
        _check_arrays(index, like, request)
        return index

    _, indexes = attempt_each(locations, attempt, request)
    table = SampleTable(indexes)
    return TarRows(table, size, request)


def _check_arrays(
    index: TarIndex, like: dict[str, tuple[str, ArraySpec]], request: Request
) -> None:
    """Raise if the first array of a field has another dtype, or rank, than in the first tar that has it."""
    for number, extension in enumerate(index.extensions):
        is_used = request.names is None or extension in request.names
        if extension.rpartition(".")[2] != "npy" or not is_used:
            continue
        with open_reader(index.location, direct=False) as reader:
            for member in np.flatnonzero(index.kinds == number)[:LOOKED_AT].tolist():
                offset, size = int(index.offsets[member]), int(index.sizes[member])
                with suppress(*BAD):
                    spec = array_spec(in_file("x.npy", "", reader, offset, size))
                    break
            else:
                continue
        name, first = like.setdefault(extension, (str(index.location), spec))
        if first.dtype != spec.dtype or len(first.shape) != len(spec.shape):
            raise SpecMismatchError(
                f"the files of a dataset must have rows of one spec, got {first} in {name} and {spec} in "
                f"{index.location} in field {extension!r}."
            )


class SampleTable:
    """Where the members of all samples lie: for each extension, an entry for each sample."""

    def __init__(self, indexes: Sequence[TarIndex]) -> None:
        self.locations = [one.location for one in indexes]
        self.starts = np.cumsum([0, *(one.num_samples for one in indexes)])
        """The number of the first sample of each tar, and of all."""
        self.num_samples = int(self.starts[-1])
        self.offsets: dict[str, Index] = {}
        self.sizes: dict[str, Index] = {}
        """-1 where a sample has no such member, -2 where it has two."""
        keys = merge([one.keys for one in indexes], allocate_plain)
        assert isinstance(keys, Text)
        self.keys = keys
        for index, first in zip(indexes, self.starts.tolist(), strict=False):
            samples = first + np.repeat(np.arange(index.num_samples), np.diff(index.starts))
            for number, extension in enumerate(index.extensions):
                if extension not in self.sizes:
                    self.offsets[extension] = np.zeros(self.num_samples, np.int64)
                    self.sizes[extension] = np.full(self.num_samples, -1, np.int64)
                mine = np.flatnonzero(index.kinds == number)
                at = samples[mine]
                self.offsets[extension][at] = index.offsets[mine]
                self.sizes[extension][at] = index.sizes[mine]
                twice = at[1:][at[1:] == at[:-1]]
                self.sizes[extension][twice] = -2

    def kept(self, is_kept: Any) -> None:
        """Leave out all samples but those that are marked."""
        before = np.concatenate([[0], np.cumsum(is_kept)])
        self.starts = before[self.starts]
        self.num_samples = int(self.starts[-1])
        for table in (self.offsets, self.sizes):
            for extension in table:
                table[extension] = table[extension][is_kept]
        self.keys = self.keys.take(np.flatnonzero(is_kept), allocate_plain)

    def owner(self, row: int) -> int:
        """Return the tar that a sample lies in."""
        return int(np.searchsorted(self.starts[1:-1], row, side="right"))

    def missing(self, row: int, extension: str) -> DataError:
        """Return the error of a sample without, or with two, of a member."""
        number = self.owner(row)
        size = int(self.sizes[extension][row])
        what = "has no member" if size == -1 else "has two members"
        return DataError(
            f"sample {self.keys.value(row)!r} {what} {extension!r}",
            file=str(self.locations[number]),
            row=row - int(self.starts[number]),
            cure=_CURE,
        )

    @property
    def nbytes(self) -> int:
        """The bytes of the table."""
        tables = [*self.offsets.values(), *self.sizes.values()]
        return sum(one.nbytes for one in tables) + self.keys.nbytes


class TarRows(SkippableRows):
    """Row i is sample i: the key, and what its members hold."""

    def __init__(self, table: SampleTable, size: tuple[int, int] | None, request: Request) -> None:
        self.table = table
        self.locations = table.locations
        self.size = size
        self.direct = request.direct
        self.verify = request.verify
        self.names, self.structure = self._chosen(request)
        used = [name for name in self.names if name != KEY]
        self._leave_out_bad(used, request)
        # Of samples that are far apart, since neighbours are often alike.
        self.num_rows = table.num_samples
        made, left_out = each_field(used, partial(self._field, request), request)
        if left_out:
            nest = {name: name for name in self.names if name not in left_out}
            self.names, self.structure = chosen_fields(str(self.locations[0]), list(nest), request)
        self.made: Mapping[str, TarField] = made
        key_sizes = np.diff(table.keys.offsets)
        key = Field(
            ArraySpec((), str),
            estimate=int(key_sizes.mean()) + 8 if len(key_sizes) else 8,
            tops=tops_of(key_sizes + 8),
        )
        self.fields = tuple(key if name == KEY else made[name].field for name in self.names)
        self.read_first = {name: one for name, one in made.items() if isinstance(one, ReadField)}
        stored = [np.maximum(table.sizes[name], 0) for name in made]
        rows = sum(stored, np.zeros(self.num_rows, np.int64))
        self.grains = (Grain(1, int(rows.mean()) if len(rows) else 1),)
        first = [np.maximum(table.sizes[name], 0) for name in self.read_first]
        self.widest = int(sum(first, np.zeros(self.num_rows, np.int64)).max(initial=0))

    def _chosen(self, request: Request) -> tuple[list[str], Structure]:
        """Return the names of the fields: those asked for, or those that most samples have."""
        table, file = self.table, str(self.locations[0])
        known = [KEY, *sorted(table.sizes)]
        if request.fields is not None:
            names, structure = chosen_fields(file, known, request)
            check_names(file, names, known)
            return names, structure
        usual = []
        for name in known[1:]:
            count = int((table.sizes[name] >= 0).sum())
            if count * _SHARE >= table.num_samples:
                usual.append(name)
                continue
            problem = f"only {count} of {table.num_samples} samples have a member {name!r}"
            error = FieldError(problem, file=file, cure="Choose it with fields=(...).")
            request.left_out.setdefault(name, []).append(error)
        return chosen_fields(file, [KEY, *usual], request)

    def _leave_out_bad(self, names: Sequence[str], request: Request) -> None:
        """Leave out samples that lack a member if bad ones are skipped; else warn of them."""
        table = self.table
        lacking = {name: np.flatnonzero(table.sizes[name] < 0) for name in names}
        first_of: dict[int, str] = {}
        for name, rows in lacking.items():
            for row in rows.tolist():
                first_of.setdefault(row, name)
        if not first_of:
            return
        errors = (table.missing(row, first_of[row]) for row in sorted(first_of))
        if request.skip:
            if len(first_of) == table.num_samples:
                raise next(errors)
            request.skipped.extend(errors)
            is_kept = np.ones(table.num_samples, np.bool_)
            is_kept[list(first_of)] = False
            table.kept(is_kept)
            return
        count = f"{len(first_of)} of {table.num_samples} samples lack a member"
        text = f"{count}, and are an error when they are read. {next(errors)}"
        warn_user(text)

    def _field(self, request: Request, extension: str) -> TarField:
        """Return how a field is decoded, by the last part of its extension."""
        kind = extension.rpartition(".")[2]
        label = partial(self._label, extension)
        sizes = np.maximum(self.table.sizes[extension], 0)
        if kind in INTEGERS:
            return IntegerField(extension, label)
        if kind in TEXTS:
            return TextField(extension, label, sizes)
        if kind not in IMAGES and kind != "npy":
            return BytesField(extension, label, sizes)
        good = np.flatnonzero(self.table.sizes[extension] >= 0)
        picked = good[:: -(-len(good) // LOOKED_AT)].tolist()
        if not picked:
            raise self.table.missing(0, extension)
        readers: dict[int, Reader] = {}
        try:
            looks = []
            for row in picked:
                number = self.table.owner(row)
                if number not in readers:
                    readers[number] = open_reader(self.locations[number], direct=False)
                looks.append(self._inner_file(extension, row, readers[number]))
            if kind == "npy":
                return ArrayField(extension, label, sizes, looks)
            require_decoders(looks)
            return ImageField(extension, label, looks, self.size, verify=request.verify)
        finally:
            for reader in readers.values():
                reader.close()

    def _label(self, extension: str, row: int) -> tuple[str, str]:
        key = str(self.table.keys.value(row))
        return str(self.locations[self.table.owner(row)]), f"{key}.{extension}"

    def _inner_file(self, extension: str, row: int, reader: Reader) -> InnerFile:
        file, name = self._label(extension, row)
        offset = int(self.table.offsets[extension][row])
        size = int(self.table.sizes[extension][row])
        return in_file(name, f"{file}: {name}", reader, offset, size)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read members that lie close together with one read, and decode them."""
        index = as_index(rows)
        for name in self.made:
            lacking = np.flatnonzero(self.table.sizes[name][index] < 0)
            if len(lacking):
                raise self.table.missing(int(index[lacking[0]]), name)
        if self.read_first:
            self._fill_read(index, out, context)
        for name, sink in zip(self.names, out.sinks, strict=True):
            if name == KEY:
                assert isinstance(sink, Pieces)
                sink.add(self.table.keys.take(index, context.allocate))
            elif isinstance(field := self.made[name], ImageField):
                field.decode(index, sink, context, partial(self._opened, name, context))

    def _opened(self, extension: str, context: Context, row: int) -> InnerFile:
        location = self.locations[self.table.owner(row)]
        return self._inner_file(extension, row, reader_of(location, context, direct=self.direct))

    def _fill_read(self, index: Index, out: Block, context: Context) -> None:
        """Read the members of samples in the order of the tars, over small gaps, a few MB at a time."""
        order = np.argsort(index, kind="stable")
        rows = index[order]
        names = list(self.read_first)
        offsets = np.stack([self.table.offsets[name][rows] for name in names], axis=1)
        sizes = np.stack([self.table.sizes[name][rows] for name in names], axis=1)
        owners = np.searchsorted(self.table.starts[1:-1], rows, side="right")
        costs = np.cumsum(sizes.sum(axis=1) + GAP_NBYTES // 64 * len(names))
        edges = [0, *(np.flatnonzero(np.diff(costs // PIECE_NBYTES)) + 1).tolist(), len(rows)]
        for start, stop in itertools.pairwise(edges):
            if start < stop:
                part = slice(start, stop)
                data, starts = self._read(offsets[part], sizes[part], owners[part], context)
                sinks = out.at(order[part]).sinks if len(edges) > 2 or _moves(order) else out.sinks
                for number, name in enumerate(names):
                    found = Found(
                        data,
                        np.ascontiguousarray(starts[:, number]),
                        np.ascontiguousarray(sizes[part][:, number]),
                        rows[part],
                    )
                    self.read_first[name].put(found, sinks[self.names.index(name)], context)
                del data, found  # Frees the memory for the next piece.

    def _read(
        self, offsets: Index, sizes: Index, owners: Index, context: Context
    ) -> tuple[Any, Index]:
        """Return the bytes of members, of near ones with what lies between, and where each begins in them."""
        shape = offsets.shape
        files = np.repeat(owners, shape[1])
        begins, ends = offsets.reshape(-1), (offsets + sizes).reshape(-1)
        order = np.lexsort((begins, files))
        begins, ends, files = begins[order], ends[order], files[order]
        near = (np.diff(files) == 0) & (begins[1:] - ends[:-1] <= GAP_NBYTES // 64)
        near &= begins[1:] >= begins[:-1]
        cuts = [0, *(np.flatnonzero(~near) + 1).tolist(), len(begins)]
        runs = [(a, int(begins[a]), int(ends[a:b].max())) for a, b in itertools.pairwise(cuts)]
        lengths = np.array([stop - start for _, start, stop in runs], np.int64)
        places = np.concatenate([[0], np.cumsum(lengths)])
        data = context.allocate(int(places[-1]))[: int(places[-1])]
        for number, group in itertools.groupby(
            zip(runs, places.tolist(), strict=False), lambda one: int(files[one[0][0]])
        ):
            ranges = [
                Range(start, data[place : place + stop - start])
                for (_, start, stop), place in group
                if stop > start
            ]
            reader_of(self.locations[number], context, direct=self.direct).read_ranges(ranges)
        run_of = np.repeat(np.arange(len(runs)), np.diff(cuts))
        first = np.array([start for _, start, _ in runs], np.int64)
        starts = np.empty(len(begins), np.int64)
        starts[order] = places[run_of] + begins - first[run_of]
        return data, starts.reshape(shape)

    def bad_runs(self, start: int, stop: int, context: Context) -> Iterator[BadRun]:
        """Yield the samples that can't be read."""
        row = start
        while row < stop and not context.executor.is_closing:
            block = allocate_block(self.fields, 1, context.allocate, aligned=False)
            end = row + 1
            try:
                self.fill(slice(row, end), block, context)
            except BAD as error:
                number = self.table.owner(row)
                where = self.locate(row, 0)
                if isinstance(error, _WHOLE):  # No need to look at the rest of the tar.
                    first, last = self.table.starts[number : number + 2].tolist()
                    end = min(stop, last)
                    where = f"samples {row - first} to {last - first} of {self.locations[number]}"
                yield BadRun(row, end, where, bad(error))
            row = end

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of members as they are read, of those on their way to the block, and of one image."""
        gaps = GAP_NBYTES // 64 * max(1, len(self.read_first))
        piece = min(PIECE_NBYTES + self.widest + gaps, num_rows * (self.widest + 2 * gaps))
        image = max((one.staging_nbytes for one in self.made.values()), default=0)
        return piece + 2 * self.block_nbytes(num_rows) + image

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of the index."""
        return self.table.nbytes

    def heaviest(self) -> str:
        """Return the sample with most bytes."""
        if not self.num_rows:
            return ""
        total = sum(
            (np.maximum(self.table.sizes[name], 0) for name in self.made),
            np.zeros(self.num_rows, np.int64),
        )
        row = int(total.argmax())
        return f"{self.locate(row, 0)} has {format_nbytes(int(total[row]))}"

    def locate(self, row: int, epoch: int) -> str:
        """Return the tar, and the key of the sample in it."""
        return f"sample {self.table.keys.value(row)!r} of {self.locations[self.table.owner(row)]}"

    def describe(self) -> str:
        """Return the call that made it."""
        count = len(self.locations)
        what = f"{count} tars" if count > 1 else self.locations[0].name
        return f"from_files({what}: {', '.join(self.names)})"

    def fingerprint(self) -> Any:
        """Return names and lengths of the tars, the fields, and what a shuffle's windows depend on."""
        counts = np.diff(self.table.starts).tolist()
        names = [[one.name, size] for one, size in zip(self.locations, counts, strict=True)]
        specs = [field.spec.to_json() for field in self.fields]
        return ["tar", RULES, names, list(self.names), specs, self.size, grain_words(self)]

    def choice(self) -> str:
        """Return how the tars are read."""
        how = describe_reading(self.locations[0], direct=self.direct)
        return (
            f"{how}, by an index of {format_nbytes(self.table.nbytes)}; {block_rows(self)} rows make a read"
            f"{skipped_words(self)}"
        )


def _moves(order: Index) -> bool:
    """Return whether rows come in another order than they are read in."""
    return bool((np.diff(order) != 1).any())
