"""Texts to arrays of one width, as NumPy has them: 'U8', 'S8'."""

from collections.abc import Sequence
from typing import Any

import numpy as np


def fixed_texts(texts: Sequence[str], dtype: np.dtype[Any]) -> Any:
    """Return texts as an array of a width that holds them all.

    Raises:
        OverflowError: NumPy would cut a text, or leave out bytes 0 at its end.
        ValueError: A letter is no ASCII, and the array is of bytes.
    """
    found = np.asarray(texts, "U")
    width = dtype.itemsize // (4 if dtype.kind == "U" else 1)
    if found.dtype.itemsize // 4 > width or any(text.endswith("\0") for text in texts):
        raise OverflowError(f"too long for {dtype}")
    return found.astype(dtype)


def wide_enough(text: str, dtype: np.dtype[Any]) -> str:
    """Return the dtype that holds a text which another one does not, as a user would write it; "" if none does."""
    if text.endswith("\0"):
        return ""  # NumPy leaves it out.
    kind = dtype.kind if text.isascii() else "U"
    # Never narrower than what it shall stand for: other rows may fill it.
    own = dtype.itemsize // np.dtype(f"{dtype.kind}1").itemsize
    return f"{kind}{max(own, len(text))}"
