"""What a framework must be able to do for data to stay on its device."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any


class Device(ABC):
    """Tables on a device: written a piece at a time, and gathered from by row number."""

    is_cpu: bool = False
    """Whether it is the CPU, which uses batches where they are, without a copy."""

    @abstractmethod
    def free_nbytes(self) -> int | None:
        """Return the bytes that an accelerator has left; None for a CPU, or where they are not known."""

    @abstractmethod
    def allocate(self, num_rows: int, like: Any) -> Any:
        """Return a table of `num_rows` rows like those of `like`: a leaf, or a table that the new one replaces."""

    @abstractmethod
    def write(self, table: Any, start: int, leaf: Any) -> Any:
        """Return the table with the rows of a leaf from `start` on; the leaf has been read by then."""

    @abstractmethod
    def gather(self, tables: Sequence[Any], rows: Any) -> list[Any]:
        """Return these rows of each table."""

    @abstractmethod
    def nbytes(self, leaf: Any) -> int:
        """Return the bytes of a leaf on the device."""
