"""The `.npz` format: arrays in a zip archive; stored ones are read in place, deflated ones forward."""

import zlib

import numpy as np

from penstock.core.closing import Closing
from penstock.errors import DataError
from penstock.io.formats.npy_header import (
    MAX_HEADER,
    PREFIX_NBYTES,
    NpyHeader,
    header_nbytes,
    parse_header,
    read_header,
)
from penstock.io.formats.zip_directory import DEFLATED, STORED, Member, read_members
from penstock.io.reader import Buffer, Bytes, Reader, writable_bytes

__all__ = [
    "DEFLATED",
    "STAGING_NBYTES",
    "STORED",
    "DeflateReader",
    "Member",
    "read_array_header",
    "read_members",
]

# What is read from the archive at once, and what comes out of it at once.
_INPUT_NBYTES = 128 << 10
_OUTPUT_NBYTES = 128 << 10
# What a DeflateReader holds at most. Input and output count three times each, since zlib copies the unused
# rest of an input and joins an output from parts; the last 64 KB are zlib's own window.
STAGING_NBYTES = 3 * (_INPUT_NBYTES + _OUTPUT_NBYTES) + (64 << 10)


def read_array_header(reader: Reader, member: Member) -> NpyHeader:
    """Return the header of the array in a member.

    Its `data_offset` counts from the beginning of the archive for a stored member, and from that of
    the unpacked member for a deflated one. Holds at most 64 KB, and `STAGING_NBYTES` to unpack.
    """
    if not member.is_deflated:
        return read_header(reader, offset=member.data_offset, nbytes=member.nbytes)
    with DeflateReader(reader, member) as unpacked:
        return unpacked.read_array_header()


class DeflateReader(Closing):
    """Unpacks a deflated member from front to back, into the caller's memory.

    Holds `STAGING_NBYTES`, however large the member is. The member's checksum is compared when
    its last byte is read, unless `verify` is False. Not for several threads at once.
    """

    def __init__(self, reader: Reader, member: Member, *, verify: bool = True) -> None:
        if not member.is_deflated:
            raise ValueError(f"member {member.name!r} is stored: read it in place.")
        self.member = member
        self.position = 0
        self._reader = reader
        self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        self._input: Bytes = np.empty(min(_INPUT_NBYTES, member.compressed_nbytes), np.uint8)
        self._num_taken = 0  # how many compressed bytes were read
        self._rest: bytes = b""
        self._verify = verify
        self._crc = 0
        self._is_checked = False
        self._is_closed = False

    def read_array_header(self) -> NpyHeader:
        """Return the header of the array in the member, and stop before its data; only for a new reader."""
        if self.position:
            raise ValueError("the header is read first, from a reader that was not used before.")
        file = self._file
        head = np.empty(min(MAX_HEADER + PREFIX_NBYTES, self.member.nbytes), np.uint8)
        prefix = head[:PREFIX_NBYTES]
        self.read_into(prefix)
        length = header_nbytes(prefix.tobytes(), file=file)
        if length > self.member.nbytes:
            raise self._wrong(f"its header claims {length} bytes, and it has {self.member.nbytes}")
        if length > prefix.size:
            self.read_into(head[prefix.size : length])
        return parse_header(head[:length].tobytes(), file=file, nbytes=self.member.nbytes)

    def read_into(self, buffer: Buffer) -> None:
        """Fill `buffer` with the next bytes."""
        if self._is_closed:
            raise ValueError(f"the reader of {self._file} is closed.")
        target = writable_bytes(buffer)
        if target.size > self.member.nbytes - self.position:
            left = self.member.nbytes - self.position
            raise self._wrong(f"wanted {target.size} more bytes, and {left} are left")
        done = 0
        while done < target.size:
            unpacked = self._unpack(min(target.size - done, _OUTPUT_NBYTES))
            target[done : done + len(unpacked)] = np.frombuffer(unpacked, np.uint8)
            done += len(unpacked)
        if self.position == self.member.nbytes and not self._is_checked:
            self._check_end()

    def skip(self, nbytes: int) -> None:
        """Pass over the next bytes; they are unpacked all the same."""
        scratch = np.empty(min(nbytes, _OUTPUT_NBYTES), np.uint8)
        while nbytes > 0:
            step = min(nbytes, scratch.size)
            self.read_into(scratch[:step])
            nbytes -= step

    def finish(self) -> None:
        """Unpack the rest, and raise unless size and checksum are as the archive says."""
        self.skip(self.member.nbytes - self.position)
        self.read_into(np.empty(0, np.uint8))

    def close(self) -> None:
        """Free its memory; the archive's reader stays open, since it is not ours."""
        self._is_closed = True
        self._input = np.empty(0, np.uint8)
        self._rest = b""
        self._unpacker = zlib.decompressobj(-zlib.MAX_WBITS)

    @property
    def _file(self) -> str:
        return f"{self._reader.location}:{self.member.name}"

    def _unpack(self, limit: int) -> bytes:
        """Return up to `limit` of the next bytes; no bytes if more of the archive must be read first."""
        if self._unpacker.eof:
            raise self._wrong("it ends early: the packed data says so")
        # With nothing left to read, zlib may still hold back bytes that exceeded the last limit.
        packed: bytes | memoryview = self._rest or self._take()
        try:
            unpacked = self._unpacker.decompress(packed, limit)
        except zlib.error as error:
            raise self._wrong(f"its packed data is damaged: {error}") from error
        if not (unpacked or packed or self._unpacker.eof):
            raise self._wrong("it ends early: its packed data is used up")
        self._rest = self._unpacker.unconsumed_tail
        if self._verify:
            self._crc = zlib.crc32(unpacked, self._crc)
        self.position += len(unpacked)
        return unpacked

    def _take(self) -> memoryview:
        """Return the next compressed bytes; no bytes at the member's end."""
        left = self.member.compressed_nbytes - self._num_taken
        piece = self._input[: min(left, self._input.size)]
        if piece.size:
            self._reader.read_into(piece, self.member.data_offset + self._num_taken)
            self._num_taken += piece.size
        return piece.data

    def _check_end(self) -> None:
        while not self._unpacker.eof:
            if self._unpack(1):
                raise self._wrong("it unpacks to more bytes than the archive says")
        packed_left = self.member.compressed_nbytes - self._num_taken
        if packed_left or self._rest or self._unpacker.unused_data:
            raise self._wrong("there are bytes after the end of its packed data")
        if self._verify and self._crc != self.member.crc:
            raise self._wrong("its checksum is wrong: the data is not what was written")
        self._is_checked = True

    def _wrong(self, problem: str) -> DataError:
        cure = "The archive is damaged: copy it again from its original."
        return DataError(problem, file=self._file, offset=self.position, cure=cure)
