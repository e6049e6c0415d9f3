"""Errors name the file, the place and the cure, and survive a trip between processes."""

import errno
import pickle

import pytest

from penstock import errors
from penstock.errors import DataError, FileError, MissingFileError
from penstock.io.failures import read_failure, write_failure

ALL = [
    kind
    for kind in vars(errors).values()
    if isinstance(kind, type) and issubclass(kind, FileError) and kind is not FileError
]


@pytest.mark.parametrize("kind", ALL)
def test_an_error_survives_pickling(kind):
    error = kind("it is bad", file="x.npy", offset=7, row=3, cure="Do better.")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error) == "x.npy, byte 7, row 3: it is bad. Do better."
    assert (again.file, again.offset, again.row, again.cure) == ("x.npy", 7, 3, "Do better.")
    if isinstance(error, OSError):
        assert again.errno == error.errno == kind.default_errno
        assert again.filename == "x.npy"


def test_the_usual_names_catch_them():
    assert issubclass(DataError, ValueError)
    assert issubclass(MissingFileError, FileNotFoundError)
    assert issubclass(errors.AccessError, PermissionError)
    assert issubclass(errors.NotAFileError, IsADirectoryError)
    assert issubclass(errors.ReadError, OSError)
    assert issubclass(errors.TargetExistsError, FileExistsError)
    # A full disk is not bad data: on_error="skip" must not step over it.
    assert not issubclass(errors.DiskFullError, DataError)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (errno.ENOENT, errors.MissingFileError, "there is no such file"),
        (errno.ENOTDIR, errors.MissingFileError, "there is no such file"),
        (errno.EACCES, errors.AccessError, "no permission"),
        (errno.EISDIR, errors.NotAFileError, "directory"),
        (errno.EMFILE, errors.ReadError, "ulimit -n"),
        (errno.ESTALE, errors.FileChangedError, "replaced"),
        (errno.EIO, errors.ReadError, "Input/output"),
    ],
)
def test_reading_failures_are_named(code, kind, message):
    error = read_failure(OSError(code, "Input/output error"), file="x.npy")
    assert type(error) is kind
    assert message in str(error)


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (errno.ENOSPC, errors.DiskFullError, "the disk is full. Free some space"),
        (errno.EDQUOT, errors.DiskFullError, "the disk is full"),
        (errno.ENOTEMPTY, errors.TargetExistsError, "exists already"),
        (errno.EROFS, errors.WriteError, "no permission to write"),
        (errno.ENOENT, errors.WriteError, "its folder does not exist"),
        (errno.EIO, errors.WriteError, "Input/output"),
    ],
)
def test_writing_failures_are_named(code, kind, message):
    error = write_failure(OSError(code, "Input/output error"), file="x.npy")
    assert type(error) is kind
    assert message in str(error)
    assert error.errno == code
