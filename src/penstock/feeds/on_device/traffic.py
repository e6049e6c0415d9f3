"""Counters of what goes to a device: they prove that resident data goes there once."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.core.nest import Structure, builder, flatten


@dataclass(slots=True)
class Traffic:
    """Bytes of data that were copied to the device, and of row numbers that were sent there to gather by."""

    to_device_nbytes: int = 0
    index_nbytes: int = 0
    before_nbytes: int = 0
    """What was copied before the epoch that is read now."""
    most_nbytes: int = 0
    """The most that was copied for one epoch before that."""

    def begin_epoch(self) -> None:
        """Count for another epoch from now on."""
        self.most_nbytes = max(self.most_nbytes, self.epoch_nbytes)
        self.before_nbytes = self.to_device_nbytes

    @property
    def epoch_nbytes(self) -> int:
        """What was copied for the epoch that is read now."""
        return self.to_device_nbytes - self.before_nbytes


def counting(traffic: Traffic, structure: Structure) -> Callable[[Any], Any]:
    """Return a function that counts the bytes of a batch of NumPy arrays, and returns the batch."""
    leaves_of = _leaves_of(structure)

    def count(batch: Any) -> Any:
        for leaf in leaves_of(batch):
            traffic.to_device_nbytes += getattr(leaf, "nbytes", 0)  # A single text has none.
        return batch

    return count


def _leaves_of(structure: Structure) -> Callable[[Any], Iterable[Any]]:
    """Return a function that gives the leaves of a batch; most batches are plain tuples of arrays."""
    if structure == flatten(0)[1]:
        return lambda leaf: (leaf,)
    if builder(structure) is None:
        return tuple
    return lambda batch: flatten(batch)[0]
