"""A digest of any Python value: the same in every process for values that act the same.

Nothing that differs from run to run goes in: no addresses, no order of a set, no line numbers. What can't be compared
(an open file, a model, a random generator) is Unproven. Arrays count by their bytes, functions by what they do.
"""

import hashlib
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from penstock import _native
from penstock.core.code import Used, Variable
from penstock.core.evidence import Unproven
from penstock.core.objects import reduced
from penstock.core.spec import dtype_to_json

__all__ = ["Unproven", "array_digest", "digest", "list_digest", "pieces_digest"]

_PIECE_NBYTES = 1 << 20  # A piece counts by its CRC-32C, which is ten times as fast as a hash.
_SMALL_NBYTES = 1 << 12  # Less than this is hashed itself.
_LIST_VALUES = 4096  # Values of a list that are joined at once.
_PLAIN = {type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)}


def digest(value: Any) -> str:
    """Return the digest of a value; raise Unproven if it can't be compared with that of another run."""
    try:
        return _Digester().of(value).hex()
    except Unproven:
        raise
    except RecursionError:
        raise Unproven("something nested too deeply") from None
    except Exception as error:
        # Attributes of other people's objects may raise anything.
        raise Unproven(f"something that raises {type(error).__name__} when looked at") from error


def array_digest(array: "np.ndarray[Any, Any]") -> str:
    """Return the digest of an array's shape, dtype and bytes. It takes the memory of a piece, or of a row."""
    return _array(array).hex()


def pieces_digest(pieces: Iterable["np.ndarray[Any, Any]"]) -> str:
    """Return the digest of bytes that come in pieces; it depends on how they are cut."""
    found = hashlib.blake2b(digest_size=16)
    for piece in pieces:
        _fold(found, piece)
    return found.hexdigest()


def list_digest(values: Sequence[Any]) -> str:
    """Return the digest of a list of bytes, of str or of arrays."""
    found = hashlib.blake2b(digest_size=16)
    for start in range(0, len(values), _LIST_VALUES):
        some = values[start : start + _LIST_VALUES]
        if isinstance(some[0], np.ndarray):
            for array in some:
                found.update(_array(array))
            continue
        raw = [
            one.encode("utf-8", "surrogatepass") if isinstance(one, str) else one for one in some
        ]
        found.update(np.array([len(one) for one in raw], "<i8").tobytes())
        _fold(found, np.frombuffer(b"".join(raw), np.uint8))
    return found.hexdigest()


class _Digester:
    """The digests of one value and of all that it refers to."""

    def __init__(self) -> None:
        self.done: dict[Any, tuple[Any, bytes]] = {}
        """By id; each with its object, which must live: an id of a dead object may be given again."""
        self.open: dict[Any, int] = {}
        """Objects that are being looked into, by id, with their depth: one that refers to itself ends there."""

    def of(self, value: Any) -> bytes:
        """Return the digest of a value."""
        kind = type(value)
        if kind in _PLAIN:
            return _joined(kind.__name__, [_plain(value)])
        key = value.key if kind is Used else id(value)
        found = self.done.get(key)
        if found is not None:
            return found[1]
        if key in self.open:
            return _joined("loop", [struct.pack("<q", self.open[key])])
        self.open[key] = len(self.open)
        try:
            result = self._look_into(value)
        finally:
            del self.open[key]
        self.done[key] = value, result
        return result

    def _look_into(self, value: Any) -> bytes:
        kind = type(value)
        if kind in (tuple, list):
            return _joined(kind.__name__, map(self.of, value))
        if kind is dict:
            return _joined("dict", (self.of(one) for pair in value.items() for one in pair))
        if kind in (set, frozenset):
            return _joined("set", sorted(map(self.of, value)))
        if isinstance(value, np.generic):
            value = np.asarray(value)
        if type(value) in (np.ndarray, np.memmap):
            if value.dtype.hasobject:
                return _joined("objects", [self.of(value.shape), self.of(value.ravel().tolist())])
            return _array(value)
        if isinstance(value, np.dtype):
            return self.of(("dtype", dtype_to_json(value)))
        if kind is Variable:
            return self._variable(value)
        tag, *parts = reduced(value)
        return _joined(tag, map(self.of, parts))

    def _variable(self, variable: Variable) -> bytes:
        try:
            return _joined("variable", [variable.name.encode(), self.of(variable.value)])
        except Unproven as error:
            if error.is_named:  # The innermost name says most.
                raise
            raise Unproven(f"{variable.name}, {error}", is_named=True) from error


def _plain(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, float):
        return value.hex().encode()
    if isinstance(value, complex):
        return f"{value.real.hex()} {value.imag.hex()}".encode()
    if isinstance(value, int):  # Not in decimal: Python limits the digits of that.
        return hex(value).encode()
    return str(value).encode("utf-8", "surrogatepass")


def _joined(tag: str, parts: Iterable[bytes]) -> bytes:
    """Return a digest of parts, each with its length: no two lists of parts give the same bytes."""
    found = hashlib.blake2b(digest_size=16)
    for part in (tag.encode(), *parts):
        found.update(struct.pack("<q", len(part)))
        found.update(part)
    return found.digest()


def _array(array: "np.ndarray[Any, Any]") -> bytes:
    found = hashlib.blake2b(digest_size=16)
    dtype = array.dtype
    described = f"{array.shape} {dtype.str} {dtype.name} {dtype.descr if dtype.names else ''}"
    found.update(described.encode())
    for piece in _pieces(array):
        _fold(found, piece)
    return found.digest()


def _pieces(array: "np.ndarray[Any, Any]") -> Iterator["np.ndarray[Any, Any]"]:
    """Yield the bytes of an array in C order; of one that does not lie so in memory, copies of a few rows."""
    if not array.size or not array.itemsize:
        return
    rows = array.reshape(1) if array.ndim == 0 else array.view(np.ndarray)
    step = max(1, _PIECE_NBYTES // (rows.nbytes // len(rows)))
    for start in range(0, len(rows), step):
        some = np.ascontiguousarray(rows[start : start + step]).reshape(-1).view(np.uint8)
        for at in range(0, len(some), _PIECE_NBYTES):
            yield some[at : at + _PIECE_NBYTES]


def _fold(found: Any, data: "np.ndarray[Any, Any]") -> None:
    if data.nbytes > _SMALL_NBYTES:
        found.update(struct.pack("<qI", data.nbytes, _native.crc32c(data.data)))
    else:
        found.update(struct.pack("<q", data.nbytes))
        found.update(data)
