"""How many reads of a disk run at once: measured briefly, once for each disk in each process."""

from collections import defaultdict
from collections.abc import Sequence
from random import Random
from time import perf_counter

import numpy as np

from penstock import _native
from penstock.core import forking
from penstock.io.local.bounce import BOUNCE
from penstock.io.reader import Bytes

DIRECT_NBYTES = 128 << 10
"""The size of one read past the page cache; longer ranges take several."""
MOST_AT_ONCE = BOUNCE.buffer_nbytes // DIRECT_NBYTES
# This share of the best rate is enough: with more reads at once, each of them only waits longer.
_ENOUGH = 0.95
# In one trial: so many that the intended number is under way during most of it.
_NUM_READS = 2 * MOST_AT_ONCE
_NUM_ROUNDS = 2  # The best counts: other programs use the disk, too.
_MOST_SECONDS = 0.2  # A measurement that takes longer ends early.
_AFTER_NBYTES = 64 << 20  # To be read before a measurement is worth its time.
# Smaller files are not measured: the same places would be read again, from the disk's own cache.
_LEAST_NBYTES = 64 << 20


class Disk:
    """What is known of one disk: how fast it is, by the number of reads under way."""

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}
        """Bytes a second, by how many reads were under way; empty until the disk was measured."""
        self.at_once = MOST_AT_ONCE
        self._lock = forking.lock()
        self._is_measured = False
        self._num_read = 0

    def was_read(self, nbytes: int) -> bool:
        """Count what was read past the page cache; return whether it is time to measure."""
        if self._is_measured:
            return False
        # Without a lock: a lost count only delays the measurement a little.
        self._num_read += nbytes
        return self._num_read >= _AFTER_NBYTES

    def measure(self, fd: int, direct_fd: int, size: int) -> None:
        """Measure the disk, once: read a few dozen random places of a file, with ever fewer reads at once.

        A file that is too small is not used: the disk is measured with a larger one, if one comes.
        """
        if size < _LEAST_NBYTES or not self._lock.acquire(blocking=False):
            return
        try:
            if not self._is_measured:
                self._is_measured = True
                self.rates = _measured(fd, direct_fd, size)
                self.at_once = fewest(self.rates)
        finally:
            self._lock.release()

    def describe(self) -> str:
        """Return how many reads run at once and why: '8 reads at once a thread (measured: ...)'."""
        text = f"{self.at_once} reads at once a thread"
        if not self.rates:
            return f"up to {text}"
        found = ", ".join(f"{n}: {rate / 1e9:.2f}" for n, rate in sorted(self.rates.items()))
        return f"{text} (measured, GB/s by reads at once: {found})"


_disks: defaultdict[int, Disk] = defaultdict(Disk)


def disk_of(device: int) -> Disk:
    """Return the disk that has this device number (`st_dev`)."""
    return _disks[device]


def fewest(rates: dict[int, float]) -> int:
    """Return the smallest number of reads at once that is about as fast as any.

    >>> fewest({2: 0.4e9, 4: 0.9e9, 8: 1.21e9, 16: 1.25e9})
    8
    """
    best = max(rates.values(), default=0.0)
    return min((n for n, rate in rates.items() if rate >= _ENOUGH * best), default=MOST_AT_ONCE)


def _measured(fd: int, direct_fd: int, size: int) -> dict[int, float]:
    random = Random(size)  # Any places will do.
    last = max(0, size - DIRECT_NBYTES) // DIRECT_NBYTES
    counts = [MOST_AT_ONCE >> power for power in range(MOST_AT_ONCE.bit_length() - 1)]
    rates: dict[int, float] = {}
    target = np.empty(min(size, DIRECT_NBYTES), np.uint8)
    started = perf_counter()
    bounce = BOUNCE.acquire()
    try:
        for at_once in counts * _NUM_ROUNDS:
            offsets = [DIRECT_NBYTES * random.randint(0, last) for _ in range(_NUM_READS)]
            rate = _rate(fd, direct_fd, offsets, target, bounce[: at_once * DIRECT_NBYTES])
            if rate is None:
                return {}  # An error of the file is raised when its rows are read.
            rates[at_once] = max(rates.get(at_once, 0.0), rate)
            if perf_counter() - started > _MOST_SECONDS:
                break
    finally:
        BOUNCE.release(bounce)
    return rates


def _rate(
    fd: int, direct_fd: int, offsets: Sequence[int], target: Bytes, bounce: Bytes
) -> float | None:
    started = perf_counter()
    is_direct, failure = _native.read_ranges(
        fd, direct_fd, list(offsets), [target] * len(offsets), bounce, drop=True
    )
    if failure is not None or not is_direct:
        return None
    return len(offsets) * target.size / (perf_counter() - started)
