"""Zarr arrays whose chunks are read and unpacked here, on the threads that want their rows, to where these are wanted.

Zarr itself hands every chunk from one of its threads to another several times.
"""

import itertools
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import add, sub
from typing import Any

import numpy as np
import numpy.typing as npt

from penstock.core.arrays import Array, copy_box, raw_rows
from penstock.core.executors import Executor
from penstock.core.rows import Context
from penstock.errors import DataError
from penstock.io.keys import Keys, RemoteKeys, Room
from penstock.io.remote.ahead import Ahead
from penstock.sources.reading.scratch import Scratch, scratch_of
from penstock.sources.zarr.packed import PackedError
from penstock.sources.zarr.recipe import (
    Bytes,
    Recipe,
    ShardRecipe,
    recipe_of_v2,
    recipe_of_v3,
    shard_recipe_of,
)
from penstock.sources.zarr.sizes import Limits, codecs_of, limits_of, named

INDEX_NBYTES = 1 << 20
"""The bytes of indices of shards that are retained, unless a single one has more."""
CURE = "It is damaged or cut off: copy it again from its original."
_MISSING = (1 << 64) - 1  # What an index has for a chunk that was never written.
_AT_ONCE = 8  # Chunks that are fetched at once over a network.

Corner = tuple[int, ...]
ShardIndex = npt.NDArray[np.uint64]


def recipe_of(array: Any) -> Recipe | ShardRecipe | None:
    """Return how the chunks or shards of an array are made; None if only Zarr can undo that."""
    metadata = array.metadata
    dtype = np.dtype(array.dtype)
    if metadata.zarr_format == 2:
        return recipe_of_v2(metadata, dtype)
    shape = getattr(metadata.chunk_grid, "chunk_shape", None)
    is_regular = type(metadata.chunk_grid).__name__ == "RegularChunkGrid"
    if shape is None or not is_regular or metadata.storage_transformers:
        return None
    codecs = named(codecs_of(array))
    return recipe_of_v3(codecs, shape, dtype) or shard_recipe_of(codecs, shape, dtype)


def index_nbytes(recipe: Recipe | ShardRecipe | None) -> int:
    """Return the bytes of the indices that are retained of an array."""
    return max(INDEX_NBYTES, 2 * recipe.index_nbytes) if isinstance(recipe, ShardRecipe) else 0


@dataclass(frozen=True, slots=True)
class Means:
    """What reading takes of its stream."""

    scratch: Scratch
    executor: Executor
    """It tells whether the stream closes: nothing more is fetched then."""


def means_of(context: Context) -> Means:
    """Return what reading takes of a stream."""
    return Means(scratch_of(context), context.executor)


@dataclass(frozen=True, slots=True, eq=False)
class Direct:
    """An array, open."""

    recipe: Recipe | ShardRecipe
    keys: Keys
    prefix: str
    """What the keys of its chunks begin with."""
    metadata: Any
    shape: tuple[int, ...]
    fill: Any
    limits: Limits
    folder: str
    """What it is called in errors."""
    means: Means
    indices: "_Indices"

    @property
    def chunk(self) -> Recipe:
        """How a chunk is made, in a shard or not."""
        return self.recipe.chunk if isinstance(self.recipe, ShardRecipe) else self.recipe

    def read(self, values: Array, start: int) -> None:
        """Fill `values` with the rows from `start` on."""
        corners = list(self._corners(start, start + len(values)))
        for corner, packed in zip(corners, self._packed(corners), strict=True):
            try:
                self._put(values, start, corner, packed)
            except PackedError as error:
                raise self._bad_chunk(corner, error) from error

    def _corners(self, start: int, stop: int) -> Iterator[Corner]:
        steps = self.chunk.shape
        first = range(start // steps[0] * steps[0], stop, steps[0])
        others = (
            range(0, size, step) for size, step in zip(self.shape[1:], steps[1:], strict=True)
        )
        return itertools.product(first, *others)

    def _packed(self, corners: Sequence[Corner]) -> Iterator[Bytes | None]:
        """Yield chunks as they lie in the store; each is good until the next one is asked for."""
        if not isinstance(self.keys, RemoteKeys) or len(corners) < 2:
            room = self.means.scratch.room
            for corner in corners:
                yield self._fetched(corner, lambda nbytes: room("packed", nbytes))
            return
        # Over a network, chunks that are fetched one after the other are mostly waited for.
        yield from Ahead(
            lambda one: self._fetched(one, _new),
            corners,
            at_once=_AT_ONCE,
            is_closing=lambda: self.means.executor.is_closing,
        )

    def _fetched(self, corner: Corner, room: Room) -> Bytes | None:
        try:
            key, start, stop, most = self._where(corner)
        except PackedError as error:
            raise self._bad_chunk(corner, error) from error
        if start == stop:
            return None
        found = self.keys.read(key, start, stop, room, most=most)
        if found is not None and stop is not None and found.size != stop - start:
            problem = PackedError(f"it should lie at bytes {start} to {stop}, past the end")
            raise self._bad_chunk(corner, problem)
        return found

    def _where(self, corner: Corner) -> tuple[str, int, int | None, int]:
        """Return the key of a chunk, and which bytes it has there (none if it was never written), at most how many."""
        key = self._key(corner)
        if not isinstance(self.recipe, ShardRecipe):
            return key, 0, None, self.limits.whole
        index = self.indices.get(key, lambda: self._index(key))
        if index is None:
            return key, 0, 0, 0
        inner = tuple(
            at % whole // part
            for at, whole, part in zip(corner, self.recipe.shape, self.chunk.shape, strict=True)
        )
        offset, nbytes = index[inner].tolist()
        if offset == nbytes == _MISSING:
            return key, 0, 0, 0
        if offset + nbytes >= 1 << 63:
            raise PackedError(f"its shard says that it lies at byte {offset}")
        return key, offset, offset + nbytes, self.limits.part

    def _key(self, corner: Corner) -> str:
        places = tuple(at // step for at, step in zip(corner, self.recipe.shape, strict=True))
        return f"{self.prefix}{self.metadata.encode_chunk_key(places)}"

    def _index(self, key: str) -> ShardIndex | None:
        assert isinstance(self.recipe, ShardRecipe)
        nbytes = self.recipe.index_nbytes
        start, stop = (0, nbytes) if self.recipe.is_index_first else (-nbytes, None)
        data = self.keys.read(key, start, stop, _new, most=self.limits.part)
        return None if data is None else self.recipe.index(data)

    def _put(self, values: Array, start: int, corner: Corner, packed: Bytes | None) -> None:
        chunk = self.chunk
        stops = (start + len(values), *self.shape[1:])
        begins = (max(start, corner[0]), *corner[1:])
        ends = tuple(map(min, map(add, corner, chunk.shape), stops))
        places = map(slice, begins[1:], ends[1:])
        target = values[begins[0] - start : ends[0] - start, *places]
        if packed is None:
            target[...] = self.fill
            return
        is_same = target.dtype == chunk.dtype
        is_whole = target.nbytes == chunk.nbytes and target.flags.c_contiguous
        if is_same and is_whole and chunk.is_in_order:
            chunk.unpack_into(raw_rows(target, 0), packed)
            return
        room = self.means.scratch.room("chunk", chunk.nbytes)
        chunk.unpack_into(room, packed)
        inner = map(slice, map(sub, begins, corner), map(sub, ends, corner))
        source = chunk.values(room)[tuple(inner)]
        if is_same:
            copy_box(source, target)
        else:
            target[...] = source

    def _bad_chunk(self, corner: Corner, error: Exception) -> DataError:
        last = min(corner[0] + self.chunk.shape[0], self.shape[0])
        return DataError(
            f"rows {corner[0]} to {last} can't be decoded: the chunk at {corner}: {error}",
            file=f"{self.folder}/{self._key(corner).removeprefix(self.prefix)}",
            row=corner[0],
            cure=CURE,
        )


def direct_of(
    array: Any, keys: Keys, prefix: str, folder: str, means: Means, *, index_nbytes: int
) -> Direct | None:
    """Return what reads an array without Zarr; None if its codecs are none of those that are undone here.

    `index_nbytes` is what the indices of shards that are retained may take, but for the two read last.
    """
    recipe = recipe_of(array)
    if recipe is None:
        return None
    dtype = np.dtype(array.dtype)
    fill = array.metadata.fill_value
    most = 1
    if isinstance(recipe, ShardRecipe):
        most = max(2, index_nbytes // max(1, recipe.index_nbytes))
    return Direct(
        recipe,
        keys,
        prefix,
        array.metadata,
        tuple(map(int, array.shape)),
        np.zeros((), dtype)[()] if fill is None else fill,
        limits_of(array),
        folder,
        means,
        _Indices(most),
    )


def _new(nbytes: int) -> Bytes:
    return np.empty(nbytes, np.uint8)


class _Indices:
    """The indices of shards that were read last."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._found: OrderedDict[str, ShardIndex | None] = OrderedDict()

    def get(self, key: str, read: Callable[[], ShardIndex | None]) -> ShardIndex | None:
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        found = read()  # Two threads may do so: better than to wait for each other.
        with self._lock:
            self._found[key] = found
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        return found
