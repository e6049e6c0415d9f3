"""What a kind of file is, and the rows that files of all kinds have."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import penstock as ps

LENGTH, CHUNK = 200, 32
NUMBERS = np.arange(LENGTH)
X = (NUMBERS[:, None] * 10 + np.arange(12)).astype("f4")
TEXTS = [f"é{number}" * (number % 5) for number in NUMBERS]
Cover = dict[str, list[tuple[int, int]]]


@dataclass(frozen=True)
class Kind:
    """A kind of file."""

    name: str
    write: Callable[[Path], None]
    open: Callable[[Path], ps.Dataset] = ps.from_files
    covered: Callable[[Path], Cover] | None = None
    """Where a checksum stands: ranges of bytes, by the file's path in the folder ("" for the file itself)."""
    seal: Callable[[bytes], bytes] | None = None
    """What is done to the bytes after they were damaged: they are put behind checksums that are right."""
    victims: Callable[[Path], list[Path]] | None = None
    """Which files are damaged, if not the file itself, or any of its folder."""
