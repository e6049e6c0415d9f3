"""The base of classes with `close()`, to be used in a `with`."""

from abc import ABC, abstractmethod
from typing import Self


class Closing(ABC):
    """Something with `close()`, which the end of a `with` calls."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Release what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
