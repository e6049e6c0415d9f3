"""Rows of every kind, to be written as shards and read back."""

import numpy as np

NUM_ROWS = 200


def words():
    return ["é" * (i % 5) + str(i) for i in range(NUM_ROWS)]


NESTS = {
    "bare": np.arange(NUM_ROWS),
    "tuple": (np.arange(NUM_ROWS), np.ones((NUM_ROWS, 2), "f4")),
    "dict": {"b": np.arange(NUM_ROWS), "a": words()},
    "numbered": {0: np.arange(NUM_ROWS), 1: np.arange(NUM_ROWS) * 2},
    "nested": {"x": (np.arange(NUM_ROWS), {"y": words()}), "z": [w.encode() for w in words()]},
    "odd names": {
        "a/../b": np.arange(NUM_ROWS),
        "a b": words(),
        ".x": np.ones(NUM_ROWS),
        "A B": words(),
    },
    "same names": {"x": words(), "x.values": np.arange(NUM_ROWS), "x.offsets": np.zeros(NUM_ROWS)},
    "ragged": [np.arange(i % 7, dtype="i2") for i in range(NUM_ROWS)],
    "ragged rows": [np.full((i % 4, 3), i, "f4") for i in range(NUM_ROWS)],
    "ragged inside": {"r": [np.full((2, i % 4), i) for i in range(NUM_ROWS)]},
    "ragged all over": (
        [np.full((i % 3, 2, i % 4), i, "f8") for i in range(NUM_ROWS)],
        np.arange(NUM_ROWS),
    ),
    "ragged and empty": [np.zeros((i % 3, 0), "u1") for i in range(NUM_ROWS)],
    "surrogates": ["\ud800" + str(i) for i in range(NUM_ROWS)],
}


def names(folder):
    """Return the names of what is in a folder."""
    return sorted(path.name for path in folder.iterdir())
