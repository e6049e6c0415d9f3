"""Which rows of a global batch one rank gets, and what they weigh."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Index

Uneven = Literal["drop", "pad"]


@dataclass(frozen=True, slots=True)
class Share:
    """One rank's part of every global batch of `batch_size` rows: rows rank, rank + world, and so on."""

    rank: int
    world: int
    batch_size: int
    replicas: int = 1
    """Devices of this rank, each of which gets as many rows of its part."""
    uneven: Uneven | None = None
    """What becomes of a global batch with fewer rows."""
    static: bool = False
    """Whether such a batch is filled up to `batch_size`."""

    @property
    def is_weighted(self) -> bool:
        """Whether each row has a weight: 0 for those that only fill a batch up."""
        return self.uneven == "pad"

    @property
    def local_size(self) -> int:
        """The rows that this rank gets of a whole global batch."""
        return self.batch_size // self.world

    def filled(self, num_rows: int) -> int:
        """Return how many rows a global batch of `num_rows` has once it is filled up."""
        if num_rows == self.batch_size or not num_rows:
            return num_rows
        if self.static:
            return self.batch_size
        step = self.world * self.replicas
        return -(-num_rows // step) * step

    def size(self, num_rows: int) -> int:
        """Return how many rows this rank gets of a global batch of `num_rows`."""
        return self.filled(num_rows) // self.world

    def places(self, num_rows: int) -> Index:
        """Return which rows of a global batch of `num_rows` this rank gets: past the end it begins again."""
        return np.arange(self.rank, self.filled(num_rows), self.world) % max(1, num_rows)

    def weights(self, num_rows: int) -> npt.NDArray[np.float32]:
        """Return what these rows weigh: the mean over all ranks is then that of the `num_rows` real rows."""
        filled = self.filled(num_rows)
        is_real = np.arange(self.rank, filled, self.world) < num_rows
        return np.where(is_real, np.float32(filled / max(1, num_rows)), np.float32(0))
