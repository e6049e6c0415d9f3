"""`penstock convert IN OUT`: files of one format, written as another."""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from penstock.cli import are_tfrecords, parse_storage_options, print_error
from penstock.core.spec import ArraySpec
from penstock.dataset import Dataset
from penstock.errors import PenstockError
from penstock.makers import from_files, from_tfrecord
from penstock.memory import format_nbytes
from penstock.sources.files import FORMATS
from penstock.sources.reading.parts import check_names
from penstock.sources.tfrecord.rows import Sample, inferred, open_records
from penstock.writers import ENGINES, WRITERS

_BY_SUFFIX = {
    "": "npy",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".zarr": "zarr",
}
_WRITTEN = "a folder of .npy shards (a name without an ending), .parquet, .tfrecord or .zarr"
_READ = {suffix for one in FORMATS.values() for suffix in one.suffixes}


def main(arguments: list[str]) -> int:
    """Convert files; return 0, or 1 with the reason on stderr."""
    found = _parser().parse_args(arguments)
    started = time.perf_counter()
    written = None
    format = found.format or "npy"
    try:
        format = _target_format(found.target, found.format)
        ds = _opened(found)
        if found.memory:
            ds = ds.with_options(memory=found.memory)
        ds.write(
            found.target,
            format=format,
            shard_rows=found.shard_rows,
            overwrite=found.overwrite,
            engine=found.engine,
        )
        written = ds if format == "tfrecord" else from_files(found.target)
    except (PenstockError, OSError, ValueError, TypeError, ImportError) as error:
        print_error("convert", error, source_format="--source-format")
        return 1
    except KeyboardInterrupt:
        goes_on = "the same command goes on from what is finished" if format == "npy" else ""
        print(f"interrupted; {goes_on or 'nothing was written'}.", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - started
    if written.node.num_rows is not None:
        nbytes = written.node.num_rows * written.node.row_nbytes
        rate = format_nbytes(int(nbytes / max(seconds, 1e-9)))
        size = f"{format_nbytes(nbytes)} in {seconds:.1f} s ({rate}/s)"
        print(f"{written.node.num_rows} rows, {size}: {found.target}")
    return 0


def _target_format(target: str, format: str | None) -> Any:
    """Return what is written: what was asked for, or what the ending of the target says; they must agree."""
    suffix = PurePath(target).suffix.lower()
    by_name = _BY_SUFFIX.get(suffix)
    if format is None:
        if by_name is None:
            other = "" if suffix in _READ else "; or say which with --format"
            raise ValueError(
                f"OUT ends in {suffix!r}, which can't be written: write {_WRITTEN}{other}."
            )
        return by_name
    if suffix and by_name != format and (by_name is not None or suffix in _READ):
        raise ValueError(
            f"OUT ends in {suffix!r}, and --format {format} makes something else: choose another name."
        )
    return format


def _opened(found: argparse.Namespace) -> Dataset:
    """Return the rows of IN."""
    options = parse_storage_options(found.storage_options)
    names = found.fields.split(",") if found.fields else None
    if are_tfrecords(found.source, found.source_format):
        return _records(found.source, names, options)
    fields: Any = None if names is None else names[0] if len(names) == 1 else tuple(names)
    spec = None
    if found.dtype:
        spec = ArraySpec([int(size) for size in found.shape.split(",") if size], found.dtype)
    size = None
    if found.size:
        height, _, width = found.size.partition(",")
        size = (int(height), int(width or height))
    return from_files(
        found.source,
        fields,
        format=found.source_format,
        spec=spec,
        size=size,
        storage_options=options,
    )


def _records(source: str, names: list[str] | None, options: dict[str, Any]) -> Dataset:
    """Return the rows of TFRecords, with the features that their first records have."""
    if names is None:
        return from_tfrecord(source, storage_options=options)
    files = open_records(source, None, options)
    features = inferred(files, Sample(files, verify=True))
    check_names(str(files.locations[0]), names, features)
    chosen = tuple(replace(features[name], name=name) for name in names)
    nest = chosen[0] if len(chosen) == 1 else chosen
    return from_tfrecord(source, nest, storage_options=options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock convert",
        description="Write the rows of files anew. OUT appears when it is whole; after an interruption, the same "
        "command goes on from what is finished (.npy shards), or starts over.",
        epilog=f"IN is {', '.join(FORMATS)} or tfrecord; OUT is {_WRITTEN}.",
    )
    parser.add_argument("source", metavar="IN", help="a file, a folder, a glob or a URL")
    parser.add_argument(
        "target", metavar="OUT", help="what to make; its ending says in which format"
    )
    parser.add_argument(
        "--format",
        choices=sorted(WRITERS),
        help="what to write, if the ending of OUT does not tell",
    )
    parser.add_argument(
        "--source-format", metavar="FORMAT", help="what IN is, if its name can't tell"
    )
    parser.add_argument("--fields", metavar="A,B", help="which fields of IN, if not all")
    parser.add_argument("--dtype", help="of a raw file")
    parser.add_argument("--shape", default="", help="of a row of a raw file, such as 28,28")
    parser.add_argument("--size", metavar="H,W", help="what images are resized to")
    parser.add_argument(
        "--storage-options", metavar="JSON", default="{}", help="what fsspec needs to read a URL"
    )
    parser.add_argument(
        "--shard-rows", type=int, metavar="N", help="rows a file (default: 256 MB; of zarr 16 MB)"
    )
    parser.add_argument(
        "--memory", metavar="SIZE", help="the memory budget, such as 512MB (of each task, on Ray)"
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="local",
        help="who writes: this process, or tasks of Ray, on the cluster that is running here or else locally",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace OUT if penstock wrote it")
    return parser
