"""Parcels: finished blocks on their way to the consumer, each with the cursors after its rows."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock._native import Job
from penstock.core.blocks import Block

Cursor = Any
"""Where a flow stands: whole numbers, lists and dicts, so that JSON can hold it."""
CursorAfter = Callable[[int], Cursor]
"""The cursor after the first j rows of a parcel. It must not keep the rows themselves alive."""


@dataclass(slots=True)
class Parcel:
    """A finished block of consecutive rows of a flow, with the cursors after them."""

    block: Block
    size: int
    cursor_after: CursorAfter
    """The cursor of the flow after the first j rows of this parcel, for j from 0 to size."""


@dataclass(slots=True)
class Begun:
    """A block whose rows are yet to come, and the native job that fills it."""

    parcel: Parcel
    job: Job
