"""The store by which Zarr reads through our own layer: it lists all that lies below a folder."""

import asyncio
from pathlib import Path

import numpy as np
import zarr

from penstock.io.keys import open_keys
from penstock.io.location import Location
from penstock.sources.zarr.store import store_class


def test_a_listing_has_the_keys_of_all_levels_and_no_folders(tmp_path: Path) -> None:
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("x", data=np.arange(4), chunks=(2,))
    group.create_array("deep/down/y", data=np.arange(4), chunks=(4,))
    store = store_class()(open_keys(Location(str(tmp_path / "a.zarr"), 0, is_directory=True)))

    async def listed(prefix: str) -> list[str]:
        return sorted([key async for key in store.list_prefix(prefix)])

    files = [one for one in (tmp_path / "a.zarr").rglob("*") if one.is_file()]
    keys = sorted(str(one.relative_to(tmp_path / "a.zarr")) for one in files)
    assert asyncio.run(listed("")) == keys
    assert asyncio.run(listed("deep/")) == [key for key in keys if key.startswith("deep/")]
    assert asyncio.run(listed("nowhere")) == []
