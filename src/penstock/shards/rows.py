"""Reads the folders that `write` or `cache` made: shards of plain `.npy` files, and a manifest."""

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.core.arguments import at_home
from penstock.core.fields import Field
from penstock.core.nest import flatten
from penstock.core.spec import plain_dtype
from penstock.errors import AccessError, DataError, MissingFileError
from penstock.io.formats.npy_header import header_of
from penstock.io.local.page_cache import page_cache_room
from penstock.io.location import Location, is_url
from penstock.io.open import open_reader
from penstock.io.paths import PathLike, expand, is_remote_folder
from penstock.io.reader import read_bytes
from penstock.shards import journal
from penstock.shards.layout import CHECKS, FieldLayout
from penstock.shards.manifest import MAX_NBYTES, NAME, Manifest, parse_manifest, row_from_json
from penstock.shards.varying import StoredEntries, VaryingRows, average_nbytes
from penstock.shards.writing import ShardRecord
from penstock.sources.reading.file_rows import FileRows
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.parts import Part, Request, attempt_each, check_names
from penstock.sources.reading.regions import Region
from penstock.sources.reading.run_checks import RunChecks, RunGrid

_HOW = "read in place"
_CURE = (
    "Restore it from a copy, or write the folder again with ds.write(...); "
    "from_files(..., verify=False) reads it as it is."
)


def open_written(paths: PathLike | Iterable[PathLike], request: Request) -> FileRows | None:
    """Return the rows of a folder with a manifest, given the folder or the manifest; None for anything else."""
    if not isinstance(paths, str | os.PathLike):
        return None
    text = os.fspath(paths)
    if is_url(text) and not os.path.lexists(text):
        return _open_remote(text, request)
    folder = str(at_home(text))
    if text.rpartition("/")[2] == NAME:
        folder = text.rpartition("/")[0] or "."
    elif not os.path.isfile(f"{folder}/{NAME}"):  # noqa: PTH113  # Path.is_file raises where this user may not look.
        if journal.read_journal(Path(folder)) is not None:
            raise DataError(
                "this folder was never finished: whatever wrote it was interrupted",
                file=text,
                cure="Run it again, and it goes on from there; or remove the folder.",
            )
        return None
    manifest = read_manifest(folder, request.storage_options)
    return open_rows(folder, manifest, request)


def _open_remote(url: str, request: Request) -> FileRows | None:
    """Return the rows of a folder behind a URL; None if it has no manifest."""
    folder = url.rstrip("/")
    if folder.rpartition("/")[2] == NAME:
        folder = folder.rpartition("/")[0]
    elif not is_remote_folder(url, request.storage_options):
        return None
    try:
        manifest = read_manifest(folder, request.storage_options)
    except (MissingFileError, AccessError):
        if url.endswith(NAME):
            raise
        return None
    return open_rows(folder, manifest, request)


def read_manifest(folder: str, storage_options: Mapping[str, Any] | None = None) -> Manifest:
    """Return the manifest of a folder."""
    (location,) = expand(f"{folder}/{NAME}", storage_options=storage_options)
    if location.size > MAX_NBYTES:
        problem = f"a manifest must have at most {MAX_NBYTES} bytes, got {location.size}"
        raise DataError(problem, file=str(location))
    with open_reader(location) as reader:
        text = read_bytes(reader, 0, location.size)
    return parse_manifest(text, file=str(location))


def open_rows(folder: str, manifest: Manifest, request: Request) -> FileRows:
    """Return the rows of all shards, with the nest they were written with; reads the header of each file."""
    nest = row_from_json(manifest.row) if request.fields is None else request.fields
    names, structure = flatten(nest)
    known = {layout.stem: layout for layout in manifest.layouts}
    check_names(f"{folder}/{NAME}", names, known)
    layouts = [known[name] for name in names]
    direct = manifest.nbytes > page_cache_room()
    field_of = {one.stem: field_of_shards(one, manifest.shards) for one in layouts}
    cure = _CURE if request.verify else None

    def attempt(one: tuple[int, ShardRecord]) -> tuple[Part, Location]:
        options = request.storage_options
        return open_shard(
            folder,
            *one,
            layouts,
            field_of,
            direct=direct,
            storage_options=options,
            check=cure,
            found=found,
        )

    found = _files_of(folder, request) if is_url(folder) else None
    _, opened = attempt_each(list(enumerate(manifest.shards)), attempt, request)
    parts, locations = [part for part, _ in opened], [location for _, location in opened]
    return FileRows(parts, locations, names, structure)


def _files_of(folder: str, request: Request) -> dict[str, Location] | None:
    """Return all files in a folder behind a URL, in one listing; None where folders can't be listed."""
    if urlsplit(folder).scheme in ("http", "https"):
        return None
    listed = expand(f"{folder}/", storage_options=request.storage_options)
    # Under the URL that the user gave: a file system may write its own otherwise.
    return {one.name: replace(one, url=f"{folder}/{one.name}") for one in listed}


def field_of_shards(
    layout: FieldLayout, shards: Sequence[ShardRecord], like: Field | None = None
) -> Field:
    """Return the field, with the average size that its rows really have."""
    if layout.is_fixed:
        return like or Field(layout.spec)
    nbytes = sum(
        shard.files[layout.file_name("values", number)].nbytes
        for number, shard in enumerate(shards)
        if layout.file_name("values", number) in shard.files
    )
    num_rows = sum(shard.num_rows for shard in shards)
    estimate = average_nbytes(layout, nbytes, num_rows)
    return replace(like, estimate=estimate) if like else Field(layout.spec, estimate=estimate)


def open_shard(
    folder: str,
    number: int,
    shard: ShardRecord,
    layouts: Sequence[FieldLayout],
    field_of: dict[str, Field],
    *,
    direct: bool,
    check: str | None,
    storage_options: Mapping[str, Any] | None = None,
    found: Mapping[str, Location] | None = None,
) -> tuple[Part, Location]:
    """Return one shard as a part, and the location of its first file; checks names, sizes and headers.

    Rows that are read are compared with their checksums, unless `check` is None: else it is what to do about damage.
    `found` are the files of the folder, if they were listed.
    """
    leaves: dict[str, Leaf] = {}
    locations: list[Location] = []
    for layout in layouts:
        arrays = {}
        for role in layout.arrays:
            name = layout.file_name(role, number)
            if found is None or name not in found:
                (location,) = expand(f"{folder}/{name}", storage_options=storage_options)
            else:
                location = found[name]
            entries = _open_array(location, layout, role, number, shard, direct=direct)
            entries.checks = _checks_of(entries.location, shard, check, found)
            arrays[role] = entries
            locations.append(entries.location)
        leaves[layout.stem] = _leaf(layout, field_of[layout.stem], shard, arrays, direct=direct)
        leaves[layout.stem].run_rows = shard.run_rows or 1
    return Part(locations[0].url, leaves), locations[0]


def _checks_of(
    location: Location,
    shard: ShardRecord,
    cure: str | None,
    found: Mapping[str, Location] | None,
) -> RunChecks | None:
    """Return the checksums of the array in a file; None if there are none, or they shall not be compared."""
    if cure is None or not shard.run_rows or not shard.num_rows:
        return None
    name = f"{location.name}{CHECKS}"
    if name not in shard.files:
        problem = "the manifest does not list its checksums"
        raise DataError(problem, file=str(location), cure=cure)
    record = shard.files[name]
    beside = replace(
        location,
        url=f"{location.url}{CHECKS}",
        size=record.nbytes,
        mtime_ns=None,
        etag=found[name].etag if found and name in found else None,
    )
    grid = RunGrid(shard.num_rows, shard.run_rows, shard.first_run_rows)
    return RunChecks(str(location), beside, record.crc32, grid, cure)


def _open_array(
    location: Location,
    layout: FieldLayout,
    role: str,
    number: int,
    shard: ShardRecord,
    *,
    direct: bool,
) -> StoredEntries:
    name = layout.file_name(role, number)
    cure = "It was changed or cut off since: write the folder again."
    if name not in shard.files:
        raise DataError("the manifest does not list it", file=str(location), cure=cure)
    if location.size != shard.files[name].nbytes:
        problem = f"it has {location.size} bytes, and the manifest says {shard.files[name].nbytes}"
        raise DataError(problem, file=str(location), cure=cure)
    header = header_of(location)
    array = layout.arrays[role]
    # A dtype of ml_dtypes is plain bytes in the file: only the manifest has its name.
    if header.shape[1:] != array.shape or header.dtype != plain_dtype(array.dtype):
        problem = (
            f"it has rows of {header.dtype}{header.shape[1:]}, and the manifest says otherwise"
        )
        raise DataError(problem, file=str(location), cure=cure)
    rows = header.shape[0] if header.shape else -1
    wanted = {"rows": shard.num_rows, "shapes": shard.num_rows, "offsets": shard.num_rows + 1}
    if rows != wanted.get(role, rows) or (header.fortran_order and math.prod(header.shape) > rows):
        problem = f"it has shape {header.shape}, and the manifest says {wanted.get(role)} rows"
        raise DataError(problem, file=str(location), cure=cure)
    return StoredEntries(location, header.data_offset, array, rows, direct=direct)


def _leaf(
    layout: FieldLayout,
    field: Field,
    shard: ShardRecord,
    arrays: dict[str, StoredEntries],
    *,
    direct: bool,
) -> Leaf:
    if not layout.is_fixed:
        return VaryingRows(layout, field, shard.num_rows, arrays, _HOW)
    rows = arrays["rows"]
    shape = (shard.num_rows, *layout.spec.fixed_shape)
    dtype = layout.spec.numpy_dtype
    return Region(rows.location, rows.offset, dtype, shape, direct=direct, checks=rows.checks)
