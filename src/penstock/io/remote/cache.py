"""with_options(remote_cache=...): a part of remote files is kept on this machine, at most so many bytes of it.

Which blocks are kept is fixed: a hash of the file and the number of the block says how early it comes, and as many are
kept as there is room for. What was read last counts for nothing: an epoch reads every block once, in another order each
time, and whatever makes room for the newest blocks drops each just before it is wanted again.

The folder is shared by all processes of a user. They agree by a lock while they look at it, and by a note of each
process, which says how many bytes it will fill and of which files.
"""

import contextlib
import fcntl
import hashlib
import os
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.core import forking
from penstock.core.user_cache import user_cache
from penstock.io.leftovers import mark_lives, process_mark
from penstock.io.location import Location
from penstock.io.reader import Bytes
from penstock.io.remote.block_files import (
    BLOCK_NBYTES,
    FILLING,
    Parts,
    disk_nbytes,
    read_block,
    write_block,
)

_FOLDER = "remote-blocks"
_NOTES = "users"
_LOCK = "lock"
_KEY_NBYTES = 16
_ALL = 1 << 64
_STEPS = 40  # Of the search for how many blocks fit: the room that is left over is less than a block by then.
_STALE_SECONDS = (
    3600.0  # A block that is being written for so long is one that a killed process left.
)
_CHUNK = 1 << 20  # Blocks that are counted at a time: what that takes of memory.

Hashes = npt.NDArray[np.uint64]


def cache_root(scratch: str | None) -> Path:
    """Return the folder of all blocks: in the scratch folder if one was named, else in the user's cache directory."""
    if scratch is not None:
        return Path(scratch) / "penstock" / _FOLDER
    return user_cache(_FOLDER)


def key_of(location: Location) -> bytes:
    """Return what tells this version of a file from all others; holds no secret that its URL may have."""
    options = location.storage_options
    client = options.get("client_kwargs") or {}
    inner = client.get("endpoint_url") if isinstance(client, dict) else None
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    # The same bucket of another server is another bucket.
    where = [options.get("endpoint_url"), inner, *map(os.environ.get, names)]
    words = repr([location.url, location.size, location.etag, list(map(str, where))])
    return hashlib.blake2b(words.encode(), digest_size=_KEY_NBYTES).digest()


class Room(NamedTuple):
    """What room was made for: some files, in a folder, by this process."""

    pid: int
    root: Path
    name: str
    budget: int


@dataclass(frozen=True, slots=True)
class Share:
    """How much of some files is kept."""

    limit: int
    """Blocks whose hash is below this are kept."""
    kept_nbytes: int
    total_nbytes: int
    disk_nbytes: int
    """What the kept ones take on disk."""


def share_of(locations: Sequence[Location], budget: int) -> Share:
    """Return as many blocks of files as `budget` has room for, by the order of their hashes."""
    seeds = np.array([_seed(key_of(one)) for one in locations], np.uint64)
    sizes = np.array([one.size for one in locations], np.int64)
    total = int(sizes.sum())
    whole, all_of_it = _below(seeds, sizes, _ALL)
    if all_of_it <= budget:
        return Share(_ALL, whole, total, all_of_it)
    low, high = 0, _ALL
    for _ in range(_STEPS):
        middle = (low + high) // 2
        if _below(seeds, sizes, middle)[1] <= budget:
            low = middle
        else:
            high = middle
    return Share(low, _below(seeds, sizes, low)[0], total, _below(seeds, sizes, low)[1])


def _below(seeds: Hashes, sizes: npt.NDArray[np.int64], limit: int) -> tuple[int, int]:
    """Return the bytes of all blocks whose hash is below `limit`, of their data and on disk."""
    data = disk = 0
    counts = -(-sizes // BLOCK_NBYTES)
    ends = np.cumsum(counts)
    num_blocks = int(ends[-1]) if len(ends) else 0
    for first in range(0, num_blocks, _CHUNK):
        every = np.arange(first, min(first + _CHUNK, num_blocks))
        files = np.searchsorted(ends, every, side="right")
        numbers = every - (ends[files] - counts[files])
        kept = np.ones(len(every), np.bool_)
        if limit < _ALL:
            kept = _hashes(seeds[files], numbers.astype(np.uint64)) < np.uint64(limit)
        nbytes = np.minimum(BLOCK_NBYTES, sizes[files[kept]] - numbers[kept] * BLOCK_NBYTES)
        data += int(nbytes.sum())
        disk += sum(
            disk_nbytes(size) * count
            for size, count in zip(
                *map(np.ndarray.tolist, np.unique(nbytes, return_counts=True)), strict=True
            )
        )
    return data, disk


def _seed(key: bytes) -> int:
    return int.from_bytes(key[:8], "little")


def _hashes(seeds: Hashes, numbers: Hashes) -> Hashes:
    """Return splitmix64 of the seed plus the number."""
    with np.errstate(over="ignore"):
        mixed = seeds + (numbers + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        found: Hashes = mixed ^ (mixed >> np.uint64(31))
        return found


class RemoteCache:
    """Which blocks of some files are kept, and the folder that they are in."""

    def __init__(self, root: Path, share: Share, keys: frozenset[bytes]) -> None:
        self.root = root
        self.keys = keys
        """Those of all files that there is a share of; others are not kept."""
        self.share = share
        self.failure = ""
        """Why blocks could not be kept, if so: a full disk, say."""

    def of(self, location: Location) -> "CachedFile | None":
        """Return the blocks of one file; None if it can't be kept: no version of it is known, or it is a new one."""
        if not location.etag or not location.size:
            return None
        key = key_of(location)
        return CachedFile(self, location.size, key) if key in self.keys else None


class CachedFile:
    """The blocks of one file: which are kept, what is there, and what is being fetched by some thread."""

    def __init__(self, cache: RemoteCache, size: int, key: bytes) -> None:
        self._cache = cache
        self._size = size
        self._key = key
        self._seed = np.array([_seed(key)], np.uint64)

    def keeps(self, number: int) -> bool:
        """Return whether a block is one that is kept."""
        limit = self._cache.share.limit
        if limit >= _ALL:
            return True
        return bool(_hashes(self._seed, np.array([number], np.uint64))[0] < limit)

    def nbytes(self, number: int) -> int:
        """Return the bytes of a block."""
        return min(BLOCK_NBYTES, self._size - number * BLOCK_NBYTES)

    def _path(self, number: int) -> Path:
        name = self._key.hex()
        return self._cache.root / f"{(self._key[0] + number) % 256:02x}" / f"{name}-{number}"

    def read(self, number: int, parts: Parts) -> bool:
        """Fill parts of a block, if it is there and good."""
        return read_block(self._path(number), self._key, number, self.nbytes(number), parts)

    def write(self, number: int, data: Bytes) -> None:
        """Keep a block; if that fails, it is fetched again the next time."""
        if self._cache.failure:
            return
        path = self._path(number)
        try:
            if not path.exists():  # Another process may have been faster.
                write_block(path, self._key, number, data)
        except OSError as error:
            self._cache.failure = f"{error.strerror or error}"

    @contextlib.contextmanager
    def claimed(self, numbers: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
        """Give those blocks that this thread is to fetch, and those that another one of this process fetches now."""
        mine: list[int] = []
        others: list[int] = []
        with _claims_lock:
            for number in numbers:
                name = (self._key, number)
                if name in _claims:
                    others.append(number)
                else:
                    _claims[name] = threading.Event()
                    mine.append(number)
        try:
            yield mine, others
        finally:
            with _claims_lock:
                for number in mine:
                    _claims.pop((self._key, number)).set()

    def wait(self, number: int, seconds: float) -> bool:
        """Wait until no thread fetches a block; return whether that is so."""
        with _claims_lock:
            event = _claims.get((self._key, number))
        return event is None or event.wait(seconds)


_claims: dict[tuple[bytes, int], threading.Event] = {}
_claims_lock = forking.lock()
_opened: dict[Room, tuple[Share, set[int]]] = {}
"""What this process has made room for, and for whom: looking through the folder once is enough."""
_opened_lock = forking.rlock()


def open_cache(
    root: Path, locations: Sequence[Location], budget: int, owner: object
) -> RemoteCache:
    """Return the cache of some files, after making room for them: blocks that nobody uses go, the oldest first.

    The room is kept as long as `owner`, or another one of the same files, is there. What others keep, in this process
    or in another one that lives, is left alone: there is less room then.
    """
    known = [one for one in locations if one.etag and one.size]
    keys = sorted(key_of(one) for one in known)
    name = hashlib.blake2b(b"".join(keys), digest_size=8).hexdigest()
    with _opened_lock:
        room = Room(os.getpid(), root, name, budget)
        if room not in _opened:
            _opened[room] = _made_room(root, known, keys, name, budget), set()
        share, owners = _opened[room]
        if id(owner) not in owners:
            owners.add(id(owner))
            weakref.finalize(owner, _release, room, id(owner))
    cache = RemoteCache(root, share, frozenset(keys))
    if not root.is_dir():
        cache.failure = f"{root} can't be made"
    return cache


def _made_room(
    root: Path, known: Sequence[Location], keys: list[bytes], name: str, budget: int
) -> Share:
    try:
        for number in range(256):
            (root / f"{number:02x}").mkdir(parents=True, exist_ok=True, mode=0o700)
        (root / _NOTES).mkdir(exist_ok=True, mode=0o700)
        fd = os.open(root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return share_of(known, budget)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        taken, in_use = _taken_by_others(root, name)
        share = share_of(known, max(0, budget - taken))
        _write_note(root, name, share.disk_nbytes, keys)
        _clean(root, set(keys), in_use, share, budget - taken - share.disk_nbytes)
    except OSError:
        return share_of(known, budget)
    finally:
        os.close(fd)
    return share


def _write_note(root: Path, name: str, nbytes: int, keys: list[bytes]) -> None:
    """Tell others what is kept here; it holds until it is removed, or this process is gone."""
    path = root / _NOTES / f"{name}.{process_mark()}"
    path.write_bytes(nbytes.to_bytes(8, "little") + b"".join(keys))


def _release(room: Room, owner: int) -> None:
    """Leave the room to others, once nobody here has a use for it."""
    if room.pid != os.getpid():  # A forked child has no part in it.
        return
    with _opened_lock:
        owners = _opened[room][1] if room in _opened else set()
        owners.discard(owner)
        if room in _opened and not owners:
            del _opened[room]
            if any(one[:3] == room[:3] for one in _opened):
                return  # Of the same files, with another bound.
            with contextlib.suppress(OSError):
                (room.root / _NOTES / f"{room.name}.{process_mark()}").unlink()


def _taken_by_others(root: Path, name: str) -> tuple[int, set[bytes]]:
    """Return how many bytes other files take that living processes keep, and the keys of these."""
    taken: dict[str, int] = {}
    in_use: set[bytes] = set()
    for path in (root / _NOTES).iterdir():
        theirs, _, mark = path.name.partition(".")
        if not mark_lives(mark):
            path.unlink(missing_ok=True)
            continue
        text = path.read_bytes()
        keys = [text[at : at + _KEY_NBYTES] for at in range(8, len(text), _KEY_NBYTES)]
        in_use.update(keys)
        if theirs != name:  # Processes that keep the same files share the room for them.
            taken[theirs] = max(taken.get(theirs, 0), int.from_bytes(text[:8], "little"))
    return sum(taken.values()), in_use


def _clean(root: Path, own: set[bytes], in_use: set[bytes], share: Share, room: int) -> None:
    """Remove blocks that nobody keeps: ours that are not in our share, and others, oldest first, beyond `room`."""
    idle: list[tuple[float, int, str]] = []
    now = time.time()
    for folder in root.iterdir():
        if len(folder.name) != 2:
            continue
        with os.scandir(folder) as entries:
            for entry in entries:
                found = entry.stat(follow_symlinks=False)
                if entry.name.startswith(FILLING):
                    if now - found.st_mtime > _STALE_SECONDS:
                        Path(entry.path).unlink(missing_ok=True)
                    continue
                key, number = _parsed(entry.name)
                if key in own:
                    block = np.array([number], np.uint64)
                    seed = np.array([_seed(key)], np.uint64)
                    is_kept = share.limit >= _ALL or bool(_hashes(seed, block)[0] < share.limit)
                    if not is_kept and key not in in_use:
                        Path(entry.path).unlink(missing_ok=True)
                elif key not in in_use:
                    idle.append((found.st_mtime, found.st_blocks * 512, entry.path))
    excess = sum(nbytes for _, nbytes, _ in idle) - room
    for _, nbytes, path in sorted(idle):
        if excess <= 0:
            break
        Path(path).unlink(missing_ok=True)
        excess -= nbytes


def _parsed(name: str) -> tuple[bytes, int]:
    key, _, number = name.partition("-")
    with contextlib.suppress(ValueError):
        return bytes.fromhex(key), int(number)
    return b"", 0
