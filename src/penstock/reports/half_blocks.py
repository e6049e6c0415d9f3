"""Images in a terminal: a character has two pixels, the upper one in its colour, the lower one in its background's."""

from collections.abc import Sequence

import numpy as np

from penstock.core.arrays import Array
from penstock.reports.png import as_bytes

_END = "\x1b[0m"


def side_by_side(images: Sequence[Array], columns: int, *, is_true: bool) -> list[str]:
    """Return the lines of images next to each other, each `columns` characters wide, with their numbers below.

    With `is_true` the terminal has 24 bits a colour; else it has 256 colours.
    """
    drawn = [_drawn(image, columns, is_true=is_true) for image in images]
    height = max(map(len, drawn), default=0)
    padded = [lines + [" " * columns] * (height - len(lines)) for lines in drawn]
    labels = [str(number).ljust(columns) for number in range(len(drawn))]
    rows = [*zip(*padded, strict=True), labels] if drawn else []
    return ["  ".join(row).rstrip() for row in rows]


def _drawn(image: Array, columns: int, *, is_true: bool) -> list[str]:
    pixels = _shrunk(image, columns)
    height, width = pixels.shape[:2]
    lines = []
    for row in range(0, height, 2):
        cells = []
        for upper, lower in zip(pixels[row], pixels[min(row + 1, height - 1)], strict=True):
            below = f";48;{_color(lower, is_true=is_true)}" if row + 1 < height else ""
            cells.append(f"\x1b[38;{_color(upper, is_true=is_true)}{below}m▀")
        lines.append("".join(cells) + _END + " " * (columns - width))
    return lines


def _shrunk(image: Array, columns: int) -> Array:
    """Return an image of at most so many columns, in red, green and blue: means of squares of pixels."""
    pixels = as_bytes(image)
    pixels = pixels[..., np.newaxis] if pixels.ndim == 2 else pixels[..., :3]
    if pixels.shape[2] == 1:
        pixels = pixels.repeat(3, axis=2)
    step = -(-max(pixels.shape[:2]) // columns)
    height, width = (size // step for size in pixels.shape[:2])
    squares = pixels[: height * step, : width * step].reshape(height, step, width, step, 3)
    found: Array = squares.mean(axis=(1, 3)).round().astype(np.uint8)
    return found


def _color(pixel: Array, *, is_true: bool) -> str:
    red, green, blue = pixel.tolist()
    if is_true:
        return f"2;{red};{green};{blue}"
    six = [round(5 * value / 255) for value in (red, green, blue)]
    return f"5;{16 + 36 * six[0] + 6 * six[1] + six[2]}"
