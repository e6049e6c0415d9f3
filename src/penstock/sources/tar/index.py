"""The samples of tars: found by one scan of the headers, and saved in the user's cache directory."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.core.arrays import Index
from penstock.core.columns import Text
from penstock.errors import DataError
from penstock.io.formats.tar_members import read_members
from penstock.io.location import Location
from penstock.io.open import open_reader, read_start
from penstock.sources.reading.saved_indexes import Scan, each_in_parallel, load, save

_VERSION = 1
_SAVED_NBYTES = 1 << 20  # Smaller tars are scanned faster than an index of them is found.
_HEAD = (
    4  # Numbers at the front of a saved index: of members, samples, extensions, and bytes of text.
)
# As webdataset has it: the key goes up to the first dot of the last name. Of __meta__ and the like it takes no notice.
_NAME = re.compile(r"^((?:.*/|)[^./][^./]*)[.]([^/]+)$", re.DOTALL)
_META = re.compile(r"__[^/]*__($|/)")
_PACKED = {b"\x1f\x8b": "gunzip", b"BZ": "bunzip2", b"\xfd7": "unxz", b"\x28\xb5": "unzstd"}


@dataclass(frozen=True, slots=True)
class TarIndex:
    """The samples of one tar: members `starts[i]` to `starts[i + 1]` are those of sample i."""

    location: Location
    extensions: tuple[str, ...]
    offsets: Index
    """Where each member begins."""
    sizes: Index
    kinds: Index
    """The extension of each member, by its number."""
    starts: Index
    keys: Text
    damage: DataError | None = None
    """What is wrong with the tar after these members."""

    @property
    def num_samples(self) -> int:
        """How many samples there are."""
        return len(self.starts) - 1

    def to_numbers(self) -> Index:
        """Return all of it as numbers, to be saved."""
        text = "\0".join(self.extensions).encode("utf-8", "surrogateescape") + b"\0"
        text += self.keys.data[: self.keys.offsets[-1]].tobytes()
        head = [len(self.offsets), self.num_samples, len(self.extensions), len(text)]
        padded = np.frombuffer(text + bytes(-len(text) % 8), "<i8")
        parts = (self.offsets, self.sizes, self.kinds, self.starts, self.keys.offsets, padded)
        return np.concatenate([np.array(head, np.int64), *parts]).astype(np.int64)

    @staticmethod
    def from_numbers(location: Location, numbers: Index) -> "TarIndex | None":
        """Return the index that was saved, or None if it can't be one of this file."""
        if len(numbers) < _HEAD or (numbers[:_HEAD] < 0).any():
            return None
        members, samples, extensions, nbytes = numbers[:_HEAD].tolist()
        lengths = [members, members, members, samples + 1, samples + 1, -(-nbytes // 8)]
        if sum(lengths) != len(numbers) - _HEAD:
            return None
        offsets, sizes, kinds, starts, keys, text = np.split(
            numbers[_HEAD:], np.cumsum(lengths)[:-1]
        )
        data = text.astype("<i8").view(np.uint8)[:nbytes].tobytes()
        *names, rest = data.split(b"\0", extensions)
        sound = (
            len(names) == extensions
            and bool((sizes >= 0).all() and (offsets >= 0).all())
            and bool((offsets + sizes <= location.size).all())
            and bool(((kinds >= 0) & (kinds < extensions)).all())
            and _rises(starts, members)
            and _rises(keys, len(rest))
        )
        if not sound:
            return None
        words = tuple(name.decode("utf-8", "surrogateescape") for name in names)
        column = Text(np.frombuffer(rest, np.uint8), keys, str)
        return TarIndex(location, words, offsets, sizes, kinds, starts, column)


def _rises(edges: Index, end: int) -> bool:
    """Return whether places go from 0 to `end`, none of them before the one in front of it."""
    return bool(edges[0] == 0 and edges[-1] == end and (np.diff(edges) >= 0).all())


def tar_indexes(locations: Sequence[Location]) -> list[TarIndex | DataError]:
    """Return the samples of each tar, or why it has none; several are scanned side by side."""
    return each_in_parallel(locations, _index)


def _index(location: Location, all_files: Scan) -> TarIndex | DataError:
    try:
        return _loaded(location) or _scanned(location, all_files)
    except DataError as error:
        return error


def _loaded(location: Location) -> TarIndex | None:
    most = location.size // 64 + 64  # Numbers; an index that has more is not believed.
    saved = load("tar", location, (_VERSION, ""), lambda count: 1 <= count <= most)
    return None if saved is None else TarIndex.from_numbers(location, saved)


def _scanned(location: Location, all_files: Scan) -> TarIndex:
    _refuse_packed(location)
    found = _Samples()
    damage: DataError | None = None
    with open_reader(location, access="sequential") as reader:
        try:
            passed = 0
            for member in read_members(reader, all_files.stop.is_set):
                found.add(member.name, member.offset, member.size)
                all_files.passed(member.offset - passed)
                passed = member.offset
            all_files.passed(location.size - passed)
            reader.check_unchanged()
        except DataError as error:
            if type(error) is not DataError:
                raise  # The file can't be read at all.
            damage = error
    index = found.index(location, damage)
    if damage is None and location.size >= _SAVED_NBYTES:
        save("tar", location, (_VERSION, ""), index.to_numbers())
    return index


def _refuse_packed(location: Location) -> None:
    start = read_start(location, 6)
    tool = _PACKED.get(start[:2])
    if tool is not None:
        raise DataError(
            "a packed tar can only be read from its beginning to its end",
            file=str(location),
            cure=f"Unpack it once ({tool} {location.name}): the files in it are mostly packed by themselves.",
        )


class _Samples:
    """Collects the members of a tar, and cuts them into samples where the key changes."""

    def __init__(self) -> None:
        self._extensions: dict[str, int] = {}
        self._offsets: list[int] = []
        self._sizes: list[int] = []
        self._kinds: list[int] = []
        self._starts: list[int] = []
        self._keys: list[str] = []

    def add(self, raw: bytes, offset: int, size: int) -> None:
        """Take in a member; names that have no key, or no extension, are no data."""
        name = raw.decode("utf-8", "surrogateescape")
        while name.startswith("./"):
            name = name[2:].lstrip("/")
        match = _NAME.match(name)
        if match is None or _META.match(name):
            return
        key, extension = match[1], match[2].lower()
        if not self._keys or self._keys[-1] != key:
            self._keys.append(key)
            self._starts.append(len(self._offsets))
        self._offsets.append(offset)
        self._sizes.append(size)
        self._kinds.append(self._extensions.setdefault(extension, len(self._extensions)))

    def index(self, location: Location, damage: DataError | None) -> TarIndex:
        """Return what was collected."""
        # Names that are no UTF-8 are shown with question marks: text must be UTF-8.
        keys = [key.encode("utf-8", "replace") for key in self._keys]
        offsets = np.zeros(len(keys) + 1, np.int64)
        np.cumsum([len(key) for key in keys], out=offsets[1:])
        return TarIndex(
            location,
            tuple(self._extensions),
            np.array(self._offsets, np.int64),
            np.array(self._sizes, np.int64),
            np.array(self._kinds, np.int64),
            np.array([*self._starts, len(self._offsets)], np.int64),
            Text(np.frombuffer(b"".join(keys), np.uint8), offsets, str),
            damage,
        )
