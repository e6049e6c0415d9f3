"""The exceptions a user can meet, and `user_site`: the line of the user's code that a message names."""

import errno
import os
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

_PACKAGE = str(Path(__file__).resolve().parent) + os.sep
# Packages that call feeds from within `fit` and `predict`.
_FRAMEWORKS = frozenset({"keras", "tf_keras", "tensorflow", "torch", "lightning", "transformers"})


class PenstockError(Exception):
    """Base of every error that penstock itself raises."""


class BudgetError(PenstockError, MemoryError):
    """The work cannot be done within the memory budget; the message says which budget would do."""

    nbytes: int = 0
    """Bytes that were asked for at once, for rows that turned out longer than planned."""

    def __init__(self, message: str = "", *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final
        """Whether the budget that it names is that of a source which knows what its rows take, better than the plan."""


class FunctionError(PenstockError, RuntimeError):
    """A function of the user's failed; its own exception is the `__cause__`."""


class SpecMismatchError(PenstockError, ValueError):
    """A value does not have the shape or dtype that was declared for it."""


class RankMismatchError(PenstockError, ValueError):
    """A rank of a distributed training does not read what rank 0 reads; the message says in what they differ."""


class StateError(PenstockError, ValueError):
    """A saved state does not belong to this dataset."""


class StaleCacheError(PenstockError, ValueError):
    """A cache on disk was made from something else, or can't be compared; the message says what, and the cure."""


class RangeError(PenstockError, OverflowError):
    """A number is too large, or too small, for the dtype that must hold it."""


class LengthError(PenstockError, ValueError):
    """Datasets that must have the same number of rows do not."""


class StreamClosedError(PenstockError, RuntimeError):
    """The stream was closed while it was being read."""


class WorkersUnavailable(PenstockError, RuntimeError):
    """Worker processes cannot be started here; the message says why."""


class CannotPickle(PenstockError, TypeError):
    """A function cannot be sent to another process; the message says what in it is to blame."""


class RecordError(PenstockError, ValueError):
    """A single record can't be decoded: it is damaged, or not what was asked for.

    `kind` is what is wrong in one word, `offset` the byte of the record at which it was noticed.
    """

    def __init__(self, message: str, *, kind: str, offset: int) -> None:
        super().__init__(message)
        self.kind = kind
        self.offset = offset

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_record_error, (str(self), self.kind, self.offset)


def _rebuild_record_error(message: str, kind: str, offset: int) -> RecordError:
    return RecordError(message, kind=kind, offset=offset)


class FileError(PenstockError):
    """Base of the errors about one file, with its name, the place in it, and the cure.

    >>> print(DataError("the header is cut off", file="x.npy", offset=6, cure="Copy it again."))
    x.npy, byte 6: the header is cut off. Copy it again.
    """

    default_errno = 0  # for subclasses that are also an OSError

    def __init__(
        self,
        problem: str,
        *,
        file: str,
        offset: int | None = None,
        row: int | None = None,
        cure: str = "",
        code: int | None = None,
    ) -> None:
        place = "".join(
            f", {unit} {number}"
            for unit, number in (("byte", offset), ("row", row))
            if number is not None
        )
        super().__init__(f"{file}{place}: {problem.rstrip('.')}." + (f" {cure}" if cure else ""))
        self.problem = problem
        self.file = file
        self.offset = offset
        self.row = row
        self.cure = cure
        self.code = self.default_errno if code is None else code
        _set_errno(self, self.code, file)

    def __str__(self) -> str:
        # OSError would write `[Errno 2]` before the message.
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.problem, self.file, self.offset, self.row, self.cure, self.code)
        return _rebuild, (type(self), *state)


def _set_errno(error: BaseException, code: int, file: str) -> None:
    if isinstance(error, OSError):  # for code that looks at errno and filename
        error.errno = code
        error.filename = file


def _rebuild(
    cls: type[FileError],
    problem: str,
    file: str,
    offset: int | None,
    row: int | None,
    cure: str,
    code: int | None,
) -> FileError:
    return cls(problem, file=file, offset=offset, row=row, cure=cure, code=code)


class DataError(FileError, ValueError):
    """A file is bad: it cannot be read as what it should be. `on_error="skip"` may skip it."""


class FieldError(DataError):
    """A field of a file can't be read as rows, though the file is good; without `fields=` it is left out."""


class MissingFileError(DataError, FileNotFoundError):
    """There is no such file."""

    default_errno = errno.ENOENT


class AccessError(DataError, PermissionError):
    """The file is there, but this process may not read it."""

    default_errno = errno.EACCES


class NotAFileError(DataError, IsADirectoryError):
    """A file was asked for, and something else is there."""

    default_errno = errno.EISDIR


class FileChangedError(DataError):
    """The file is not the one that was listed: it shrank, grew, was rewritten or replaced."""


class ReadError(DataError, OSError):
    """The storage failed to give the bytes (a broken disk, a lost connection); never skipped."""

    default_errno = errno.EIO


class WriteError(FileError, OSError):
    """A file could not be written; never skipped."""

    default_errno = errno.EIO


class TargetExistsError(WriteError, FileExistsError):
    """Something is already where the file should go."""

    default_errno = errno.EEXIST


class DiskFullError(WriteError):
    """There is no room left where the file should go."""

    default_errno = errno.ENOSPC


class PenstockWarning(UserWarning):
    """Something is legal, but most likely not what was meant."""


def user_site() -> str:
    """Return `file.py:12` for the innermost frame outside penstock, or '' if there is none."""
    return next(user_sites(), "")


def user_sites() -> Iterator[str]:
    """Yield `file.py:12` for each frame outside penstock, the innermost first."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # What warnings and logging use.
    while frame is not None:
        filename = frame.f_code.co_filename
        if not filename.startswith(_PACKAGE):
            yield f"{Path(filename).name}:{frame.f_lineno}"
        frame = frame.f_back


def _is_within(frame: FrameType) -> bool:
    package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
    return frame.f_code.co_filename.startswith(_PACKAGE) or package in _FRAMEWORKS


def warn_user(text: str) -> None:
    """Warn, as of the innermost line that is the user's: Python shows a warning once for each line.

    What calls us may be Keras, in whose middle nobody would look for a feed of theirs.
    """
    level, frame = 1, sys._getframe(0)  # noqa: SLF001  # As above.
    while frame.f_back is not None and _is_within(frame):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, PenstockWarning, stacklevel=level)
