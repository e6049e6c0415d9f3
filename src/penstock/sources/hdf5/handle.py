"""Open HDF5 files, and what lies in them by path; links out of a file are not followed."""

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from penstock.core.optional import require
from penstock.errors import DataError, FieldError, FileError, PenstockError
from penstock.io.location import Location
from penstock.io.reader import Reader
from penstock.io.seekable import SeekableFile
from penstock.sources.reading.parts import check_names

Kept = TypeVar("Kept")
_MOST_READ = 1 << 24  # What HDF5 may read at once for itself: headers, indices, names.


class BoundedFile(SeekableFile):
    """A file for HDF5, which takes sizes in a file on trust: it allocates what they say, and reads it at once."""

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader)
        self.most = _MOST_READ

    def readinto(self, buffer: Any) -> int:
        """Fill as much of `buffer` as the file has, unless it is more than may be read at once."""
        wanted = memoryview(buffer).nbytes
        if wanted > self.most:
            raise DataError(
                f"claims {wanted} bytes at byte {self.tell()}, where there can be at most {self.most}",
                file=str(self._reader.location),
                offset=self.tell(),
                cure="It is damaged: copy it again from its original.",
            )
        return super().readinto(buffer)


class Handle:
    """An open file; HDF5 does one thing at a time, so a thread that reads holds `lock`."""

    def __init__(self, location: Location, reader: Reader) -> None:
        h5py = require("h5py", f"reading {location.suffix or '.h5'}", "hdf5")
        self.lock = threading.Lock()
        self.reader = reader
        self.stream = BoundedFile(reader)
        self._kept: dict[str, Any] = {}
        with naming(str(location)):
            # We retain chunks that two reads share. But without a chunk cache, HDF5 reads a chunk that is not packed
            # in pieces: one for each row, if chunks have fewer columns than rows have.
            self.file = h5py.File(self.stream, "r", rdcc_nbytes=1 << 20)

    def kept(self, name: str, make: Callable[[], Kept]) -> Kept:
        """Return what was made for this name, for as long as the file is open; the caller holds the lock."""
        if name not in self._kept:
            self._kept[name] = make()
        found: Kept = self._kept[name]
        return found

    def allow(self, nbytes: int) -> None:
        """Let HDF5 read up to `nbytes` at once, if that is more than it needs for itself; the caller holds the lock."""
        self.stream.most = max(_MOST_READ, nbytes)

    def close(self) -> None:
        """Close the file; its reader stays open, since it is not ours."""
        with self.lock:
            self._kept.clear()
            self.file.close()
            self.stream.close()


@contextlib.contextmanager
def naming(file: str, which: str = "") -> Iterator[None]:
    """Turn errors of h5py into ones that name the file; `which` names the part of it."""
    try:
        yield
    except (PenstockError, MemoryError):
        raise
    except Exception as error:  # h5py raises errors of many types for files that are damaged.
        raise _damaged(error, file, which) from error


def _damaged(error: Exception, file: str, which: str) -> FileError:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FileError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return DataError(
        f"{which}can't be read as HDF5: {error}",
        file=file,
        cure="It may be damaged or cut off: compare it with its original.",
    )


def names_in(file: Any) -> list[str]:
    """Return the paths of all datasets, and of links to other files; what has several paths counts once.

    Not by `visititems`: HDF5 makes a table of a group to sort it, and crashes if the group is damaged half way. As they
    lie in the file, names are handed out one by one.
    """
    h5py = require("h5py", "reading .h5", "hdf5")
    h5g, h5l = h5py.h5g, h5py.h5l
    found: list[str] = []
    links: list[str] = []
    seen = set()
    left = [("", h5l.TYPE_HARD)]  # Not by recursion: groups may be as deep as a file is long.
    while left:
        path, kind = left.pop()
        if kind == h5l.TYPE_EXTERNAL:
            links.append(path)
        if kind != h5l.TYPE_HARD:
            continue
        target = h5g.get_objinfo(file.id, path.encode("utf-8", "surrogateescape") or b".")
        if (target.fileno, target.objno) in seen:
            continue
        seen.add((target.fileno, target.objno))
        if target.type == h5g.DATASET:
            found.append(path)
        elif target.type == h5g.GROUP:
            left += sorted(_entries(file, path), reverse=True)
    return found + links


def _entries(file: Any, path: str) -> list[tuple[str, int]]:
    """Return the path and the kind of each link in a group."""
    h5 = require("h5py", "reading .h5", "hdf5").h5
    found: list[tuple[str, int]] = []

    def note(name: bytes, link: Any) -> None:
        text = name.decode("utf-8", "surrogateescape")
        found.append((f"{path}/{text}" if path else text, int(link.type)))

    group = file[path] if path else file
    group.id.links.iterate(note, info=True, order=h5.ITER_NATIVE)
    return found


def dataset_at(file: Any, name: str, place: str) -> Any:
    """Return the dataset of this path; `place` is the name of the file."""
    h5py = require("h5py", "reading .h5", "hdf5")
    one = file.get(name)
    # The root has no link.
    link = None if one == file else file.get(name, getlink=True)
    # HDF5 looks for the other file in this very one, since that is all it was given to read.
    if isinstance(link, h5py.ExternalLink) or (one is not None and _is_elsewhere(file, one)):
        which = f": {link.filename}" if isinstance(link, h5py.ExternalLink) else ""
        raise FieldError(
            f"{name!r} is a link into another file{which}",
            file=place,
            cure="Read that file itself, or open this one yourself: "
            f"ps.from_arrays(h5py.File(path)[{name!r}]).",
        )
    if isinstance(one, h5py.Dataset):
        return one
    if one is None and isinstance(link, h5py.SoftLink):
        raise FieldError(
            f"{name!r} is a link to {link.path!r}, which is not there",
            file=place,
            cure="Choose others with fields=(...).",
        )
    names = names_in(file)
    if isinstance(one, h5py.Group):
        inner = [repr(path) for path in names if f"/{path}".startswith(f"{one.name.rstrip('/')}/")]
        raise DataError(
            f"has no field {name!r}: it is a group, of {', '.join(inner) or 'no datasets'}",
            file=place,
            cure="Name datasets by their paths with fields=(...).",
        )
    check_names(place, [name], names if one is None else [*names, name])
    raise DataError(
        f"{name!r} is no dataset, but a {type(one).__name__}",
        file=place,
        cure="Choose others with fields=(...).",
    )


def _is_elsewhere(file: Any, one: Any) -> bool:
    # Not h5o.get_info, which has more to say, and looks through the whole index of a dataset for it.
    h5f = require("h5py", "reading .h5", "hdf5").h5f
    return bool(h5f.get_name(one.id) != h5f.get_name(file.id))
