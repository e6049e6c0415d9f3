"""`with` for whatever has to be closed."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Something with `close()`, which the end of a `with` calls."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Let go of what it has."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
