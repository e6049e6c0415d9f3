"""Checks of users' arguments; an error says the rule, the value that came, and the cure."""

from collections.abc import Iterable
from typing import Any


def whole_number(name: str, value: Any, *, least: int, most: int | None = None) -> int:
    """Return `value` as an int; raise if it is not a whole number from `least` to `most`."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be a whole number, got {value!r}.")
    number = int(value.__index__())
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}.")
    if most is not None and number > most:
        raise ValueError(f"{name} must be at most {most}, got {number}.")
    return number


def one_of(name: str, value: Any, choices: Iterable[str]) -> None:
    """Raise unless `value` is one of the choices."""
    known = list(choices)
    if value not in known:
        shown = " or ".join(f'"{one}"' for one in known)
        if len(known) > 2:
            shown = f"one of {', '.join(known)}"
        raise ValueError(f"{name} must be {shown}, got {value!r}.")
