"""The measurements of `penstock bench`: the disk alone, and penstock, each cold and warm."""

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from penstock.cli.facts import locations_of
from penstock.cli.passes import batched
from penstock.core.progress import begin
from penstock.core.system import drop_from_page_cache, sync_data
from penstock.dataset import Dataset
from penstock.io.local.page_cache import memory_limit
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.memory import allocate_plain, format_nbytes

_PIECE_NBYTES = 4 << 20
_IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs", "overlay-on-tmpfs")
_SHORT = 0.05  # Seconds: what takes less says nothing of how fast a disk is.
_NEAR = 0.8  # A rate of this share of another is as good as that.


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast something was."""

    what: str
    is_cold: bool
    seconds: float
    stored_nbytes: int
    """Bytes of the files that were read, or that the rows take there."""
    num_rows: int | None = None
    bottleneck: str = ""

    @property
    def per_second(self) -> float:
        """Bytes of the files a second."""
        return self.stored_nbytes / max(self.seconds, 1e-9)

    @property
    def rows_per_second(self) -> float | None:
        """Rows a second, of penstock."""
        return None if self.num_rows is None else self.num_rows / max(self.seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Measurement:
    """All that was measured; `print` it, or look at its fields."""

    source: str
    num_files: int
    stored_nbytes: int
    rates: tuple[Rate, ...]
    verdict: str
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        rates = [
            {
                **asdict(one),
                "nbytes_per_second": one.per_second,
                "rows_per_second": one.rows_per_second,
            }
            for one in self.rates
        ]
        return {**asdict(self), "rates": rates}

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        stored = format_nbytes(self.stored_nbytes)
        yield f"{self.num_files} files, {stored}: {self.source}"
        for one in self.rates:
            rows = "" if one.rows_per_second is None else f"  {one.rows_per_second:,.0f} rows/s"
            heat = "cold" if one.is_cold else "warm"
            part = 100 * one.stored_nbytes / max(1, self.stored_nbytes)
            much = "" if part > 99.5 else f" ({part:.0f} % of the files)"
            speed = f"{format_nbytes(one.per_second)}/s"
            yield f"  {one.what:<24} {heat}  {speed:>9}{rows}{much}"
        yield from (f"note: {one}" for one in self.notes)
        yield self.verdict


def measure(ds: Dataset, batch_size: int, seconds: float) -> Measurement:
    """Read files for `seconds` at most, six times, each in another way."""
    locations = locations_of(ds.node)
    files = [file for one in locations for file in _files_of(one)]
    stored = sum(size for _, size in files)
    notes = []
    is_remote = any(one.is_remote for one in locations)
    can_be_cold = not is_remote and not any(_is_in_memory(path) for path, _ in files[:1])
    if is_remote:
        notes.append(
            "the files are behind a URL: warm means read again, through whatever keeps them"
        )
    elif not can_be_cold:
        notes.append("the files are on a file system in memory: nothing is cold there")
    if stored > memory_limit() // 2:
        notes.append(
            "the files are larger than half of memory: the page cache does not keep all of them"
        )
    rates = []
    for is_cold in (True, False):
        if is_cold and not is_remote:
            _drop(files)
        rates.append(_read_all(locations, files, is_cold, seconds, is_remote=is_remote))
    plain = batched(ds, batch_size)
    shuffled = batched(ds.shuffle(), batch_size)
    for one in (plain, shuffled):  # What is loaded and compiled at the first use counts for nobody.
        with one.stream() as stream:
            next(stream, None)
    for what, one in (("penstock, in order", plain), ("penstock, shuffled", shuffled)):
        for is_cold in (True, False):
            if is_cold and not is_remote:
                _drop(files)
            rates.append(_read_rows(what, one, stored, is_cold, seconds, num_rows=ds.node.num_rows))
    found = tuple(rates)
    verdict = f"{_verdict(found)} {_step_words(found, batch_size)}".strip()
    return Measurement(ds.node.describe(), len(files), stored, found, verdict, tuple(notes))


def _files_of(location: Location) -> Iterator[tuple[str, int]]:
    """Yield each file of a location and its size: of a Zarr store, all that are in its folder."""
    if location.is_directory and not location.is_remote:
        for one in sorted(Path(location.url).rglob("*")):
            if one.is_file():
                yield str(one), one.stat().st_size
    else:
        yield location.url, location.size


def _is_in_memory(path: str) -> bool:
    """Return whether a file is on a file system that has no disk."""
    best = ("", "")
    with contextlib.suppress(OSError):
        for line in Path("/proc/mounts").read_text().splitlines():
            _, folder, kind, *_ = line.split()
            inside = path == folder or path.startswith(folder.rstrip("/") + "/")
            if inside and len(folder) >= len(best[0]):
                best = folder, kind
    return best[1] in _IN_MEMORY


def _drop(files: list[tuple[str, int]]) -> None:
    """Ask the system to forget what it has read of files; pages that are not written yet stay."""
    for path, _ in files:
        with contextlib.suppress(OSError):
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                sync_data(file)
                drop_from_page_cache(file)
            finally:
                os.close(file)


def _read_all(
    locations: list[Location],
    files: list[tuple[str, int]],
    is_cold: bool,  # noqa: FBT001  # It is a fact of the measurement, not a switch.
    seconds: float,
    *,
    is_remote: bool,
) -> Rate:
    """Read files one after the other, as they lie there: through the page cache, 4 MB at a time."""
    total = sum(size for _, size in files)
    buffer = allocate_plain(_PIECE_NBYTES)
    done, started = 0, time.perf_counter()
    with begin("reading", total=total, unit="bytes") as step:
        for piece in _remote_pieces(locations, buffer) if is_remote else _pieces(files, buffer):
            done += piece
            step.advance(piece)
            if time.perf_counter() - started > seconds:
                break
    what = "reading alone" if not is_remote else "fetching alone"
    return Rate(what, is_cold, time.perf_counter() - started, done)


def _pieces(files: list[tuple[str, int]], buffer: Any) -> Iterator[int]:
    for path, _ in files:
        with open(path, "rb", buffering=0) as file:  # noqa: PTH123  # No buffer in between.
            while count := file.readinto(buffer):
                yield count


def _remote_pieces(locations: list[Location], buffer: Any) -> Iterator[int]:
    for location in locations:
        with open_reader(location, access="sequential") as reader:
            for offset in range(0, location.size, len(buffer)):
                piece = buffer[: location.size - offset]
                reader.read_into(piece, offset)
                yield len(piece)


def _read_rows(
    what: str,
    ds: Dataset,
    stored: int,
    is_cold: bool,  # noqa: FBT001  # As above.
    seconds: float,
    *,
    num_rows: int | None,
) -> Rate:
    """Read batches and do nothing with them, from the opening of the stream on."""
    started = time.perf_counter()
    with begin(what, total=ds.node.num_rows, unit="batches") as step, ds.stream() as stream:
        for _ in stream:
            step.advance(1)
            if time.perf_counter() - started > seconds:
                break
        took = time.perf_counter() - started
        report = stream.report()
    rows = report.num_rows
    if num_rows is None:
        # How many there are in all was not known before: after the end of the data, it is all of them.
        part = stored if report.state == "ended" else min(stored, report.read_nbytes)
    else:
        part = int(stored * rows / max(1, num_rows))
    return Rate(what, is_cold, took, part, rows, report.bottleneck)


def _verdict(rates: tuple[Rate, ...]) -> str:
    """Return what stands between the disk and the rows, in words."""
    alone = {one.is_cold: one for one in rates if one.num_rows is None}
    shuffled = {one.is_cold: one for one in rates if "shuffled" in one.what}
    ordered = {one.is_cold: one for one in rates if "in order" in one.what}
    if not shuffled or not shuffled[True].num_rows:
        return "there are no rows to read."
    if shuffled[True].seconds < _SHORT:
        took = 1000 * shuffled[True].seconds
        return f"a shuffled pass takes {took:.0f} ms: there is so little that to open the files counts most."
    share = shuffled[True].per_second / max(1.0, alone[True].per_second)
    begins = f"shuffled, penstock gets {100 * share:.0f} % of what the disk can do"
    if share >= _NEAR:
        return f"{begins}: the disk is the bottleneck; a faster one, or files that take less room, would help."
    if shuffled[False].per_second >= shuffled[True].per_second / _NEAR:
        warm = f"what the page cache holds comes at {format_nbytes(shuffled[False].per_second)}/s"
        if ordered[True].per_second >= shuffled[True].per_second / _NEAR:
            return f"{begins}: reads in random order are the bottleneck; {warm}."
        return f"{begins}: the way from the disk is the bottleneck; {warm}."
    slow = shuffled[False].per_second / max(1.0, alone[False].per_second)
    where = shuffled[False].bottleneck or "the work on rows"
    return (
        f"{begins}, and {100 * slow:.0f} % of what memory can: not the disk but {where} is the bottleneck. Rows that "
        "are unpacked or parsed are read faster once they are stored as they are: penstock convert PATH OUT."
    )


def _step_words(rates: tuple[Rate, ...], batch_size: int) -> str:
    """Return how long a step of training has to take so that it never waits."""
    slowest = next((one for one in rates if "shuffled" in one.what and one.is_cold), None)
    if slowest is None or not slowest.rows_per_second:
        return ""
    micros = 1e6 * batch_size / slowest.rows_per_second
    shown = f"{micros:.0f} us" if micros < 1000 else f"{micros / 1000:.1f} ms"
    return f"A training step that takes {shown} or more for its {batch_size} rows does not wait for data."
