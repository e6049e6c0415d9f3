"""The exceptions a user can meet, and the place in their code that a message names."""

import os
import sys
from pathlib import Path
from types import FrameType

_PACKAGE = str(Path(__file__).resolve().parent) + os.sep


class PenstockError(Exception):
    """Base of every error that penstock raises on its own account."""


class BudgetError(PenstockError, MemoryError):
    """The work cannot be done within the memory budget; the message says which one would do."""


class FunctionError(PenstockError, RuntimeError):
    """A function of the user's failed; its own exception is the `__cause__`."""


class SpecMismatchError(PenstockError, ValueError):
    """A value does not have the shape or dtype that was declared for it."""


class StateError(PenstockError, ValueError):
    """A saved state does not belong to this dataset."""


class StaleCacheError(PenstockError, ValueError):
    """A cache on disk was made from something else; the message says what, and how to clear it."""


class LengthError(PenstockError, ValueError):
    """Datasets that must have the same number of rows do not."""


class StreamClosedError(PenstockError, RuntimeError):
    """The stream was closed while it was read from."""


class PenstockWarning(UserWarning):
    """Something is legal, but most likely not what was meant."""


def user_site() -> str:
    """Return `file.py:12` for the innermost frame outside penstock, or '' if there is none."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # What warnings and logging use.
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_PACKAGE):
            return f"{Path(filename).name}:{frame.f_lineno}"
        frame = frame.f_back
    return ""
