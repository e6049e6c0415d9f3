"""The command line: `penstock COMMAND`, one file a command."""

import argparse
import importlib
import json
import os
import re
import sys
from contextlib import suppress
from pathlib import PurePath
from typing import Any

COMMANDS = {
    "convert": "write files of one format as another, as shards that are read at full speed",
    "inspect": "show what is in files, and what a shuffled pass over them costs",
    "demo": "train on data larger than its memory budget, and show what it took",
}


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="penstock",
        description="Train models on arrays bigger than memory.",
        epilog="\n".join(f"  {name:8}  {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND")
    parser.add_argument(
        "rest", nargs=argparse.REMAINDER, metavar="...", help="see penstock COMMAND --help"
    )
    found = parser.parse_args(arguments)
    # Only the command that is run is imported: `demo` needs a framework, the others don't.
    command = importlib.import_module(f"penstock.cli.{found.command}")
    code: int = command.main(found.rest)
    return code


def are_tfrecords(path: str, format: str | None) -> bool:
    """Return whether a path, a glob or a folder names TFRecord files, by their names or by what the user said."""
    if format is not None:
        return format == "tfrecord"
    names = [path]
    with suppress(OSError):  # What is no folder that can be listed.
        names += os.listdir(path)  # noqa: PTH208  names, not paths
    return any(
        "tfrec" in PurePath(name).name.lower() and PurePath(name).suffix.lower() not in _NO_RECORDS
        for name in names
    )


def parse_storage_options(text: str) -> dict[str, Any]:
    """Return what `--storage-options` holds; the error does not repeat it, since it may be a secret."""
    try:
        options = json.loads(text)
    except ValueError:
        options = None
    if not isinstance(options, dict):
        raise ValueError("--storage-options must be a JSON object, such as '{\"anon\": true}'.")  # noqa: TRY004
    return options


def print_error(command: str, error: BaseException, *, source_format: str) -> None:
    """Print what went wrong to stderr, with the command's flags instead of the arguments of functions."""
    for text in (f"penstock {command}: {error}", *getattr(error, "__notes__", ())):
        for argument, flag in (*_FLAGS, (r"\bformat=(?=['.])", f"{source_format} ")):
            text = re.sub(argument, flag, text)
        print(text, file=sys.stderr)


# Names with "tfrec" in them are of records, whatever their ending (train.tfrecord-00000-of-00008), but for these.
_NO_RECORDS = {
    ".arrow", ".bin", ".csv", ".h5", ".hdf5", ".idx", ".index", ".json", ".md", ".npy", ".npz", ".parquet", ".raw",
    ".tar", ".tfindex", ".tsv", ".txt", ".zarr",
}  # fmt: skip
# What messages say to programs, and what the command line has for it.
_FLAGS = (
    (r"\bwrite overwrite=True", "give --overwrite"),
    (r"\boverwrite=True", "--overwrite"),
    (r"\bWrite with_options\(memory=([^)]*)\)", r"Give --memory \1"),
    (r"\bshard_rows=(\.\.\.|\d+)", "--shard-rows"),
    (r"\bfields=\(\.\.\.\)", "--fields A,B"),
    (r"\bstorage_options=", "--storage-options "),
)
