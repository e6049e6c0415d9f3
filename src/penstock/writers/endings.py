"""Which format a path to be written says by its ending."""

from pathlib import PurePath
from typing import NamedTuple

from penstock.sources.files import FORMATS

_BY_SUFFIX = {
    "": "npy",
    ".parquet": "parquet",
    ".tfrecord": "tfrecord",
    ".tfrecords": "tfrecord",
    ".zarr": "zarr",
}
WRITTEN = "a folder of .npy shards (a name without an ending), .parquet, .tfrecord or .zarr"


class Ending(NamedTuple):
    """The ending of a path."""

    suffix: str
    format: str | None
    """The format that it names, if rows can be written in that."""
    is_known: bool
    """Whether it names a format that penstock reads or writes."""

    def contradicts(self, format: str) -> bool:
        """Whether it says that something else is there than this format: other programs would take it for that."""
        return bool(self.suffix) and self.is_known and self.format != format


def ending_of(target: str) -> Ending:
    """Return what the ending of a path says."""
    suffix = PurePath(target).suffix.lower()
    format = _BY_SUFFIX.get(suffix)
    is_read = any(suffix in one.suffixes for one in FORMATS.values())
    return Ending(suffix, format, is_read or format is not None)


def format_of(target: str, format: str | None) -> str:
    """Return what is written: what was asked for, else what the ending says, else `.npy` shards."""
    ending = ending_of(target)
    if format is None and ending.format is None and ending.is_known:
        raise ValueError(
            f"path ends in {ending.suffix!r}, which can't be written: write {WRITTEN}."
        )
    chosen = format or ending.format or "npy"
    if ending.contradicts(chosen):
        raise ValueError(
            f"path ends in {ending.suffix!r}, and format={chosen!r} makes something else: choose another name"
            + (f", or leave out format, which makes {ending.format}." if ending.format else ".")
        )
    return chosen
