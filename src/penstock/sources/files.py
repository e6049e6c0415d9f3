"""from_files: finds the files and their format. Each format is read by a module of its own."""

import glob
import importlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from penstock.core.arguments import at_home, one_of
from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.errors import DataError, MissingFileError, warn_user
from penstock.io.local.listing import is_store
from penstock.io.local.page_cache import page_cache_room
from penstock.io.location import Location, without_secrets
from penstock.io.paths import PathLike, expand, is_folder
from penstock.shards.manifest import NAME as MANIFEST
from penstock.shards.rows import open_written
from penstock.sources.other_formats import cure_of
from penstock.sources.reading.parts import Request, left_out_words


@dataclass(frozen=True, slots=True)
class Format:
    """A format: the endings of its files, and the module that opens them, imported when it is needed."""

    suffixes: tuple[str, ...]
    module: str


FormatName = Literal[
    "npy", "npz", "raw", "hdf5", "zarr", "parquet", "arrow", "csv", "jsonl", "text", "images", "tar"
]
FORMATS: dict[FormatName, Format] = {
    "npy": Format((".npy",), "npy"),
    "npz": Format((".npz",), "npz"),
    "raw": Format((".bin", ".raw"), "raw"),
    "hdf5": Format((".h5", ".hdf5"), "hdf5.arrays"),
    "zarr": Format((".zarr",), "zarr.arrays"),
    "parquet": Format((".parquet",), "parquet.columns"),
    "arrow": Format((".arrow", ".feather"), "arrow.ipc"),
    "csv": Format((".csv", ".tsv", ".csv.gz", ".tsv.gz"), "csv.first_look"),
    "jsonl": Format((".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"), "jsonl.first_look"),
    "text": Format((".txt", ".txt.gz"), "text"),
    "images": Format(
        (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff"), "images.rows"
    ),
    "tar": Format((".tar",), "tar.rows"),
}
_PACKED_TARS = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
_NAMES_SHOWN = 3
_MOST_SHOWN = 200  # Characters of names.
# Names, and endings, of what lies beside data and nobody means to read as rows.
_PAPERS = ("readme", "license", "thumbs", "desktop")  # The last two are made by Windows.
_NOTES = (".json", ".md", ".rst", ".yaml", ".yml", ".toml", ".log", ".py", ".ipynb", ".html")
_CHECKS = (".crc32c", ".crc", ".md5", ".sha256", ".sha512", ".idx", ".index", ".tfindex")
_MOST_LOOKED_AT = 1000  # Names in the folders of a folder, in search of data.
_BY_SUFFIX = {suffix: name for name, one in FORMATS.items() for suffix in one.suffixes}
_SUFFIXES = tuple(_BY_SUFFIX)


def open_files(
    paths: PathLike | Iterable[PathLike],
    fields: Any,
    *,
    format: FormatName | None,
    spec: Any,
    size: tuple[int, int] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_error: str = "raise",
    verify: bool = True,
    separator: str | None = None,
    decimal: str | None = None,
) -> Node:
    """Return the rows of all files, one file after the other; reads their headers."""
    one_of("on_error", on_error, ("raise", "skip"))
    if format is not None:
        one_of("format", format, FORMATS)
    _check_names(fields)
    request = Request(
        fields,
        spec,
        size,
        skip=on_error == "skip",
        storage_options=storage_options or {},
        verify=verify,
        separator=separator,
        decimal=decimal,
    )
    written = open_written(paths, request) if format in (None, "npy") else None
    if written is not None:
        written.skipped_files = tuple(request.skipped)
        return written
    locations = _listed(paths, format, request)
    kind = _format(locations) if format is None else format
    if format is None and is_folder(paths):
        _warn_of_others(at_home(str(paths)), kind, len(locations))
    if size is not None and kind not in ("images", "tar"):
        raise ValueError(f"size is for images, got size={size!r} for {kind} files.")
    if spec is not None and kind not in ("raw", "csv", "jsonl"):
        raise ValueError(
            f"spec is for raw, CSV and JSON Lines files: {kind} files say themselves what their rows are."
        )
    for name, value in (("separator", separator), ("decimal", decimal)):
        if value is not None and kind != "csv":
            raise ValueError(f"{name} is for CSV files, got {name}={value!r} for {kind} files.")
    direct = sum(location.size for location in locations) > page_cache_room()
    module = importlib.import_module(f"penstock.sources.{FORMATS[kind].module}")
    node: Node = module.open_format(locations, replace(request, direct=direct))
    node.skipped_files = tuple(request.skipped)
    if request.left_out:
        # The line of the user's: the caller of from_files, which called this.
        warn_user(left_out_words(request.left_out))
    return node


def _check_names(fields: Any) -> None:
    """Raise unless `fields` is None, or a nest of names."""
    for name in () if fields is None else flatten(fields)[0]:
        if isinstance(name, str):
            continue
        rule = "fields must be names of arrays"
        if not isinstance(name, Iterable | int):
            raise TypeError(f"{rule}, got {name!r:.80}.")
        if not isinstance(name, bytes | int):
            rule = "fields must be a name, a tuple or a dict"
        meant = repr(_as_nest(fields))
        cure = f"fields={meant}" if len(meant) <= _MOST_SHOWN else "fields=tuple(names)"
        raise TypeError(f"{rule}, got {name!r:.80}; write {cure}.")


def _as_nest(fields: Any) -> Any:
    """Return a nest of names as it was meant: tuples for lists and the like, and text for numbers and bytes."""
    if isinstance(fields, dict):
        return {key: _as_nest(one) for key, one in fields.items()}
    if isinstance(fields, bytes):
        return fields.decode("utf-8", "replace")
    if isinstance(fields, Iterable) and not isinstance(fields, str):
        return tuple(map(_as_nest, fields))
    return str(fields)


def _listed(
    paths: PathLike | Iterable[PathLike], format: FormatName | None, request: Request
) -> list[Location]:
    """Return the files that `paths` names: in a folder, those whose endings are known."""
    suffixes = _SUFFIXES if format is None else FORMATS[format].suffixes
    bad = request.skipped if request.skip else None
    listed = partial(expand, paths, storage_options=request.storage_options, skipped=bad)
    one_folder = is_folder(paths)
    try:
        found = listed(suffixes=suffixes, recursive=format == "images")
    except MissingFileError:
        if not one_folder or format == "images":
            raise
        try:
            # Without a format: folders of images, one folder a class. With one: files of any ending.
            others = FORMATS["images"].suffixes if format is None else ()
            return listed(suffixes=others, recursive=format is None)
        except MissingFileError:
            pass
        if format is None:
            _refuse_records(at_home(str(paths)), _unknown(at_home(str(paths))), 0)
        raise
    if format is not None or not _is_one(paths):
        return found
    found = _without_notes(str(paths), found, listed) if one_folder else found
    return _most(without_secrets(str(paths)), found)


def _is_one(paths: PathLike | Iterable[PathLike]) -> bool:
    """Return whether this is one path, and no glob: what it names, if that is many files, are those of a folder."""
    return isinstance(paths, str | os.PathLike) and not glob.has_magic(os.fspath(paths))


def _most(folder: str, found: list[Location]) -> list[Location]:
    """Return the files of the format that most files of a folder have; a warning names the others."""
    kinds = Counter(_kind(one) for one in found)
    (kind, count), *others = kinds.most_common()
    if not others or others[0][1] == count:
        return found  # One format; or which is meant can't be told, which is an error.
    left = [one for one in found if _kind(one) != kind]
    which = " or ".join(f"format={other!r}" for other, _ in others)
    text = (
        f"{count} {kind} files of {folder} are read, and not {_names(left)} beside them; "
        f"to read those instead, give {which}."
    )
    warn_user(text)
    return [one for one in found if _kind(one) == kind]


def _without_notes(
    folder: str, found: list[Location], listed: Callable[..., list[Location]]
) -> list[Location]:
    """Return the images of a folder, and of the folders in it, without a few notes or tables beside them.

    Where there are more of those than images, or files of another format, return what was found.
    """
    notes = [one for one in found if _kind(one) in ("text", "csv")]
    others = [one for one in found if _kind(one) != "images"]
    images: list[Location] = []
    if len(notes) == len(others):
        with suppress(MissingFileError):
            images = listed(suffixes=FORMATS["images"].suffixes, recursive=True)
    if len(images) <= len(notes):
        _warn_of_images(folder, found)
        return found
    if notes:
        kind = _kind(notes[0])
        text = (
            f"{folder} is read as a folder of images, without {_names(notes)} beside them; "
            f"to read those instead, give format={kind!r}."
        )
        warn_user(text)
    return images


def _warn_of_images(folder: str, found: Sequence[Location]) -> None:
    """Warn if a file of another format hides folders of images."""
    inside = islice(at_home(folder).glob("*/*"), _MOST_LOOKED_AT)
    hidden = [str(path) for path in inside if path.suffix.lower() in FORMATS["images"].suffixes]
    if hidden:
        text = (
            f"only {_names(found)} of {folder} is read, and not the images in the folders there, such as "
            f"{min(hidden)}; to read those, give format='images'."
        )
        warn_user(text)


def _warn_of_others(folder: Path, kind: FormatName, count: int) -> None:
    """Name what is left out of a folder: files that have the ending of no format, and folders with files of one.

    Raise if most of its files are TFRecords.
    """
    if is_store(str(folder)):
        return
    if kind != "images":  # Folders of images are read, or named, already.
        _warn_of_folders(folder, kind, count)
    others = _unknown(folder)
    if not others:
        return
    records = _refuse_records(folder, others, count, f"; format={kind!r} reads the others")
    hint = " TFRecords are read by ps.from_tfrecord." if records else ""
    text = (
        f"{count} {kind} file{'s' if count > 1 else ''} of {folder} will be read, and not {_first(others)}, which no "
        f"format has the ending of.{hint} If that is meant, give format={kind!r}."
    )
    warn_user(text)


def _warn_of_folders(folder: Path, kind: FormatName, count: int) -> None:
    """Name the folders in a folder that have data: only its own files are read."""
    suffixes = tuple(
        suffix
        for suffix, other in _BY_SUFFIX.items()
        # Notes beside data of another format are texts, too.
        if other == kind or other not in ("images", "text")
    )
    found: dict[str, str] = {}
    left = _MOST_LOOKED_AT
    to_see = [(path, path.name) for path in _folders_of(os.scandir(folder))]
    while to_see and left > 0:
        path, top = to_see.pop(0)
        if top in found:
            continue
        with suppress(OSError):  # One that this user may not list.
            with os.scandir(path) as listed:
                entries = list(islice(listed, left))
            left -= len(entries)
            data = [one.name.lower() for one in entries if not one.name.startswith((".", "_"))]
            ending = next((end for name in data for end in suffixes if name.endswith(end)), "")
            if ending:
                found[top] = ending
            to_see += [(deeper, top) for deeper in _folders_of(entries)]
    if not found:
        return
    ending = next(iter(found.values()))
    text = (
        f"{count} {kind} file{'s' if count > 1 else ''} of {folder} will be read, and not those in its folders "
        f"{_first(sorted(found))}. To read them, give a glob, {f'{folder}/**/*{ending}'!r}; if they are not meant, "
        f"give format={kind!r}."
    )
    warn_user(text)


def _folders_of(entries: Iterable[os.DirEntry[str]]) -> list[Path]:
    """Return the folders that may have files of data, sorted: no stores, nor folders that penstock wrote."""
    return sorted(
        Path(one.path)
        for one in entries
        if not one.name.startswith((".", "_"))
        and one.is_dir(follow_symlinks=False)
        and not is_store(one.path)
        and not os.path.exists(f"{one.path}/{MANIFEST}")  # noqa: PTH110  # Path.exists raises where this user may not look.
    )


def _refuse_records(folder: Path, others: list[str], count: int, cure: str = "") -> list[str]:
    """Return the TFRecords of a folder; raise if there are more of them than files of other formats."""
    records = [name for name in others if _is_tfrecord(name)]
    if len(records) <= count:
        return records
    raise DataError(
        f"most files of this folder are TFRecords: {_first(records)}",
        file=str(folder),
        cure=f"Read them with ps.from_tfrecord({str(folder)!r}){cure}.",
    )


def _unknown(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(
            entry.name for entry in entries if _is_unknown(entry.name) and entry.is_file()
        )


def _is_unknown(name: str) -> bool:
    """Return whether a file may be data by its name, but has the ending of no format."""
    if name.startswith((".", "_")) or name.lower().endswith(_SUFFIXES):
        return False
    stem, ending = os.path.splitext(name.lower())  # noqa: PTH122  # Of tens of thousands.
    if stem in _PAPERS or ending in (*_NOTES, *_CHECKS):
        return False
    return bool(ending) or _is_tfrecord(name)


def _is_tfrecord(name: str) -> bool:
    return "tfrec" in name.lower()


def _names(locations: Sequence[Location]) -> str:
    return _first([location.name for location in locations])


def _first(names: Sequence[str]) -> str:
    shown = names[:_NAMES_SHOWN]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")


def _ending(location: Location) -> str:
    """Return the end of a file's name: '.npy', or '.csv.gz' for a packed file."""
    if location.suffix != ".gz":
        return location.suffix
    stem, dot, ending = location.name[: -len(".gz")].rpartition(".")
    return f".{ending.lower()}.gz" if dot and stem else ".gz"


def _kind(location: Location) -> FormatName | None:
    """Return the format of a file by its name; None if that can't tell."""
    return "zarr" if location.is_directory else _BY_SUFFIX.get(_ending(location))


def _format(locations: Sequence[Location]) -> FormatName:
    found: dict[FormatName, Location] = {}
    for location in locations:
        kind = _kind(location)
        if kind is None and location.name.lower().endswith(_PACKED_TARS):
            raise DataError(
                "a packed tar can only be read from its beginning to its end",
                file=str(location),
                cure="Unpack it once (gunzip, unxz, unzstd), and read the .tar, which has random access.",
            )
        if kind is None:
            if _is_tfrecord(location.name):
                raise DataError(
                    "this is a TFRecord file",
                    file=str(location),
                    cure=f"Read it with ps.from_tfrecord({str(location)!r}).",
                )
            raise DataError(
                f"its format can't be told from {_ending(location) or 'a name without an ending'!r}",
                file=str(location),
                cure=cure_of(location) or f"Give format=..., one of {', '.join(FORMATS)}.",
            )
        found.setdefault(kind, location)
    if len(found) > 1:
        names = " and ".join(f"{kind} ({location})" for kind, location in found.items())
        which = " or ".join(f"format={kind!r}" for kind in found)
        raise ValueError(
            f"the files of a dataset must have one format, got {names}; "
            f"say which with {which}, or name the files."
        )
    return next(iter(found))
