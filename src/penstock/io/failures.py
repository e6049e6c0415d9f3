"""Errors of the operating system turned into penstock's own, which name the file and the cure."""

import contextlib
import errno
from collections.abc import Iterator

from penstock.errors import (
    AccessError,
    DataError,
    DiskFullError,
    FileChangedError,
    MissingFileError,
    NotAFileError,
    PenstockError,
    ReadError,
    TargetExistsError,
    WriteError,
)


def write_failure(error: OSError, *, file: str) -> WriteError:
    """Return the WriteError that says what `error`, from writing `file`, means."""
    if isinstance(error, WriteError):
        return error
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
    if code == errno.ENOENT:
        cure = "Create its folder first."
        return WriteError("its folder does not exist", file=file, cure=cure, code=code)
    problem, cure = _WRITE_PROBLEMS.get(code or 0, ("", _FAILING))
    reason = error.strerror or str(error) or type(error).__name__
    return WriteError(problem or f"writing failed: {reason}", file=file, cure=cure, code=code)


_FAILING = "The disk or its connection may be failing: try again, or choose a path on another disk."
_WRITE_PROBLEMS = {
    errno.ENOTDIR: ("a part of this path is a file, not a folder", "Choose another path."),
    errno.EISDIR: ("this is a folder", "Remove it, or choose another path."),
    errno.ELOOP: ("the links in this path lead in a circle", "Choose another path."),
    errno.ENAMETOOLONG: ("this name is too long", "Choose a shorter one."),
    errno.EMFILE: ("too many files are open", "Raise the limit (ulimit -n)."),
    errno.ENFILE: ("too many files are open", "Close some of them, here or in other processes."),
    errno.EOPNOTSUPP: ("this file system can't do that", "Choose a path on a local disk."),
}


@contextlib.contextmanager
def write_errors(file: object) -> Iterator[None]:
    """Turn an OSError of the system, from writing `file`, into a WriteError; errors of ours pass unchanged."""
    try:
        yield
    except PenstockError:
        raise
    except OSError as error:
        raise write_failure(error, file=str(file)) from error


def read_failure(
    error: OSError, *, file: str, offset: int | None = None, listed: bool = False
) -> DataError:
    """Return the DataError that says what `error`, from opening or reading `file`, means.

    `listed`: the file was there when it was listed, so that a missing one has vanished since.
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
