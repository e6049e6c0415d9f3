"""How the bytes of a chunk become values, for the codecs that are undone here without Zarr."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock import _native
from penstock.core.arrays import Array
from penstock.sources.zarr.packed import PACKERS, PackedError, unpack, unpack_into
from penstock.sources.zarr.sizes import Config, decoded_sizes, named

Bytes = npt.NDArray[np.uint8]
_KINDS = "biufc"  # Numbers; all else is left to Zarr.
_CHECKSUM = "crc32c"
_CHECKSUM_NBYTES = 4


@dataclass(frozen=True, slots=True)
class Recipe:
    """How chunks of one shape are made: values in an order, and what their bytes went through."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    """As the bytes are, whatever byte order the array has."""
    order: tuple[int, ...]
    """Which axis of a chunk comes first among its bytes, which next."""
    steps: tuple[tuple[Config, int], ...]
    """Codecs in the order in which they were applied, and the most bytes that each may give."""

    @property
    def nbytes(self) -> int:
        """The bytes of a chunk, unpacked."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize

    @property
    def is_in_order(self) -> bool:
        """Whether the bytes of a chunk are those of an array."""
        return self.order == tuple(range(len(self.order)))

    def values(self, chunk: Bytes) -> Array:
        """Return the values of a chunk, over its bytes."""
        stored = chunk.view(self.dtype).reshape([self.shape[axis] for axis in self.order])
        return stored.transpose(np.argsort(self.order))

    def unpack_into(self, out: Bytes, packed: Bytes) -> None:
        """Unpack a chunk to `out`; raise PackedError if it is damaged, or has other bytes than a chunk has."""
        found = packed
        for number, (codec, most) in reversed([*enumerate(self.steps)]):
            if codec["id"] == _CHECKSUM:
                found = _checked(found)
            elif number == 0 and unpack_into(codec, found, out):
                return
            else:
                found = np.frombuffer(unpack(codec, found, most), np.uint8)
        if found.size != out.size:
            raise PackedError(f"it unpacks to {found.size} bytes, and must have {out.size}")
        np.copyto(out, found)


def _checked(packed: Bytes) -> Bytes:
    found, tail = packed[:-_CHECKSUM_NBYTES], packed[-_CHECKSUM_NBYTES:]
    if len(tail) < _CHECKSUM_NBYTES:
        raise PackedError("it is too short for its checksum")
    if _native.crc32c(found) != int.from_bytes(tail.tobytes(), "little"):
        raise PackedError("its checksum (CRC32C) is wrong")
    return found


def recipe_of_v2(metadata: Any, dtype: np.dtype[Any]) -> Recipe | None:
    """Return how chunks of version 2 are made; None if only Zarr can undo that."""
    shape = tuple(map(int, metadata.chunks))
    if metadata.filters or dtype.kind not in _KINDS or metadata.order not in ("C", "F"):
        return None
    codecs = [] if metadata.compressor is None else [metadata.compressor.get_config()]
    axes = tuple(range(len(shape)))
    order = axes if metadata.order == "C" else axes[::-1]
    return _recipe(shape, dtype, order, codecs)


def recipe_of_v3(
    codecs: Sequence[Config], shape: Sequence[int], dtype: np.dtype[Any]
) -> Recipe | None:
    """Return how chunks of version 3 are made; None if only Zarr can undo that."""
    left = list(codecs)
    order = tuple(range(len(shape)))
    while left and left[0]["id"] == "transpose":
        turned = tuple(left.pop(0).get("order", ()))
        if sorted(turned) != list(range(len(shape))):
            return None
        order = tuple(order[axis] for axis in turned)
    if not left or left[0]["id"] != "bytes" or dtype.kind not in _KINDS:
        return None
    endian = str(getattr(left[0].get("endian"), "value", left[0].get("endian")))
    if dtype.itemsize > 1:
        if endian not in ("little", "big"):
            return None
        dtype = dtype.newbyteorder("<" if endian == "little" else ">")
    return _recipe(tuple(map(int, shape)), dtype, order, left[1:])


def _recipe(
    shape: tuple[int, ...], dtype: np.dtype[Any], order: tuple[int, ...], codecs: Sequence[Config]
) -> Recipe | None:
    if not all(one["id"] in PACKERS or one["id"] == _CHECKSUM for one in codecs):
        return None
    sizes = decoded_sizes(codecs, shape, dtype.itemsize)
    steps = tuple((codec, most) for codec, (most, _) in zip(codecs, sizes, strict=True))
    return Recipe(shape, dtype, order, steps)


@dataclass(frozen=True, slots=True)
class ShardRecipe:
    """How shards are made: of chunks, and an index of where each lies."""

    shape: tuple[int, ...]
    chunk: Recipe
    is_index_first: bool
    is_checked: bool
    """Whether the index has a checksum."""

    @property
    def counts(self) -> tuple[int, ...]:
        """How many chunks a shard has along each axis."""
        return tuple(a // b for a, b in zip(self.shape, self.chunk.shape, strict=True))

    @property
    def index_nbytes(self) -> int:
        """The bytes of the index."""
        pairs = 2 * 8 * int(np.prod(self.counts, dtype=np.int64))
        return pairs + (_CHECKSUM_NBYTES if self.is_checked else 0)

    def index(self, data: Bytes) -> npt.NDArray[np.uint64]:
        """Return where each chunk begins and how many bytes it has, by its place in the shard."""
        if data.size != self.index_nbytes:
            raise PackedError(f"its index has {data.size} bytes, and must have {self.index_nbytes}")
        found = _checked(data) if self.is_checked else data
        return found.view("<u8").reshape((*self.counts, 2)).astype(np.uint64)


def shard_recipe_of(
    codecs: Sequence[Config], shape: Sequence[int], dtype: np.dtype[Any]
) -> ShardRecipe | None:
    """Return how shards are made; None if only Zarr can undo that."""
    if len(codecs) != 1 or codecs[0]["id"] != "sharding_indexed":
        return None
    config = codecs[0]
    inner = tuple(map(int, config["chunk_shape"]))
    whole = tuple(map(int, shape))
    chunk = recipe_of_v3(named(config["codecs"]), inner, dtype)
    index = named(config["index_codecs"])
    names = [one["id"] for one in index]
    is_divided = all(a % b == 0 for a, b in zip(whole, inner, strict=True))
    if chunk is None or not is_divided or names not in (["bytes"], ["bytes", _CHECKSUM]):
        return None
    endian = index[0].get("endian")
    if str(getattr(endian, "value", endian)) != "little":
        return None
    place = str(getattr(config["index_location"], "value", config["index_location"]))
    return ShardRecipe(whole, chunk, place == "start", len(names) == 2)
