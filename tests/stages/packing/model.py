"""Packing in plain Python: value by value."""

from typing import Any

import numpy as np


def placed(lengths: list[int], length: int, bins: int) -> list[list[tuple[int, int, int]]]:
    """First fit in plain Python: the pieces (row, begin, end) of each bin, in the order in which bins close."""
    open_bins: list[list[tuple[int, int, int]]] = []
    closed = []

    def fill(one: list[tuple[int, int, int]]) -> int:
        return sum(end - begin for _, begin, end in one)

    for row, size in enumerate(lengths):
        for begin in range(0, size, length):
            piece = (row, begin, min(size, begin + length))
            found = next((b for b in open_bins if fill(b) + piece[2] - begin <= length), None)
            if found is None:
                if len(open_bins) == bins:
                    fullest = max(open_bins, key=fill)
                    open_bins = [b for b in open_bins if b is not fullest]
                    closed.append(fullest)
                found = []
                open_bins.append(found)
            found.append(piece)
            if fill(found) == length:
                closed.append(found)
                open_bins = [b for b in open_bins if b is not found]
    return closed + open_bins


def joined(lengths: list[int], length: int) -> list[list[tuple[int, int, int]]]:
    values = [(row, at) for row, size in enumerate(lengths) for at in range(size)]
    found = []
    for start in range(0, len(values), length):
        pieces: list[tuple[int, int, int]] = []
        for row, at in values[start : start + length]:
            if pieces and pieces[-1][0] == row:
                pieces[-1] = (row, pieces[-1][1], at + 1)
            else:
                pieces.append((row, at, at + 1))
        found.append(pieces)
    return found


def packed(rows: list[Any], bins: list[Any], length: int, pad: int = 0) -> list[Any]:
    """What is in the bins, value by value."""
    found = []
    for one in bins:
        made = {
            name: np.full((length, *value.shape[1:]), pad, value.dtype)
            for name, value in rows[0].items()
        }
        made |= {name: np.zeros(length, "i4") for name in ("segment_ids", "positions")}
        at = 0
        for number, (row, begin, end) in enumerate(one, 1):
            for value in range(begin, end):
                for name, values in rows[row].items():
                    made[name][at] = values[value]
                made["segment_ids"][at] = number
                made["positions"][at] = value - begin
                at += 1
        found.append(made)
    return found
