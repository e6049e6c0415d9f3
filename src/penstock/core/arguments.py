"""Checks of users' arguments; an error says the rule, the value that came, and the cure."""

import os
import re
from collections.abc import Iterable
from pathlib import Path
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


def at_home(path: str | os.PathLike[str]) -> Path:
    """Return a path with `~` and `~name` replaced; of a user that nobody knows, it is a plain name."""
    return Path(os.path.expanduser(path))  # noqa: PTH111  # Path.expanduser raises for such a user.


_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
"""How a URL begins, also one that a `Path` took a slash out of."""


def local_path(name: str, value: object) -> Path:
    """Return an absolute path; raise if it is none that a file can have."""
    text: object = os.fspath(value) if isinstance(value, str | os.PathLike) else value
    if not isinstance(text, str):
        raise TypeError(f"{name} must be a str or a path, got {value!r:.80}.")
    if "\0" in text:
        raise ValueError(f"{name} must not have a NUL character in it, got {text!r:.200}.")
    url = _URL.match(text)
    if url is not None:  # The rest may have a password in it.
        raise ValueError(f"{name} must be a folder on this machine, got a URL, {url[1]}://...")
    return at_home(text).absolute()
