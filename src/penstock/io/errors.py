"""What can go wrong with a file: each error names the file, the place in it, and the cure."""

import errno
from typing import Any


class FileError(Exception):
    """Base of the errors about one file, with its name, the place in it, and the cure.

    >>> print(DataError("the header is cut off", file="x.npy", offset=6, cure="Copy it again."))
    x.npy, byte 6: the header is cut off. Copy it again.
    """

    default_errno = 0  # of those that are an OSError too

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
        # OSError would write `[Errno 2]` before it.
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        state = (self.problem, self.file, self.offset, self.row, self.cure, self.code)
        return _rebuild, (type(self), *state)


def _set_errno(error: BaseException, code: int, file: str) -> None:
    if isinstance(error, OSError):  # for those who look there
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
    """A file cannot be read as what it should be; `on_error="skip"` may step over it."""


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
    """The storage failed to give the bytes: a broken disk, a lost connection."""

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


def write_failure(error: OSError, *, file: str) -> WriteError:
    """Return the WriteError that says what `error`, from writing `file`, means."""
    code = error.errno
    if code in (errno.ENOSPC, errno.EDQUOT):
        cure = "Free some space, or choose a path on another disk."
        return DiskFullError("the disk is full", file=file, cure=cure, code=code)
    if code == errno.EFBIG:
        cure = "Raise the limit (ulimit -f), or write smaller shards with shard_rows=..."
        return WriteError("files may not be larger than this", file=file, cure=cure, code=code)
    if code in (errno.EEXIST, errno.ENOTEMPTY):
        cure = "Remove it, or choose another path."
        return TargetExistsError("this exists already", file=file, cure=cure, code=code)
    if code in (errno.EACCES, errno.EPERM, errno.EROFS):
        cure = "Choose a path that this user may write to."
        return WriteError("no permission to write here", file=file, cure=cure, code=code)
    if code in (errno.ENOENT, errno.ENOTDIR):
        cure = "Create its folder first."
        return WriteError("its folder does not exist", file=file, cure=cure, code=code)
    reason = error.strerror or str(error) or type(error).__name__
    return WriteError(f"writing failed: {reason}", file=file, code=code)


def read_failure(
    error: OSError, *, file: str, offset: int | None = None, listed: bool = False
) -> DataError:
    """Return the DataError that says what `error`, from opening or reading `file`, means.

    `listed` says that the file was there before, so that a missing one has vanished since.
    """
    code = error.errno
    if code in (errno.ENOENT, errno.ENOTDIR):
        problem = "the file has vanished since it was listed" if listed else "there is no such file"
        return MissingFileError(problem, file=file, cure="Check the path.", code=code)
    if code in (errno.EACCES, errno.EPERM):
        cure = f"Let this user read it (chmod +r {file}, and +x on its folders)."
        return AccessError("no permission to read it", file=file, cure=cure, code=code)
    if code == errno.EISDIR:
        cure = "Name the files in it, or the folder where folders are taken."
        return NotAFileError("this is a directory", file=file, cure=cure)
    if code in (errno.EMFILE, errno.ENFILE):
        cure = "Raise the limit (ulimit -n), or use fewer, larger files."
        return ReadError("too many files are open", file=file, cure=cure, code=code)
    if code == errno.ESTALE:
        cure = "Read it again from a stable copy."
        return FileChangedError("the server has replaced the file", file=file, cure=cure)
    reason = error.strerror or str(error) or type(error).__name__
    cure = "The disk or its connection may be failing: copy the file elsewhere, and try again."
    return ReadError(f"reading failed: {reason}", file=file, offset=offset, cure=cure, code=code)
