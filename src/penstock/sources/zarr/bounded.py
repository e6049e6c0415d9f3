"""Zarr arrays that decode to no more than their shape and dtype allow, whatever lies in their store.

The codecs that unpack are exchanged for our own (`packed.py`), in shards, and shards within shards, too. Zarr does all
the rest. Of a store that is not ours no more is read at once than a chunk may have.
"""

import asyncio
import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.optional import require
from penstock.errors import DataError
from penstock.sources.zarr.direct import CURE
from penstock.sources.zarr.packed import PACKERS, PackedError, unpack
from penstock.sources.zarr.sizes import Limits, decoded_sizes, limits_of, named


def bounded(array: Any) -> Any:
    """Return the same array, to be read only, with codecs that unpack to what a chunk may hold."""
    metadata = array.metadata
    width = np.dtype(array.dtype).itemsize
    if metadata.zarr_format == 2:
        filters = tuple(metadata.filters or ())
        codecs = _bounded_v2((*filters, metadata.compressor), metadata.chunks, width)
        changes: dict[str, Any] = {"filters": codecs[:-1] or None, "compressor": codecs[-1]}
    else:
        changes = {"codecs": _bounded_v3(metadata.codecs, metadata.chunk_grid.chunk_shape, width)}
    return _array_of(array, dataclasses.replace(metadata, **changes), array.store_path)


def in_bounds(array: Any) -> Any:
    """Return the same array over a store of which no more is read at once than a chunk may have."""
    storage = require("zarr.storage", "reading .zarr", "zarr")
    store = _bounded_store_class()(array.store, limits_of(array))
    return _array_of(array, array.metadata, storage.StorePath(store, array.path))


def _array_of(array: Any, metadata: Any, store_path: Any) -> Any:
    zarr = require("zarr", "reading .zarr", "zarr")
    inner = array._async_array  # noqa: SLF001  # In Zarr 3.1.3 neither this nor its config has a public name.
    config = inner.config if hasattr(inner, "config") else inner._config  # noqa: SLF001
    return zarr.Array(zarr.AsyncArray(metadata, store_path, config))


def _bounded_v2(codecs: Sequence[Any], shape: Sequence[int], width: int) -> tuple[Any, ...]:
    configs = [{"id": "", **(one.get_config() if one is not None else {})} for one in codecs]
    return tuple(
        _bounded_numcodec_class()(config, most) if config["id"] in PACKERS else one
        for one, config, (most, _) in zip(
            codecs, configs, decoded_sizes(configs, shape, width), strict=True
        )
    )


def _bounded_v3(codecs: Sequence[Any], shape: Sequence[int], width: int) -> tuple[Any, ...]:
    configs = named([one.to_dict() for one in codecs])
    made = []
    for one, config, (most, of_codec) in zip(
        codecs, configs, decoded_sizes(configs, shape, width), strict=True
    ):
        if config["id"] in PACKERS:
            made.append(_bounded_codec_class()(config, most))
        elif config["id"] == "sharding_indexed":
            inner = _bounded_v3(one.codecs, one.chunk_shape, of_codec)
            made.append(dataclasses.replace(one, codecs=inner))
        else:
            made.append(one)
    return tuple(made)


@functools.cache
def _bounded_codec_class() -> Any:
    """Return the class of codecs that unpack for version 3."""
    abc = require("zarr.abc.codec", "reading .zarr", "zarr")

    @dataclasses.dataclass(frozen=True, eq=False)
    class BoundedCodec(abc.BytesBytesCodec):  # type: ignore[misc, name-defined]  # Zarr is optional, and untyped here.
        config: Mapping[str, Any]
        most: int

        is_fixed_size = False

        def to_dict(self) -> dict[str, Any]:
            return {"name": "penstock.bounded", "configuration": {"codec": self.config["id"]}}

        async def _decode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
            return await asyncio.to_thread(self._unpacked, chunk_bytes, chunk_spec.prototype)

        def _unpacked(self, chunk_bytes: Any, prototype: Any) -> Any:
            packed = chunk_bytes.as_numpy_array().view(np.uint8)
            return prototype.buffer.from_bytes(unpack(self.config, packed, self.most))

        def compute_encoded_size(self, input_byte_length: int, chunk_spec: Any) -> int:
            raise NotImplementedError  # It only unpacks.

    return BoundedCodec


@functools.cache
def _bounded_numcodec_class() -> Any:
    """Return the class of codecs that unpack for version 2."""
    abc = require("numcodecs.abc", "reading .zarr", "zarr")
    compat = require("numcodecs.compat", "reading .zarr", "zarr")

    class BoundedNumcodec(abc.Codec):  # type: ignore[misc, name-defined]  # As above.
        codec_id = "penstock.bounded"

        def __init__(self, config: Mapping[str, Any], most: int) -> None:
            self.config = config
            self.most = most

        def encode(self, buf: Any) -> Any:
            raise NotImplementedError  # It only unpacks.

        def decode(self, buf: Any, out: Any = None) -> Any:
            packed = compat.ensure_contiguous_ndarray(buf).reshape(-1).view(np.uint8)
            found = np.frombuffer(unpack(self.config, packed, self.most), np.uint8)
            return compat.ndarray_copy(found, out)

    return BoundedNumcodec


@functools.cache
def _bounded_store_class() -> Any:
    """Return the class of stores that read no more than they are allowed from another one."""
    abc = require("zarr.abc.store", "reading .zarr", "zarr")
    storage = require("zarr.storage", "reading .zarr", "zarr")

    class BoundedStore(storage.WrapperStore):  # type: ignore[misc, name-defined]  # As above.
        def __init__(self, store: Any, limits: Limits) -> None:
            super().__init__(store)
            self._limits = limits

        async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
            if byte_range is None:
                # Not by asking for its size first: that would be another request.
                whole = abc.RangeByteRequest(0, self._limits.whole + 1)
                data = await self._store.get(key, prototype, whole)
                self._check(0 if data is None else len(data), self._limits.whole, key)
                return data
            if isinstance(byte_range, abc.RangeByteRequest):
                self._check(byte_range.end - byte_range.start, self._limits.part, key)
            elif isinstance(byte_range, abc.SuffixByteRequest):
                self._check(byte_range.suffix, self._limits.part, key)
            return await self._store.get(key, prototype, byte_range)

        def _check(self, nbytes: int, most: int, key: str) -> None:
            if nbytes > most:
                raise DataError(
                    f"there are {nbytes} bytes or more to be read at once, where there can be at most {most}",
                    file=f"{self._store}/{key}",
                    cure=CURE,
                )

    return BoundedStore


@dataclasses.dataclass(frozen=True, slots=True)
class ByZarr:
    """A bounded array, which lies in `folder`: Zarr decodes its chunks and puts them together."""

    array: Any
    folder: str

    def read(self, values: Array, start: int) -> None:
        """Fill `values` with the rows from `start` on; raise for a chunk that can't be unpacked, by its name."""
        stop = start + len(values)
        try:
            found = np.asarray(self.array[start:stop])
        except Exception as error:
            if not isinstance(_cause(error), PackedError):
                raise
            raise _bad_chunk(self.array, start, stop, self.folder, error) from error
        if found.shape != values.shape:
            raise ValueError(f"rows must have shape {values.shape}, got {found.shape}")
        np.copyto(values, found)


def _cause(error: BaseException) -> BaseException:
    """Return what an error came of."""
    while not isinstance(error, PackedError) and (inner := error.__cause__ or error.__context__):
        error = inner
    return error


def _bad_chunk(array: Any, start: int, stop: int, folder: str, error: Exception) -> DataError:
    """Return the error of the first chunk among rows that can't be unpacked, by reading one after the other."""
    steps = array.chunks
    firsts = range(start // steps[0] * steps[0], stop, steps[0])
    others = (range(0, size, step) for size, step in zip(array.shape[1:], steps[1:], strict=True))
    for corner in itertools.product(firsts, *others):
        places = (slice(at, at + step) for at, step in zip(corner, steps, strict=True))
        try:
            array[tuple(places)]
        except Exception as found:  # noqa: BLE001  # Whatever it is, it is the first.
            error = found
            break
    unit = array.shards or steps
    key = array.metadata.encode_chunk_key(
        tuple(at // step for at, step in zip(corner, unit, strict=True))
    )
    last = min(corner[0] + steps[0], array.shape[0])
    return DataError(
        f"rows {corner[0]} to {last} can't be decoded: the chunk at {corner}: {_cause(error)}",
        file=f"{folder}/{key}",
        row=corner[0],
        cure=CURE,
    )
