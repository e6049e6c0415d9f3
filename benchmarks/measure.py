"""What a contender measures inside its own process."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

Check = Callable[[Iterable], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """What one round gave: the value that is compared, and facts that bars may look at."""

    value: float
    facts: Mapping[str, float] = field(default_factory=dict)


def throughput(
    start: Callable[[], Iterable],
    *,
    num_rows: int,
    batch_size: int = 32,
    check: Check | None = None,
    scale: float = 1.0,
    at_least: float = 1.0,
    at_most: float | None = None,
    skip_rows: int = 0,
) -> Callable[[], Sample]:
    """Return a round that iterates over whole epochs and gives rows (times `scale`) a second.

    Args:
        start: Begins an epoch of `num_rows` rows in batches of `batch_size`.
        num_rows: Rows in an epoch.
        batch_size: Rows in a batch.
        check: Gets one epoch before any is timed, and raises if it is not what it should be. The
            epoch also warms the contender up.
        scale: What a row is worth, such as its bytes.
        at_least: A round repeats epochs until so many seconds have passed: as long as an epoch of
            the slow ones, or only the fast ones could find a quiet moment on a busy machine.
        at_most: A round stops in mid-epoch after so many seconds, for contenders that would
            otherwise take minutes. A rate does not depend on it.
        skip_rows: Rows to pass before the clock starts, for rates in steady state.
    """
    if check is not None:
        check(start())

    def one_round() -> Sample:
        rows, seconds = 0, 0.0
        while seconds < at_least:
            passed, took = _epoch(start, num_rows, batch_size, at_most, skip_rows)
            rows, seconds = rows + passed, seconds + took
        return Sample(scale * rows / seconds, {"peak_rss": float(peak_rss())})

    return one_round


def _epoch(
    start: Callable[[], Iterable],
    num_rows: int,
    batch_size: int,
    at_most: float | None,
    skip_rows: int,
) -> tuple[int, float]:
    began = time.perf_counter()
    batches = iter(start())
    if skip_rows:
        for _ in range(skip_rows // batch_size):
            next(batches)
        began = time.perf_counter()
    if at_most is None:
        # Nothing but the loop itself: at 5 million rows a second it is a tenth of a batch's time.
        for batch in batches:  # noqa: B007 (a user's loop holds on to its batch as well)
            pass
        return num_rows - skip_rows, time.perf_counter() - began
    rows = 0
    deadline = began + at_most
    for _ in batches:
        rows += batch_size
        if time.perf_counter() > deadline:
            break
    else:
        rows = num_rows - skip_rows
    took = time.perf_counter() - began
    close = getattr(batches, "close", None)
    if close is not None:
        close()
    return rows, took


def peak_rss() -> int:
    """Return the most bytes of memory this process has had resident."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def forget_pages(path: Path) -> None:
    """Drop a file from the page cache, so that the next read comes from the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


def device_bytes(who: int = resource.RUSAGE_SELF) -> int:
    """Return how many bytes this process (or its ended children) had fetched from a device."""
    return resource.getrusage(who).ru_inblock * 512


def must_be_cold(path: Path, fetched: int) -> None:
    """Raise if a read of a whole file was served from memory, which no comparison can use."""
    if fetched < 0.95 * path.stat().st_size:
        size = path.stat().st_size
        raise RuntimeError(f"not a cold read: {fetched:,} of {size:,} bytes came from the device")
