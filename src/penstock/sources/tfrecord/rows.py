"""from_tfrecord: files of tf.train.Examples, with random access or read forward."""

import bisect
import itertools
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.arrays import Index
from penstock.core.blocks import Block
from penstock.core.fields import round_up
from penstock.core.grains import Grain
from penstock.core.read_count import count_read
from penstock.core.rows import Context, Deferred, Node, Rows, RowSet, plain_context
from penstock.errors import BudgetError, DataError
from penstock.io.local.page_cache import page_cache_room
from penstock.io.location import Location
from penstock.io.open import describe_reading
from penstock.io.paths import PathLike, expand, is_folder
from penstock.io.reader import Range, Reader
from penstock.io.sizes import GAP_NBYTES, PIECE_NBYTES
from penstock.memory import allocate_plain, format_nbytes
from penstock.sources.reading.open_files import ROOM_NBYTES, check_file, page_cache_of, reader_of
from penstock.sources.reading.read_blocks import block_rows, grain_words
from penstock.sources.tfrecord.absent import check_present
from penstock.sources.tfrecord.codec import infer_features, named_features
from penstock.sources.tfrecord.compression import compression_of
from penstock.sources.tfrecord.feature_lists import has_lists
from penstock.sources.tfrecord.features import Feature
from penstock.sources.tfrecord.flow import Files, RecordFlow
from penstock.sources.tfrecord.index import record_offsets
from penstock.sources.tfrecord.records import FRAME_NBYTES, HEADER_NBYTES, Bytes, Found, Records

_SAMPLE = 100  # Records from which features and the sizes of rows are inferred.
_MOST_SAMPLED = 64 << 20  # Bytes of a record among these.
_MOST_HELD = 16 << 20  # Bytes of all records that rows are measured by, but for the first.
# Sizes of buffers are multiples of this, so that they can be reused: pieces differ by a few records.
_GRAIN_NBYTES = 1 << 16


def open_tfrecord(
    paths: PathLike | Iterable[PathLike],
    features: Any,
    *,
    compression: str | None,
    verify: bool,
    raw: bool,
    index: bool,
    storage_options: Mapping[str, Any] | None = None,
) -> Node:
    """Return the records of files; finds where they begin, unless they can only be read forward."""
    if compression is not None:
        if compression not in _COMPRESSION_NAMES:
            raise ValueError(
                'compression must be "GZIP", "ZLIB" or "" (not packed), or None to find it in the files, '
                f"got {compression!r}."
            )
        compression = _COMPRESSION_NAMES[compression]
    if raw and features is not None:
        raise ValueError("raw=True gives the bytes of records: leave the features out.")
    files = open_records(paths, compression, storage_options)
    sample = Sample(files, verify=verify)
    if features is None and not raw:
        features = inferred(files, sample)
    elif features is not None:
        check_present(named_features(features), sample.some(), str(files.locations[0]))
    records = Records(features, verify=verify)
    records.measure(sample.some())
    if files.is_packed or not index:
        return RecordFlow(files, records)
    try:
        found = record_offsets(files.locations, verify=verify, direct=files.direct)
    except DataError as error:
        if type(error) is not DataError:
            raise  # The file can't be read at all.
        # The flow raises it before the first row, unless it has on_error="skip" by then.
        return RecordFlow(files, records, damage=error)
    return TFRecordRows(files, records, found)


_BESIDE = (".idx", ".index", ".tfindex", ".json", ".md", ".txt")
"""Endings of what other tools put beside a TFRecord file, under its name."""
_COMPRESSION_NAMES = {"": "none", "GZIP": "GZIP", "ZLIB": "ZLIB"}  # As TensorFlow has them.


def open_records(
    paths: PathLike | Iterable[PathLike],
    compression: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Files:
    """Return the files that `paths` names, and how each is packed."""
    locations = expand(paths, storage_options=storage_options)
    if is_folder(paths):
        # Without the descriptions beside them. Endings are no help: train.tfrecord-00000-of-00008.
        records = [one for one in locations if "tfrec" in one.name.lower()]
        locations = [one for one in records if one.suffix not in _BESIDE] or records or locations
    direct = sum(location.size for location in locations) > page_cache_room()
    return Files(locations, [compression_of(one, compression) for one in locations], direct)


class Sample:
    """The sound ones of the first records of files (at most 100); only a few MB of them are held."""

    def __init__(self, files: Files, *, verify: bool) -> None:
        self._files = files
        self._verify = verify
        self._held: list[Bytes] = []
        self._held_nbytes = 0
        self.is_too_large = False
        """Whether it ended at a record that is too large to be looked at: no stream has a budget yet."""

    def __iter__(self) -> Generator[Bytes, None, None]:
        flow = RecordFlow(self._files, Records(None, verify=False))
        context = replace(plain_context(), allocate=_sampled, block_nbytes=_GRAIN_NBYTES)
        try:
            for payload, checksum in itertools.islice(_payloads(flow, context), _SAMPLE):
                # What is damaged would tell of features that no other record has.
                if self._verify and _masked(_native.crc32c(payload)) != checksum:
                    continue
                if not self._held or self._held_nbytes + payload.size <= _MOST_HELD:
                    self._held.append(payload)
                    self._held_nbytes += payload.size
                yield payload
        except BudgetError:
            self.is_too_large = True
        except DataError:
            pass  # It is raised when rows are read that far.

    def some(self) -> Sequence[Bytes]:
        """Return those that are held."""
        if not self._held:
            for _ in self:
                if self._held_nbytes > _MOST_HELD // 2:
                    break
        return self._held


def _sampled(nbytes: int) -> Bytes:
    if nbytes > _MOST_SAMPLED:
        raise BudgetError(f"a record of {nbytes} bytes is too large for a sample.")
    return allocate_plain(nbytes)


def _payloads(flow: RecordFlow, context: Context) -> Iterator[tuple[Bytes, int]]:
    """Yield the bytes of each record, and the checksum behind them."""
    for span in flow.spans(None, context):
        found = span.found
        for start, length in zip(found.starts.tolist(), found.lengths.tolist(), strict=True):
            stop = start + HEADER_NBYTES + length
            checksum = int.from_bytes(found.buffer[stop : stop + 4].tobytes(), "little")
            yield found.buffer[start + HEADER_NBYTES : stop], checksum


def _masked(checksum: int) -> int:
    """Return a CRC32C as TFRecords have it, so that one of bytes with a checksum among them is no simple number."""
    return ((checksum >> 15 | checksum << 17) + 0xA282EAD8) & 0xFFFFFFFF


def inferred(files: Files, sample: Sample) -> Any:
    """Return the features that the first records have."""
    file = str(files.locations[0])
    features: dict[str, Feature] = {}
    with closing(iter(sample)) as payloads:
        first = next(payloads, None)
        if first is not None:
            if has_lists(first):
                raise DataError(
                    "its records are tf.train.SequenceExamples, whose lists are not inferred",
                    file=file,
                    cure="Name them: features={'frames': ps.SequenceFeature((3,), 'float32'), ...}, with the features "
                    "of the context beside them; or raw=True for bytes.",
                )
            try:
                features = infer_features(itertools.chain([first], payloads))
            except ValueError as error:
                raise DataError(
                    f"the first records tell no features: {error}",
                    file=file,
                    cure="Give features={...}, or raw=True for bytes.",
                ) from None
    if not features:
        what = "its first records have" if first is not None else "it has no records, and so"
        cure = "Give features={...}, or raw=True."
        if sample.is_too_large:
            what = f"its first record takes more than {_MOST_SAMPLED >> 20} MB, and so it tells"
        elif first is None and files.locations[0].size:
            what = "no record at its beginning can be read, and so it has"
            cure = f"It may be damaged, packed, or no TFRecord file; if it is good: {cure}"
        raise DataError(f"{what} no features", file=file, cure=cure)
    return features


class TFRecordRows(Rows):
    """The records of files with random access, by an index of where they begin."""

    locations: Sequence[Location]

    def __init__(self, files: Files, records: Records, offsets: list[Index]) -> None:
        self.files = files
        self.locations = files.locations
        self.records = records
        self.structure = records.structure
        self.starts = np.cumsum([0] + [len(one) - 1 for one in offsets])
        self.bounds = self.starts[1:-1].tolist()
        self.num_rows = int(self.starts[-1])
        # Each file has one entry more than records: row r, in file f, begins at entry r + f and ends at r + f + 1.
        self.offsets = _joined(offsets)
        lengths = np.diff(self.offsets)
        np.maximum(lengths, 0, out=lengths)  # From a file to the next.
        self.widest = int(lengths.max(initial=0))
        records.expect(lengths)
        self.fields = records.fields
        total = sum(location.size for location in files.locations)
        self.grains = (Grain(1, -(-total // max(1, self.num_rows))),)
        self.is_fixed = all(field.storage_shape is not None for field in self.fields)
        self.is_quick = (
            self.is_fixed
            and not records.images
            and not records.lists
            and self.widest <= ROOM_NBYTES
            and not files.direct
            and not any(location.is_remote for location in files.locations)
        )
        """Whether native jobs can read it."""

    def with_errors(self, on_error: str) -> Node:
        """Return the rows, or the flow that skips bad records: it knows its number of rows only at its end."""
        if on_error != "skip":
            return self
        return RecordFlow(self.files, self.records, skip=True, strict=self)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read records that lie close together with one read, and decode them in one go."""
        if isinstance(rows, slice):
            self._fill_run(rows.start, rows.stop, out, context)
        elif len(rows):
            self._fill_scattered(rows, out, context)

    def defers(self, rows: slice) -> bool:
        """Return whether these rows have one size, and are of one file that is read through the page cache."""
        return (
            self.is_quick
            and rows.start < rows.stop
            and self._owner(rows.start) == self._owner(rows.stop - 1)
        )

    def _defer(self, first: int, last: int, out: Block, context: Context) -> None:
        """Leave it to a native job to read and decode rows of one file."""
        assert context.deferred is not None
        number = self._owner(first)
        edges = self.offsets[first + number : last + number + 1]
        reader = self._reader(number, context)
        with page_cache_of(reader) as fd:
            job = self.records.job(fd, edges[:-1], edges[1:], out)
        count_read(int(edges[-1] - edges[0]))
        context.deferred.append(Deferred(job, partial(check_file, reader)))

    def _fill_run(self, first: int, last: int, out: Block, context: Context) -> None:
        """Read rows that follow each other, a piece of a file at a time."""
        if context.deferred is not None:
            self._defer(first, last, out, context)
            return
        row = first
        while row < last:
            number = self._owner(row)
            end = min(last, int(self.starts[number + 1]))
            # Where each record begins, and where the last one ends.
            edges = self.offsets[row + number : end + number + 1]
            start, stop = int(edges[0]), end
            if int(edges[-1]) - start > PIECE_NBYTES:
                most = np.searchsorted(edges, start + PIECE_NBYTES, side="right") - 1
                stop = row + max(1, int(most))
                edges = edges[: stop - row + 1]
            staging = _staging(int(edges[-1]) - start, context)
            self._reader(number, context).read_into(staging, start)
            begins, ends = edges[:-1], edges[1:]
            place = partial(self._place, range(row, stop))
            found = Found(staging, begins - start, ends - begins - FRAME_NBYTES, place)
            is_all = (row, stop) == (first, last)
            part = out if is_all else out.at(np.arange(row - first, stop - first))
            self.records.read(found, part, context)
            del found, staging  # Frees the memory for the next piece.
            row = stop

    def _fill_scattered(self, rows: Index, out: Block, context: Context) -> None:
        """Read rows in the order of the files, over small gaps, and decode them to their slots."""
        order = np.argsort(rows, kind="stable")
        index = rows[order]
        owners = np.searchsorted(self.starts[1:-1], index, side="right")
        begins, ends = self.offsets[index + owners], self.offsets[index + owners + 1]
        is_joined = (np.diff(owners) == 0) & (begins[1:] - ends[:-1] <= GAP_NBYTES)
        added = ends - begins
        added[1:][is_joined] = np.diff(ends)[is_joined]
        cells = (np.cumsum(added) - 1) // PIECE_NBYTES
        edges = [0, *(np.flatnonzero(np.diff(cells)) + 1).tolist(), len(index)]
        for start, stop in itertools.pairwise(edges):
            part = slice(start, stop)
            sizes = ends[part] - begins[part]
            added[start] = sizes[0]
            stops = np.cumsum(added[part])
            starts = stops - sizes
            staging = _staging(int(stops[-1]), context)
            cuts = [0, *(np.flatnonzero(~is_joined[start : stop - 1]) + 1).tolist(), stop - start]
            runs = (
                (int(owners[start + a]), int(begins[start + a]), int(starts[a]), int(stops[b - 1]))
                for a, b in itertools.pairwise(cuts)
            )
            self._read(runs, staging, context)
            found = Found(staging, starts, sizes - FRAME_NBYTES, partial(self._place, index[part]))
            self.records.read(found, out.at(order[part]), context)
            del found, staging  # Frees the memory for the next piece.

    def _read(
        self, runs: Iterator[tuple[int, int, int, int]], staging: Bytes, context: Context
    ) -> None:
        """For each run (file, offset, start, stop), read from `offset` of the file to staging[start:stop]."""
        for number, group in itertools.groupby(runs, lambda run: run[0]):
            ranges = [Range(offset, staging[start:stop]) for _, offset, start, stop in group]
            self._reader(number, context).read_ranges(ranges)

    def _reader(self, number: int, context: Context) -> Reader:
        return reader_of(self.locations[number], context, direct=self.files.direct)

    def _place(self, index: Index | range, record: int) -> tuple[str, int, int]:
        row = int(index[record])
        number = self._owner(row)
        first = int(self.starts[number])
        return str(self.locations[number]), row - first, int(self.offsets[row + number])

    def _owner(self, row: int) -> int:
        return bisect.bisect_right(self.bounds, row)

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of a piece of a file, and of columns on their way to the block."""
        piece = min(PIECE_NBYTES + self.widest, num_rows * (self.widest + GAP_NBYTES))
        moving = 0 if self.is_fixed else 2 * self.block_nbytes(num_rows)
        return round_up(piece, _GRAIN_NBYTES) + moving + self.records.decoding_nbytes(num_rows)

    def retained_nbytes(self, ahead: int) -> int:
        """Return the bytes of the index."""
        return int(self.offsets.nbytes)

    def heaviest(self) -> str:
        """Return the largest record."""
        if not self.num_rows:
            return ""
        lengths = np.diff(self.offsets)
        lengths[self.starts[1:-1] + np.arange(len(self.starts) - 2)] = 0  # From a file to the next.
        entry = int(lengths.argmax())
        number = int(np.searchsorted(self.starts + np.arange(len(self.starts)), entry, "right")) - 1
        return f"{self.locate(entry - number, 0)}, byte {self.offsets[entry]}, has {format_nbytes(self.widest)}"

    def locate(self, row: int, epoch: int) -> str:
        """Return the file, and the number of the record in it."""
        number = self._owner(row)
        return f"record {row - int(self.starts[number])} of {self.locations[number]}"

    def describe(self) -> str:
        """Return the call that made it."""
        return f"from_tfrecord({self.files.describe()}{', raw' if self.records.is_raw else ''})"

    def fingerprint(self) -> Any:
        """Return names and lengths of the files, the fields, and the sizes that a shuffle's windows depend on."""
        counts = np.diff(self.starts).tolist()
        names = [[one.name, size] for one, size in zip(self.locations, counts, strict=True)]
        specs = [field.spec.to_json() for field in self.fields]
        return [
            "tfrecord",
            names,
            self.records.fingerprint(),
            specs,
            grain_words(self),
        ]

    def choice(self) -> str:
        """Return how the files are read."""
        first = self.files.locations[0]
        how = describe_reading(first, direct=self.files.direct)
        checked = "both checksums verified" if self.records.verify else "checksums not verified"
        return (
            f"{how}, {checked}; {block_rows(self)} rows make a read; "
            f"the index takes {self.offsets.nbytes} bytes"
        )


def _joined(parts: list[Index]) -> Index:
    """Return one array of several, which are dropped on the way: so it takes no more memory than they did."""
    if len(parts) == 1:
        return parts[0]
    whole = np.empty(sum(map(len, parts)), np.int64)
    end = len(whole)
    while parts:
        part = parts.pop()
        whole[end - len(part) : end] = part
        end -= len(part)
    return whole


def _staging(nbytes: int, context: Context) -> Bytes:
    return context.allocate(round_up(nbytes, _GRAIN_NBYTES))[:nbytes]
