"""The filters that HDF5 packs chunks with, undone here: never to more bytes than the chunk may hold.

HDF5 itself unpacks whatever a chunk claims: a few kilobytes may become gigabytes. It also does one thing at a
time, while this runs on any number of threads.
"""

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native

Bytes = npt.NDArray[np.uint8]
Room = Callable[[str, int], Bytes]
Steps = tuple[tuple[int, tuple[int, ...]], ...]
_DEFLATE, _SHUFFLE, _FLETCHER32, _SZIP, _NBIT, _SCALE_OFFSET, _LZF = 1, 2, 3, 4, 5, 6, 32000
_BLOSC, _LZ4, _BLOSC2 = 32001, 32004, 32026
_STRING, _VLEN = 3, 9  # Classes of types, as files number them.
REFERENCE_NBYTES = 16
"""The bytes of a reference to a value of any length: how long it is, which heap it lies in, its number there."""
_SLACK_NBYTES = 1 << 16  # Checksums and headers of filters that come before the last one.
_FOLD = 0xFFFF


class PackedError(ValueError):
    """A chunk can't be unpacked, or not to the bytes that it must have."""


class BombError(PackedError):
    """A chunk unpacks to more than it may hold."""


@dataclass(frozen=True, slots=True)
class Filters:
    """How the chunks of a dataset are packed."""

    steps: Steps
    """The code of each filter and its parameters, in the order in which they were applied."""
    nbytes: int
    """The bytes of a chunk, unpacked."""

    @property
    def are_known(self) -> bool:
        """Whether all of them can be undone here."""
        return all(code in _UNDO for code, _ in self.steps)

    @property
    def most_packed(self) -> int:
        """The most bytes that a chunk of theirs takes in a file."""
        return 2 * self.nbytes + _SLACK_NBYTES

    def unpacked(self, packed: bytes | Bytes, mask: int) -> Bytes:
        """Return the bytes of a chunk; `mask` has a bit for each filter that was left out of it."""
        found = self._undone(packed, mask)
        if found.size != self.nbytes:
            raise PackedError(f"it unpacks to {found.size} bytes, and must have {self.nbytes}")
        return found

    def unpack_into(self, out: Bytes, packed: Bytes, mask: int, room: Room) -> bool:
        """Unpack a chunk to `out`, which has its bytes; False if it does not unpack to just these: then ask `unpacked`.

        `room` gives memory for the steps between.
        """
        found = packed
        with contextlib.suppress(PackedError):
            for undo, parameters, name, extra in _undoing(self.steps, mask):
                # The last one to be undone writes to the place itself.
                target = room(name, self.nbytes + extra) if name else out
                found = undo(found, parameters, target)
            if found.size == self.nbytes:
                if not np.may_share_memory(found, out):
                    np.copyto(out, found)
                return True
        return False

    def check(self, packed: bytes | Bytes, mask: int) -> None:
        """Raise if a chunk that HDF5 shall unpack holds more than it may, as far as that can be known."""
        self._undone(packed, mask)

    def _undone(self, packed: bytes | Bytes, mask: int) -> Bytes:
        """Return a chunk after undoing its filters, last one first, up to the first that is not known."""
        found = np.frombuffer(packed, np.uint8)
        most = self.nbytes + self.nbytes // 8 + _SLACK_NBYTES
        for number, (code, parameters) in reversed([*enumerate(self.steps)]):
            if mask & (1 << number):
                continue
            if code not in _UNDO:
                claim = _CLAIMS[code](found, parameters) if code in _CLAIMS else 0
                if claim > most:
                    raise BombError(f"it claims to unpack to {claim} bytes")
                break
            found = _UNDO[code](found, parameters, np.empty(most, np.uint8))
        return found


@functools.lru_cache(maxsize=64)  # A damaged file may have any mask.
def _undoing(steps: Steps, mask: int) -> "list[tuple[_Undo, tuple[int, ...], str, int]]":
    """Return what undoes each filter, last one first: with a name for the memory between two, and its extra bytes."""
    left = [step for number, step in enumerate(steps) if not mask & (1 << number)]
    found = []
    for number, (code, parameters) in enumerate(left):
        extra = 4 * sum(before == _FLETCHER32 for before, _ in left[:number])
        name = f"unpacked {number}" if number else ""
        found.append((_UNDO[code], parameters, name, extra))
    return found[::-1]


def filters_of(dataset: Any) -> Filters | None:
    """Return the filters of a dataset in chunks; None if its chunks are stored as they are."""
    if dataset.chunks is None:
        return None
    properties = dataset.id.get_create_plist()
    found = [properties.get_filter(number) for number in range(properties.get_nfilters())]
    steps = tuple((int(one[0]), tuple(int(value) for value in one[2])) for one in found)
    return Filters(steps, chunk_nbytes(dataset)) if steps else None


def chunk_nbytes(dataset: Any) -> int:
    """Return the bytes of a chunk, unpacked, as it lies in the file."""
    stored = dataset.id.get_type()
    is_text = stored.get_class() == _STRING and stored.is_variable_str()
    # Of values of any length there are references; the type of HDF5 says what they take in memory.
    width = REFERENCE_NBYTES if is_text or stored.get_class() == _VLEN else stored.get_size()
    return math.prod(map(int, dataset.chunks)) * int(width)


def _inflated(packed: Bytes, _: Sequence[int], out: Bytes) -> Bytes:
    try:
        return out[: _native.unpack_zlib(packed, out)]
    except BufferError as error:
        raise BombError(f"it unpacks to more than {out.size} bytes") from error
    except ValueError as error:
        raise PackedError(str(error)) from error


def _unpacked_lzf(packed: Bytes, _: Sequence[int], out: Bytes) -> Bytes:
    try:
        return out[: _native.unpack_lzf(packed, out)]
    except BufferError as error:
        raise BombError(f"it unpacks to more than {out.size} bytes") from error
    except ValueError as error:
        raise PackedError("its LZF bytes are damaged or cut off") from error


def _unshuffled(packed: Bytes, parameters: Sequence[int], out: Bytes) -> Bytes:
    """Return values whose first bytes came first, then all second bytes, and so on; a rest is as it is."""
    width = parameters[0] if parameters else 0
    if width < 1:
        raise PackedError(f"its bytes are shuffled by values of {width} bytes")
    if width == 1 or packed.size < 2 * width:
        return packed
    if packed.size > out.size:
        raise BombError(f"it unpacks to more than {out.size} bytes")
    _native.unshuffle(packed, width, out[: packed.size])
    return out[: packed.size]


def _checked(packed: Bytes, _: Sequence[int], __: Bytes) -> Bytes:
    """Return the bytes before a Fletcher-32, which must be theirs."""
    if packed.size < 4:
        raise PackedError("it is too short for its checksum")
    found, tail = packed[:-4], packed[-4:]
    first, second = _native.fletcher32(found)
    stored = int.from_bytes(tail.tobytes(), "little")
    # Sums are those of HDF5 but for multiples of 65535. HDF5 1.6.2 swapped the bytes of each half.
    swapped = int.from_bytes(tail.reshape(2, 2)[:, ::-1].tobytes(), "little")
    sums = [((one & _FOLD) % _FOLD, (one >> 16) % _FOLD) for one in (stored, swapped)]
    if (first, second) not in sums:
        raise PackedError("its checksum (Fletcher-32) is wrong")
    return found


# What undoes a filter, given memory that it may write to.
_Undo = Callable[[Bytes, Sequence[int], Bytes], Bytes]
_UNDO: dict[int, _Undo] = {
    _DEFLATE: _inflated,
    _SHUFFLE: _unshuffled,
    _FLETCHER32: _checked,
    _LZF: _unpacked_lzf,
}


def _number(packed: Bytes, start: int, stop: int, order: Any = "little") -> int:
    return int.from_bytes(packed[start:stop].tobytes(), order)


# What filters that HDF5 undoes allocate: by their parameters, or by what a chunk begins with.
_CLAIMS: dict[int, Callable[[Bytes, Sequence[int]], int]] = {
    _SZIP: lambda packed, _: _number(packed, 0, 4),
    _NBIT: lambda _, parameters: parameters[2] * parameters[4] if len(parameters) > 4 else 0,
    _SCALE_OFFSET: lambda _, parameters: (
        parameters[2] * parameters[4] if len(parameters) > 4 else 0
    ),
    _BLOSC: lambda packed, _: _number(packed, 4, 8),
    _LZ4: lambda packed, _: _number(packed, 0, 8, "big"),
    _BLOSC2: lambda packed, _: _number(packed, 4, 8),
}
