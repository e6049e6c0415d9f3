"""`penstock convert IN OUT`: files of one format, written as another."""

import argparse
import sys
import time

from penstock.cli import parse_storage_options, print_error
from penstock.errors import PenstockError
from penstock.makers import from_files
from penstock.memory import format_nbytes
from penstock.writers import ENGINES, WRITERS


def main(arguments: list[str]) -> int:
    """Convert files; return 0, or 1 with the reason on stderr."""
    found = _parser().parse_args(arguments)
    fields = tuple(found.fields.split(",")) if found.fields else None
    if fields is not None and len(fields) == 1:
        fields = fields[0]
    started = time.perf_counter()
    try:
        options = parse_storage_options(found.storage_options)
        ds = from_files(found.source, fields, format=found.source_format, storage_options=options)
        if found.memory:
            ds = ds.with_options(memory=found.memory)
        ds.write(
            found.target,
            format=found.format,
            shard_rows=found.shard_rows,
            overwrite=found.overwrite,
            engine=found.engine,
        )
        written = from_files(found.target) if found.format == "npy" else None
    except (PenstockError, OSError, ValueError, TypeError, ImportError) as error:
        print_error("convert", error, source_format="--source-format")
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from what is finished.", file=sys.stderr)
        return 130
    seconds = time.perf_counter() - started
    if written is not None:
        nbytes = len(written) * written.node.row_nbytes
        rate = format_nbytes(int(nbytes / max(seconds, 1e-9)))
        print(
            f"{len(written)} rows, {format_nbytes(nbytes)} in {seconds:.1f} s ({rate}/s): {found.target}"
        )
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="penstock convert",
        description="Write the rows of files anew, as shards that are read at full speed. "
        "After an interruption, the same command goes on from what is finished.",
    )
    parser.add_argument("source", metavar="IN", help="a file, a folder, a glob or a URL")
    parser.add_argument("target", metavar="OUT", help="the folder to make")
    parser.add_argument("--format", choices=sorted(WRITERS), default="npy", help="what to write")
    parser.add_argument(
        "--source-format", metavar="FORMAT", help="what IN is, if its name can't tell"
    )
    parser.add_argument("--fields", metavar="A,B", help="which fields of IN, if not all")
    parser.add_argument(
        "--storage-options", metavar="JSON", default="{}", help="what fsspec needs to read a URL"
    )
    parser.add_argument("--shard-rows", type=int, metavar="N", help="rows a file (default: 256 MB)")
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
