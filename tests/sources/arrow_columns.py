"""Columns of every Arrow type that can be read, with the rows that they must give: for Parquet and for Arrow files."""

from typing import Any

import numpy as np
import pyarrow as pa

NUM_ROWS = 200
COUNT = np.arange(NUM_ROWS)
WORDS = [f"é{n}" * (n % 3) for n in COUNT]
LISTS = [list(range(n % 4)) for n in COUNT]


def from_numpy(values: Any) -> tuple[pa.Array, list[Any]]:
    return pa.array(values), list(values)


def nested(*shape: int) -> tuple[pa.Array, list[Any]]:
    values = np.arange(NUM_ROWS * int(np.prod(shape)), dtype="f4").reshape(NUM_ROWS, *shape)
    array = pa.array(values.reshape(-1))
    for size in reversed(shape):
        array = pa.FixedSizeListArray.from_arrays(array, size)
    return array, list(values)


COLUMNS: dict[str, tuple[pa.Array, list[Any]]] = {
    **{
        name: from_numpy((COUNT % 100).astype(name))
        for name in ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
    },
    **{name: from_numpy((COUNT / 8).astype(name)) for name in ("float16", "float32", "float64")},
    **{
        f"{kind}[{unit}]": from_numpy((COUNT * 1000).astype(f"{code}8[{unit}]"))
        for kind, code in (("timestamp", "M"), ("duration", "m"))
        for unit in ("s", "ms", "us", "ns")
    },
    "timestamp of a zone": (
        pa.array(COUNT * 1000, pa.timestamp("us", "Europe/Berlin")),
        list((COUNT * 1000).astype("M8[us]")),  # The instant, as Arrow stores it.
    ),
    "date32": (pa.array(COUNT, pa.int32()).cast(pa.date32()), list(COUNT.astype("M8[D]"))),
    "date64": (
        pa.array(COUNT, pa.int32()).cast(pa.date32()).cast(pa.date64()),
        list(COUNT.astype("M8[D]").astype("M8[ms]")),
    ),
    "bool": from_numpy(COUNT % 3 == 0),
    "string": (pa.array(WORDS), WORDS),
    "large_string": (pa.array(WORDS, pa.large_string()), WORDS),
    "binary": (pa.array(WORDS).cast(pa.binary()), [word.encode() for word in WORDS]),
    "binary of 3": (
        pa.array([bytes([n, 1, 2]) for n in COUNT], pa.binary(3)),
        [np.array([n, 1, 2], "u1") for n in COUNT],
    ),
    "dictionary of strings": (pa.array(WORDS).dictionary_encode(), WORDS),
    "dictionary of numbers": (pa.array(COUNT % 5).dictionary_encode(), list(COUNT % 5)),
    "lists": (pa.array(LISTS, pa.list_(pa.int16())), [np.array(one, "i2") for one in LISTS]),
    "large lists": (
        pa.array(LISTS, pa.large_list(pa.int16())),
        [np.array(one, "i2") for one in LISTS],
    ),
    "empty lists": (
        pa.array([[] for _ in COUNT], pa.list_(pa.int16())),
        [np.array([], "i2") for _ in COUNT],
    ),
    "lists of truth": (
        pa.array([[True, False, True][: n % 4] for n in COUNT], pa.list_(pa.bool_())),
        [np.array([True, False, True][: n % 4], bool) for n in COUNT],
    ),
    "lists of pairs": (
        pa.array([[[n, 1]] * (n % 3) for n in COUNT.tolist()], pa.list_(pa.list_(pa.int32(), 2))),
        [np.array([[n, 1]] * (n % 3), "i4").reshape(-1, 2) for n in COUNT],
    ),
    "triples": nested(3),
    "grids": nested(2, 3),
}
