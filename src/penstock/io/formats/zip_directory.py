"""The directory of a zip archive, read without trust: nothing is extracted, every claim is checked.

Every size and offset is compared with the file before it is used. What no good archive has is refused:
encryption, parts on other disks, names that climb out of a folder, members that share bytes.
"""

import itertools
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.errors import DataError
from penstock.io.reader import Range, Reader, read_bytes

STORED, DEFLATED = 0, 8
# Both bound what is held in memory: at most some 60 MB, for an archive of 100,000 arrays.
MAX_DIRECTORY = 16 << 20
MAX_MEMBERS = 100_000
# The most that deflate can unpack from a byte: 258 bytes come from 2 bits.
MAX_RATIO = 1032

_END = struct.Struct("<4s4H2IH")
_END64_LOCATOR = struct.Struct("<4sIQI")
_END64 = struct.Struct("<4sQ2H2I4Q")
_ENTRY = struct.Struct("<4s6H3I5H2I")
_LOCAL = struct.Struct("<4s5H3I2H")
_MAX_COMMENT = 0xFFFF
_FULL16, _FULL32 = 0xFFFF, 0xFFFFFFFF  # these values mean: see the zip64 record
_ENCRYPTED = 0x0001 | 0x0040 | 0x2000
_UTF8 = 0x0800
_METHODS = {
    1: "shrink",
    6: "implode",
    9: "deflate64",
    12: "bzip2",
    14: "lzma",
    93: "zstd",
    95: "xz",
}
_CURE = "Write the archive again with np.savez, or copy it again from its original."


@dataclass(frozen=True, slots=True)
class Member:
    """One file in an archive: where its bytes are, and how many.

    Args:
        name: Its name in the archive, such as `data.npy`.
        method: STORED or DEFLATED.
        data_offset: Where its stored bytes begin, from the beginning of the archive.
        compressed_nbytes: How many bytes are stored.
        nbytes: How many bytes it has once unpacked: a claim, but not more than deflate could store.
        crc: CRC-32 of the unpacked bytes.
    """

    name: str
    method: int
    data_offset: int
    compressed_nbytes: int
    nbytes: int
    crc: int

    @property
    def field(self) -> str:
        """The name that NumPy knows it by: `data` for `data.npy`."""
        return self.name.removesuffix(".npy")

    @property
    def is_deflated(self) -> bool:
        """Whether it can only be read forward."""
        return self.method == DEFLATED


@dataclass(frozen=True, slots=True)
class _Directory:
    start: int
    data: bytes
    num_entries: int


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    raw_name: bytes
    method: int
    crc: int
    compressed_nbytes: int
    nbytes: int
    header_offset: int
    place: int  # of this entry in the file, for messages


def read_members(reader: Reader) -> list[Member]:
    """Return the members of a zip archive in the order of its directory.

    Reads the directory and the header before each member, and holds nothing else in memory.
    """
    directory = _find_directory(reader)
    entries = list(_entries(reader, directory))
    _refuse_duplicates(reader, entries)
    members = _locate(reader, entries, directory.start)
    return [member for member in members if not member.name.endswith("/")]


def _wrong(reader: Reader, problem: str, offset: int, cure: str = _CURE) -> DataError:
    return DataError(problem, file=str(reader.location), offset=offset, cure=cure)


def _find_directory(reader: Reader) -> _Directory:
    tail_nbytes = min(reader.size, _END.size + _MAX_COMMENT)
    tail_start = reader.size - tail_nbytes
    tail = read_bytes(reader, tail_start, tail_nbytes)
    at = tail.rfind(b"PK\x05\x06")
    while at >= 0:
        # The archive's comment may hold the signature by chance: the true record ends where the file does.
        if at + _END.size <= len(tail):
            end = _END.unpack_from(tail, at)
            if at + _END.size + end[7] == len(tail):
                break
        at = tail.rfind(b"PK\x05\x06", 0, at)
    else:
        raise _wrong(
            reader, "not a zip archive, or cut off: its end record is missing", reader.size
        )
    _, disk, first_disk, here, total, nbytes, start, _ = end
    place = tail_start + at
    if {_FULL16, _FULL32} & {disk, first_disk, here, total, nbytes, start}:
        # A field may really have this value: it points to a zip64 record only if there is one.
        zip64 = _find_zip64(reader, place)
        if zip64 is not None:
            place, disk, first_disk, here, total, nbytes, start = zip64
    if disk or first_disk or here != total:
        raise _wrong(reader, "the archive continues on other disks", place)
    if start + nbytes > place:
        problem = f"the directory claims {nbytes} bytes from byte {start} on, past its end record"
        raise _wrong(reader, problem, place)
    if total > nbytes // _ENTRY.size:
        raise _wrong(reader, f"the directory claims {total} members in {nbytes} bytes", place)
    if nbytes > MAX_DIRECTORY or total > MAX_MEMBERS:
        problem = f"the archive has {total} members, with names of {nbytes} bytes"
        cure = f"At most {MAX_MEMBERS} members are read: use fewer, larger arrays."
        raise _wrong(reader, problem, place, cure)
    if start >= tail_start:  # the tail has the directory already, which saves a request to a server
        return _Directory(start, tail[start - tail_start :][:nbytes], total)
    return _Directory(start, read_bytes(reader, start, nbytes), total)


def _find_zip64(reader: Reader, end: int) -> tuple[int, ...] | None:
    place = end - _END64_LOCATOR.size
    if place < 0:
        return None
    locator = read_bytes(reader, place, _END64_LOCATOR.size)
    signature, disk, record, num_disks = _END64_LOCATOR.unpack(locator)
    if signature != b"PK\x06\x07":
        return None
    if disk or num_disks > 1:
        raise _wrong(reader, "the archive continues on other disks", place)
    if record + _END64.size > place:
        raise _wrong(reader, f"its zip64 record cannot be at byte {record}", place)
    fields = _END64.unpack(read_bytes(reader, record, _END64.size))
    if fields[0] != b"PK\x06\x06":
        raise _wrong(reader, "its zip64 record is damaged", record)
    return record, *fields[4:]


def _entries(reader: Reader, directory: _Directory) -> Iterator[_Entry]:
    data, at = directory.data, 0
    for _ in range(directory.num_entries):
        place = directory.start + at
        if at + _ENTRY.size > len(data):
            raise _wrong(reader, "the directory is shorter than it claims", place)
        fields = _ENTRY.unpack_from(data, at)
        _, _, _, flags, method, _, _, crc, compressed, nbytes, *rest = fields
        name_nbytes, extra_nbytes, comment_nbytes, disk, _, _, header_offset = rest
        if fields[0] != b"PK\x01\x02":
            raise _wrong(reader, "the directory is damaged", place)
        at += _ENTRY.size
        stop = at + name_nbytes + extra_nbytes
        if stop + comment_nbytes > len(data):
            raise _wrong(reader, "the directory is shorter than it claims", place)
        raw_name = data[at : at + name_nbytes]
        sizes = _zip64_sizes(
            data[at + name_nbytes : stop], [nbytes, compressed, header_offset, disk]
        )
        if sizes is None:
            raise _wrong(reader, "a member's zip64 sizes are missing", place)
        at = stop + comment_nbytes
        name = _name(reader, raw_name, flags, place)
        entry = _Entry(name, raw_name, method, crc, sizes[1], sizes[0], sizes[2], place)
        _check(reader, entry, flags, sizes[3])
        yield entry


def _zip64_sizes(extra: bytes, sizes: list[int]) -> list[int] | None:
    """Return the sizes, with those too large for their fields taken from `extra`; None if it lacks them."""
    full = [_FULL32, _FULL32, _FULL32, _FULL16]
    missing = [index for index in range(4) if sizes[index] == full[index]]
    at = 0
    while missing and at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        at += 4
        if kind == 0x0001:
            needed = "<" + "".join("I" if index == 3 else "Q" for index in missing)
            if min(length, len(extra) - at) < struct.calcsize(needed):
                return None
            for index, value in zip(missing, struct.unpack_from(needed, extra, at), strict=True):
                sizes[index] = value
            return sizes
        at += length
    return None if missing else sizes


def _name(reader: Reader, raw: bytes, flags: int, place: int) -> str:
    try:
        name = raw.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError as error:
        raise _wrong(reader, f"a member's name is not text: {raw[:40]!r}", place) from error
    parts = name.removesuffix("/").split("/")
    if (
        not all(part not in ("", ".", "..") for part in parts)
        or "\\" in name
        or ":" in parts[0]
        or not name.isprintable()
    ):
        cure = "Such names write outside a folder when unpacked: do not trust this archive."
        raise _wrong(reader, f"a member is called {name[:80]!r}", place, cure)
    return name


def _check(reader: Reader, entry: _Entry, flags: int, disk: int) -> None:
    """Raise if the member is of a kind that can't be read, or claims an impossible size."""
    name, place = entry.name, entry.place
    if flags & _ENCRYPTED:
        cure = "Write the archive again without a password."
        raise _wrong(reader, f"member {name!r} is encrypted", place, cure)
    if entry.method not in (STORED, DEFLATED):
        method = _METHODS.get(entry.method, f"method {entry.method}")
        cure = "Write it with np.savez (stored) or np.savez_compressed (deflated)."
        raise _wrong(reader, f"member {name!r} is packed by {method}", place, cure)
    if disk:
        raise _wrong(reader, f"member {name!r} is on another disk", place)
    if entry.compressed_nbytes > reader.size:
        problem = (
            f"member {name!r} claims {entry.compressed_nbytes} bytes in a file of {reader.size}"
        )
        raise _wrong(reader, problem, place)
    most = entry.compressed_nbytes * (1 if entry.method == STORED else MAX_RATIO)
    if entry.nbytes > most or (entry.method == STORED and entry.nbytes != most):
        problem = (
            f"member {name!r} claims {entry.nbytes} bytes from {entry.compressed_nbytes}, "
            f"and cannot have more than {most}"
        )
        raise _wrong(reader, problem, place)


def _refuse_duplicates(reader: Reader, entries: list[_Entry]) -> None:
    seen: dict[str, str] = {}
    for entry in entries:
        field = entry.name.removesuffix(".npy")
        if field in seen:
            problem = f"two members have the same name: {seen[field]!r} and {entry.name!r}"
            raise _wrong(reader, problem, entry.place)
        seen[field] = entry.name


def _locate(reader: Reader, entries: list[_Entry], end: int) -> list[Member]:
    """Return the members with the offsets of their data, found from the headers before it."""
    headers = [bytearray(_LOCAL.size + len(entry.raw_name)) for entry in entries]
    pairs = list(zip(entries, headers, strict=True))
    for entry, header in pairs:
        if entry.header_offset + len(header) > end:
            problem = f"member {entry.name!r} cannot start at byte {entry.header_offset}"
            raise _wrong(reader, problem, entry.place)
    reader.read_ranges([Range(entry.header_offset, header) for entry, header in pairs])
    members = []
    spans = []
    for entry, header in pairs:
        signature, _, _, method, *_, name_nbytes, extra_nbytes = _LOCAL.unpack_from(header)
        same_name = header[_LOCAL.size :] == entry.raw_name and name_nbytes == len(entry.raw_name)
        if signature != b"PK\x03\x04" or method != entry.method or not same_name:
            problem = f"the header of member {entry.name!r} does not match the directory"
            raise _wrong(reader, problem, entry.header_offset)
        start = entry.header_offset + len(header) + extra_nbytes
        sizes = (entry.compressed_nbytes, entry.nbytes, entry.crc)
        members.append(Member(entry.name, entry.method, start, *sizes))
        spans.append((entry.header_offset, start + entry.compressed_nbytes, entry.name))
    _refuse_overlaps(reader, spans, end)
    return members


def _refuse_overlaps(reader: Reader, spans: list[tuple[int, int, str]], end: int) -> None:
    """Raise if two members share bytes, or one runs into the directory."""
    spans = [*sorted(spans), (end, end, "the directory")]
    for (_, stop, name), (start, _, following) in itertools.pairwise(spans):
        if stop > start:
            raise _wrong(reader, f"member {name!r} and {following!r} share bytes", start)
