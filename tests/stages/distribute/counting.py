"""Rows that are their own numbers, as many as there ever were, as if they lay in a file; nothing is read."""

from typing import Any

import numpy as np

from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.grains import Grain
from penstock.core.nest import flatten
from penstock.core.rows import Context, Rows, RowSet, as_index
from penstock.core.spec import ArraySpec


class Counting(Rows):
    """Row i is i, several times; it claims to lie on storage."""

    def __init__(self, num_rows: int, width: int = 400) -> None:
        self.fields = (Field(ArraySpec((width // 8,), "int64")),)
        self.structure = flatten(0)[1]
        self.num_rows = num_rows
        self.grains = (Grain(1, width),)
        self.width = width

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        sink = out.sinks[0]
        assert isinstance(sink, Fixed)
        sink.put(np.broadcast_to(as_index(rows)[:, None], (len(as_index(rows)), self.width // 8)))

    def locate(self, row: int, epoch: int) -> str:
        return f"row {row}"

    def describe(self) -> str:
        return f"counting({self.num_rows})"

    def fingerprint(self) -> Any:
        return ["counting", self.num_rows]
