"""How many reads of a disk run at once: found by a short measurement, once a disk and process."""

import threading
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from time import perf_counter

import numpy as np

from penstock import _native
from penstock.io.local.bounce import BOUNCE
from penstock.io.reader import Bytes

DIRECT_NBYTES = 128 << 10
"""One read past the page cache; what is longer is read in several."""
MOST_AT_ONCE = BOUNCE.buffer_nbytes // DIRECT_NBYTES
# Of the best rate: more reads at once than give that only make each of them wait longer.
_ENOUGH = 0.95
# A trial: most of it then has as many under way as it is meant to.
_NUM_READS = 2 * MOST_AT_ONCE
_NUM_ROUNDS = 2  # The best counts: a disk has other users.
_MOST_SECONDS = 0.2  # A disk this slow is not measured to the end.
_AFTER_NBYTES = 64 << 20  # Read before it is worth measuring.
# Of a file: in a smaller one the same places would come again, from the disk's own cache.
_LEAST_NBYTES = 64 << 20


class Disk:
    """What is known of one disk: how fast it is with so many reads under way."""

    def __init__(self) -> None:
        self.rates: dict[int, float] = {}
        """Bytes a second, by how many reads were under way; empty until it was measured."""
        self.at_once = MOST_AT_ONCE
        self._lock = threading.Lock()
        self._is_measured = False
        self._num_read = 0

    def was_read(self, nbytes: int) -> bool:
        """Count what was read past the page cache; return whether it is time to measure."""
        if self._is_measured:
            return False
        self._num_read += nbytes  # Without a lock: it may as well be a little later.
        return self._num_read >= _AFTER_NBYTES

    def measure(self, fd: int, direct_fd: int, size: int) -> None:
        """Read a few dozen random places of a file, with ever fewer reads at once, unless that was done.

        A file that is too small for that tells nothing: another one may.
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
    """Return the one that has this number (`st_dev`)."""
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
                return {}  # What is wrong with the file is for who needs its rows to say.
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
