"""HDF5 files: how chunks are indexed and packed, and what kinds of values there are."""

from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from tests.sources.mutations.kind import CHUNK, LENGTH, NUMBERS, TEXTS, Cover, Kind, X


def hdf5(path: Path, *, libver: str = "earliest", **options: Any) -> None:
    with h5py.File(path, "w", libver=libver) as file:
        if options:
            file.create_dataset("x", data=X, **{"chunks": (CHUNK, 12), **options})
        else:
            file["x"] = X
        file["y"] = NUMBERS


def hdf5_of_any_length(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("s", data=TEXTS, dtype=h5py.string_dtype(), chunks=(CHUNK,))
        lists = file.create_dataset("v", (LENGTH,), h5py.vlen_dtype("i4"))
        for number in range(LENGTH):
            lists[number] = np.arange(number % 4)


def hdf5_of_packed_lists(path: Path) -> None:
    """Texts without chunks, and lists whose references are packed."""
    with h5py.File(path, "w", libver="latest") as file:
        file.create_dataset(
            "s", data=[b"s" * (number % 5) for number in NUMBERS], dtype=h5py.string_dtype("ascii")
        )
        lists = file.create_dataset(
            "v", (LENGTH,), h5py.vlen_dtype("f8"), chunks=(CHUNK,), compression="gzip", shuffle=True
        )
        for number in range(LENGTH):
            lists[number] = np.arange(number % 4)


def hdf5_of_records(path: Path) -> None:
    with h5py.File(path, "w") as file:
        pairs = np.zeros(LENGTH, [("a", "i2"), ("b", "f8", (3,)), ("c", "S5")])
        pairs["a"] = NUMBERS
        file.create_dataset("r", data=pairs, chunks=(CHUNK,), compression="lzf", shuffle=True)
        file["deep/er/flags"] = NUMBERS % 2 == 0
        file.create_dataset("half", data=X.astype("f2"), chunks=(7, 5), compression="gzip")


def hdf5_of_many(path: Path) -> None:
    """So many names that they lie in a heap with an index, and types that HDF5 converts."""
    with h5py.File(path, "w", libver="latest", track_order=True) as file:
        for number in range(20):
            file[f"group/{number}"] = NUMBERS.astype(f">i{2 << number % 3}")
        colors = h5py.enum_dtype({"red": 0, "green": 1, "blue": 7}, "i2")
        file.create_dataset("color", data=NUMBERS % 2, dtype=colors)
        file.create_dataset("c", data=X[:, 0] * 1j)
        file.create_dataset("name", data=np.array([text.encode() for text in TEXTS]))
        file["linked"] = h5py.SoftLink("/group/3")
        file["x"] = X
        for number in range(12):
            file["x"].attrs[f"attribute {number}"] = "a" * number


def hdf5_in_order(path: Path) -> None:
    """Names in the order in which they were made, some in the header of their group."""
    with h5py.File(path, "w", track_order=True) as file:
        for number in range(4):
            file[f"{'few' if number % 2 else 'other'}/{9 - number}"] = NUMBERS + number
        for number in range(12):
            file[f"{20 - number}"] = NUMBERS + number
        file["elsewhere"] = h5py.ExternalLink("b.h5", "/x")


def hdf5_with_filter(code: int, path: Path) -> None:
    """Integers of which 12 bits are used, so that a filter can leave the others out."""
    stored = h5py.h5t.STD_I16LE.copy()
    stored.set_precision(12)
    with h5py.File(path, "w") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_chunk((CHUNK, 12))
        layout.set_filter(code)
        space = h5py.h5s.create_simple(X.shape)
        made = h5py.h5d.create(file.id, b"x", stored, space, layout)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, (X % 2048).astype("i2"))


def hdf5_compact(path: Path) -> None:
    """Rows that lie among the metadata."""
    with h5py.File(path, "w", libver="latest") as file:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(X.shape)
        made = h5py.h5d.create(file.id, b"x", h5py.h5t.IEEE_F32LE, space, layout)
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, X)


def chunks_of_hdf5(path: Path) -> Cover:
    with h5py.File(path) as file:
        chunks = [file["x"].id.get_chunk_info(k) for k in range(file["x"].id.get_num_chunks())]
    return {"": [(one.byte_offset, one.byte_offset + one.size) for one in chunks]}


latest = partial(hdf5, libver="latest")
fletcher = {"fletcher32": True, "compression": "gzip"}
KINDS = {
    "hdf5": Kind("a.h5", hdf5),
    "hdf5, gzip": Kind("a.h5", partial(hdf5, compression="gzip", shuffle=True)),
    "hdf5, fletcher32": Kind("a.h5", partial(hdf5, **fletcher), covered=chunks_of_hdf5),
    "hdf5, latest": Kind("a.h5", partial(latest, compression="lzf")),
    "hdf5, any length": Kind("a.h5", hdf5_of_any_length),
    "hdf5, records": Kind("a.h5", hdf5_of_records),
    # Each of these has another index of chunks.
    "hdf5, one axis grows": Kind("a.h5", partial(latest, maxshape=(None, 12), compression="gzip")),
    "hdf5, two axes grow": Kind("a.h5", partial(latest, maxshape=(None, None), shuffle=True)),
    "hdf5, one chunk": Kind("a.h5", partial(latest, chunks=(LENGTH, 12), compression="gzip")),
    "hdf5, chunks as they are": Kind("a.h5", partial(latest, chunks=(CHUNK, 5))),
    "hdf5, lzf, fletcher32": Kind(
        "a.h5", partial(hdf5, compression="lzf", fletcher32=True), covered=chunks_of_hdf5
    ),
    "hdf5, adler32": Kind("a.h5", partial(hdf5, compression="gzip"), covered=chunks_of_hdf5),
    "hdf5, szip": Kind("a.h5", partial(hdf5, compression="szip")),
    "hdf5, szip, fletcher32": Kind(
        "a.h5", partial(hdf5, compression="szip", fletcher32=True), covered=chunks_of_hdf5
    ),
    "hdf5, scale and offset": Kind("a.h5", partial(hdf5, scaleoffset=1)),
    "hdf5, n bits": Kind("a.h5", partial(hdf5_with_filter, h5py.h5z.FILTER_NBIT)),
    "hdf5, compact": Kind("a.h5", hdf5_compact),
    "hdf5, packed lists": Kind("a.h5", hdf5_of_packed_lists),
    "hdf5, in order": Kind("a.h5", hdf5_in_order),
    "hdf5, many": Kind("a.h5", hdf5_of_many),
}
