"""What commands read: PATH, and the flags that say how. All commands that read files have the same ones."""

import functools
import json
import math
import os
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import click

from penstock.core.lazy import lazy

if TYPE_CHECKING:
    from penstock import makers, memory
    from penstock.cli import features
    from penstock.core import spec
    from penstock.dataset import Dataset
    from penstock.sources.tfrecord import rows as records
    from penstock.sources.tfrecord.flow import Files
else:
    features = lazy("penstock.cli.features")
    makers = lazy("penstock.makers")
    memory = lazy("penstock.memory")
    records = lazy("penstock.sources.tfrecord.rows")
    spec = lazy("penstock.core.spec")

# Names with "tfrec" in them are of records, whatever their ending (train.tfrecord-00000-of-00008), but for these.
_NO_RECORDS = {
    ".arrow", ".bin", ".csv", ".h5", ".hdf5", ".idx", ".index", ".json", ".md", ".npy", ".npz", ".parquet", ".raw",
    ".tar", ".tfindex", ".tsv", ".txt", ".zarr",
}  # fmt: skip
_ARGUMENT = re.compile(r"(?:separator|decimal|size|format|spec) (?:and|is|must)\b")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.+)")


def parsed_size(text: Any) -> int:
    """Return a number of bytes, given as 512MB."""
    try:
        return memory.parse_nbytes(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


def parsed_numbers(text: Any) -> tuple[int, ...]:
    """Return whole numbers, given as 28,28."""
    if isinstance(text, tuple):
        return text
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"{text!r} must be whole numbers with a comma between them.")
    return tuple(map(int, parts))


def _parsed_pair(text: Any) -> tuple[int, ...]:
    """Return a height and a width, given as 224,224 or 224."""
    found = parsed_numbers(text)
    if len(found) not in (1, 2):
        raise click.BadParameter(f"{text!r} must be a height and a width, such as 224,224.")
    return found


def _parsed_object(text: Any) -> dict[str, Any]:
    """Return a JSON object; what goes wrong with it does not repeat it, since it may be a secret."""
    with suppress(ValueError):
        found = json.loads(text) if isinstance(text, str) else text
        if isinstance(found, dict):
            return found
    raise click.BadParameter("it must be a JSON object, such as '{\"anon\": true}'.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Files, and how they are read."""

    paths: tuple[str, ...]
    fields: str | None = None
    format: str | None = None
    dtype: str | None = None
    shape: tuple[int, ...] = ()
    size: tuple[int, ...] | None = None
    separator: str | None = None
    decimal: Any = None
    feature: tuple[str, ...] = ()
    raw: bool = False
    no_index: bool = False
    compression: Any = None
    skip_bad: bool = False
    no_verify: bool = False
    storage_options: dict[str, Any] | None = None
    memory: int | None = None
    threads: int | None = None

    @property
    def names(self) -> list[str] | None:
        """The fields that were asked for."""
        if self.fields is None:
            return None
        names = split_names(self.fields)
        if not names:
            raise click.UsageError("--fields names no field: give --fields A,B, or leave it out.")
        return names

    @property
    def by_name(self) -> dict[str, str]:
        """Files side by side, given as NAME=PATH; empty if PATH is no such thing."""
        found = [_NAMED.fullmatch(path) for path in self.paths if not _is_path(path)]
        pairs = [(one[1], one[2]) for one in found if one is not None]
        if not pairs:
            return {}
        if len(pairs) < len(self.paths):
            raise click.UsageError(
                f"files side by side are NAME=PATH, each of them, and {_listed(self.paths)} are not."
            )
        named = dict(pairs)
        if len(named) < len(pairs):
            raise click.UsageError(
                f"files side by side have names of their own, got {_listed(name for name, _ in pairs)}."
            )
        return named

    @property
    def is_tfrecord(self) -> bool:
        """Whether these are TFRecord files, by their names or by what the user said."""
        if self.format is not None:
            return self.format == "tfrecord"
        if self.feature or self.raw or self.no_index or self.compression:
            return True
        return any(map(_looks_like_tfrecord, self.paths))

    def open(self, nest: Any = None) -> "Dataset":
        """Return the rows. `nest` names the fields of a row, as `fields` of `from_files` does; by default all."""
        if nest is None and self.names is not None:
            nest = self.names[0] if len(self.names) == 1 else tuple(self.names)
        named = self.by_name
        if named:
            ds = self._side_by_side(named, nest)
        elif self.is_tfrecord:
            ds = self._records(nest)
        else:
            ds = self._files(self._given, nest)
        if self.skip_bad:
            ds = ds.with_options(on_error="skip")
        if self.memory is not None:
            ds = ds.with_options(memory=self.memory)
        return ds if self.threads is None else ds.with_options(threads=self.threads)

    @property
    def _given(self) -> Any:
        return self.paths[0] if len(self.paths) == 1 else list(self.paths)

    def _files(self, paths: Any, nest: Any) -> "Dataset":
        row = None
        if self.dtype is not None:
            row = spec.ArraySpec(self.shape, features.parsed_dtype("--dtype", self.dtype))
        elif self.shape:
            raise click.UsageError("--shape is of a raw file, which needs a --dtype as well.")
        size = None if self.size is None else (self.size[0], self.size[-1])
        try:
            return makers.from_files(
                paths,
                nest,
                format=self.format,  # type: ignore[arg-type]  # from_files says what it may be.
                spec=row,
                size=size,
                separator=self.separator,
                decimal=self.decimal,
                storage_options=self.storage_options,
                on_error="skip" if self.skip_bad else "raise",
                verify=not self.no_verify,
            )
        except ValueError as error:
            # What is wrong with an argument begins with its name; with a file, with that of the file.
            if _ARGUMENT.match(str(error)):
                raise click.UsageError(str(error)) from error
            raise

    def _side_by_side(self, named: dict[str, str], nest: Any) -> "Dataset":
        """Return the rows of files side by side; a name stands for all that its file has."""
        wanted = _leaves(nest) or list(named)
        for name in wanted:
            if name not in named:
                raise click.UsageError(f"there is no {name}=PATH, only {_listed(named)}.")
        each = {name: replace(self, paths=(named[name],), fields=None) for name in wanted}
        opened = {name: one.open() for name, one in each.items()}
        lengths = {name: ds.node.num_rows for name, ds in opened.items()}
        if len({length for length in lengths.values() if length is not None}) > 1:
            words = _listed(f"{count} in {name}={named[name]}" for name, count in lengths.items())
            raise click.ClickException(
                f"files side by side must have the same number of rows, got {words}."
            )
        return opened[nest] if isinstance(nest, str) else _zipped(nest, opened)

    def _records(self, nest: Any) -> "Dataset":
        """Return the rows of TFRecords, with the features that were given, or that their first records have."""
        chosen: Any = None
        if self.raw and nest is not None:
            raise click.UsageError("--raw has no fields: leave one of them out.")
        if not self.raw and (self.feature or nest is not None):
            known = features.parse(self.feature) or self._inferred()
            chosen = features.chosen(known, nest, self.paths[0]) if nest is not None else known
        return makers.from_tfrecord(
            self._given,
            chosen,
            compression=self.compression,
            verify=not self.no_verify,
            raw=self.raw,
            index=not self.no_index,
            storage_options=self.storage_options,
        )

    def records(self) -> "Files":
        """Return the TFRecord files."""
        return records.open_records(self._given, self.compression, self.storage_options)

    def _inferred(self) -> Any:
        files = self.records()
        return records.inferred(files, records.Sample(files, verify=not self.no_verify))


def _is_path(path: str) -> bool:
    """Return whether a PATH is one for sure, whatever stands before its "="."""
    return os.path.lexists(path) or "://" in path.partition("=")[0]


def _zipped(nest: Any, opened: "dict[str, Dataset]") -> "Dataset":
    if nest is None:
        return makers.zip(opened)
    if isinstance(nest, str):
        return opened[nest]
    if isinstance(nest, dict):
        return makers.zip({key: _zipped(value, opened) for key, value in nest.items()})
    return makers.zip(*[_zipped(one, opened) for one in nest])


def _leaves(nest: Any) -> list[str]:
    if nest is None or isinstance(nest, str):
        return [] if nest is None else [nest]
    parts = nest.values() if isinstance(nest, dict) else nest
    return [name for part in parts for name in _leaves(part)]


def split_names(text: str) -> list[str]:
    """Return names that have commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


def _listed(names: Any) -> str:
    return ", ".join(map(str, names))


def _looks_like_tfrecord(path: str) -> bool:
    names = [path]
    with suppress(OSError, ValueError):  # What is no folder that can be listed.
        names += os.listdir(path)  # noqa: PTH208  # names, not paths
    return any(
        "tfrec" in PurePath(name).name.lower() and PurePath(name).suffix.lower() not in _NO_RECORDS
        for name in names
    )


Function = Callable[..., Any]


def reads_files(
    *, format_flag: str = "--format", has_fields: bool = True
) -> Callable[[Function], Function]:
    """Return a decorator that gives a command the flags of `Source`; it is called with `source=`.

    The command has `paths` among its arguments. `has_fields=False` is for one that names fields by flags of its own.
    """
    text = "Which fields (arrays, columns, features), separated by commas; by default all."
    options = [
        *([click.option("--fields", metavar="A,B", help=text)] if has_fields else []),
        click.option(
            format_flag,
            "format",
            metavar="FORMAT",
            help="What the files are, if their names can't tell: npy, csv, tfrecord ...",
        ),
        click.option("--dtype", help="Of a raw file, such as float32."),
        click.option(
            "--shape",
            type=parsed_numbers,
            metavar="N,M",
            default="",
            help="Of a row of a raw file, such as 28,28.",
        ),
        click.option(
            "--size", type=_parsed_pair, metavar="H,W", help="What images are resized to."
        ),
        click.option(
            "--separator", help="Between the cells of CSV, if it can't be found in the first rows."
        ),
        click.option("--decimal", type=click.Choice([".", ","]), help="The decimal mark of CSV."),
        click.option(
            "--feature",
            multiple=True,
            metavar="NAME=KIND",
            help="Of TFRecords; once for each: label=int64, x=float32[100], words=int64[?], t=tensor:float32[3,3], "
            "i=image:224,224.",
        ),
        click.option("--raw", is_flag=True, help="TFRecords as bytes, without features."),
        click.option("--no-index", is_flag=True, help="Read TFRecords forward, without an index."),
        click.option(
            "--compression",
            type=click.Choice(["gzip", "zlib", "none"], case_sensitive=False),
            callback=_compression,
            help="Of TFRecords, if their first bytes can't tell.",
        ),
        click.option("--skip-bad", is_flag=True, help="Skip files and rows that can't be read."),
        click.option("--no-verify", is_flag=True, help="Compare no checksums."),
        click.option(
            "--storage-options",
            type=_parsed_object,
            metavar="JSON",
            help="What fsspec needs to read a URL.",
        ),
        click.option(
            "--memory",
            type=parsed_size,
            metavar="SIZE",
            help="The memory budget, such as 512MB; by default half of what is free.",
        ),
        click.option(
            "--threads",
            type=click.IntRange(min=1),
            metavar="N",
            help="How many threads read; by default found by itself.",
        ),
    ]
    own = {one.name for one in fields(Source)} - {"paths"}

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def called(paths: Any, **given: Any) -> Any:
            mine = {name: given.pop(name) for name in own if name in given}
            all_paths = (paths,) if isinstance(paths, str) else tuple(paths)
            return function(source=Source(paths=all_paths, **mine), **given)

        found: Function = called
        for option in reversed(options):
            found = option(found)
        return found

    return decorate


def _compression(_: click.Context, __: click.Parameter, value: str | None) -> str | None:
    return None if value is None else "" if value == "none" else value.upper()


def paths_argument(function: Function) -> Function:
    """Give a command its PATHs."""
    return click.argument("paths", nargs=-1, required=True, metavar="PATH...")(function)


def json_flag(function: Function) -> Function:
    """Give a command `--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")(
        function
    )


def print_json(value: Any) -> None:
    """Print a value as JSON; what JSON does not know is text."""
    click.echo(json.dumps(_finite(value), indent=2, default=str, allow_nan=False))


def _finite(value: Any) -> Any:
    """Return a value with null in place of numbers that JSON has not: nan and infinity."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value
