"""What proves that two runs have the same inputs: files, arrays in memory, and the user's functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

FUNCTION = "the function of"
"""How the name of a user's function begins. It may count its calls: within one run, it is still the same."""


class Unproven(Exception):
    """A value can't be compared with that of another run; the text says which: 'model, a Model of keras'."""

    def __init__(self, what: str, *, is_named: bool = False) -> None:
        super().__init__(what)
        self.is_named = is_named
        """Whether the text begins with the name of the variable."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One input of a chain, and what tells it from others."""

    what: str
    """The input, for messages: 'file x.npy', 'the function of map(double)'."""
    find: Callable[[], Any]
    """Returns what is compared, as JSON; raises Unproven where nothing can be. May read a whole array."""
    kind: Literal["file", "values", "code"]

    def found(self) -> tuple[Any, str]:
        """Return what is compared, and ''; or None, and why nothing can be."""
        try:
            return self.find(), ""
        except Unproven as error:
            return None, str(error)


def unproven(why: str) -> Callable[[], Any]:
    """Return a `find` for an input that can never be compared."""

    def find() -> Any:
        raise Unproven(why)

    return find
