"""The most bytes that chunks may have, by the metadata of their array."""

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr

from penstock.sources.zarr.sizes import codecs_of, decoded_sizes, limits_of

SLACK = 1 << 16
FILTERS: dict[str, tuple[Any, Any, int]] = {
    "none": (np.arange(8000, dtype="i4"), None, 32_000),
    "wider": (np.arange(8000, dtype="i4"), numcodecs.Delta("<i4", astype="<i8"), 64_000),
    "narrower": (
        np.arange(8000, dtype="f4") % 100,
        numcodecs.FixedScaleOffset(offset=0, scale=10, dtype="<f4", astype="<i2"),
        16_000,
    ),
    "bits": (np.arange(8000) % 3 == 0, numcodecs.PackBits(), 1002),
    "the same": (np.arange(8000, dtype="i4"), numcodecs.Shuffle(4), 32_000),
}


@pytest.mark.parametrize("name", FILTERS)
def test_what_a_compressor_may_unpack_to_depends_on_the_filters_before_it(
    tmp_path: Path, name: str
) -> None:
    values, one, nbytes = FILTERS[name]
    filters = None if one is None else [one]
    options: Any = {"chunks": (8000,), "zarr_format": 2, "compressors": numcodecs.Zlib()}
    array = zarr.create_array(tmp_path / "a.zarr", data=values, filters=filters, **options)
    found = decoded_sizes(codecs_of(array), array.chunks, array.dtype.itemsize)
    assert found[-1][0] == nbytes + nbytes // 8 + SLACK
    np.testing.assert_array_equal(array[:], values)


def test_a_shard_may_have_what_its_chunks_and_its_index_may_have(tmp_path: Path) -> None:
    options: Any = {"shape": (1 << 12, 1 << 14), "dtype": "u1"}
    whole = zarr.create_array(tmp_path / "a.zarr", chunks=(1 << 10, 1 << 14), **options)
    sharded = zarr.create_array(
        tmp_path / "b.zarr", chunks=(1, 1 << 14), shards=(1 << 10, 1 << 14), **options
    )
    limits = limits_of(whole)
    assert limits.whole == limits.part == (2 << 24) + (1 << 10) + SLACK
    limits = limits_of(sharded)
    assert limits.whole == 1024 * ((2 << 14) + (1 << 10) + 16) + (1 << 10) + SLACK
    assert limits.part == (1 << 24) + SLACK
