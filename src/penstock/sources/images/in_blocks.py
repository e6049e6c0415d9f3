"""Images that lie in other files, decoded to the rows of a block: for tars and for records."""

import numpy as np

from penstock.core.arrays import Array
from penstock.core.blocks import Sink
from penstock.core.columns import Fixed, column_of
from penstock.core.rows import Context
from penstock.core.spec import ArraySpec
from penstock.errors import BudgetError, SpecMismatchError
from penstock.io.inner import InnerFile
from penstock.memory import format_nbytes
from penstock.sources.images.decoders import open_picture
from penstock.sources.images.picture import HEAD_NBYTES, Picture


def decode_picture(
    file: InnerFile,
    size: tuple[int, int] | None,
    spec: ArraySpec,
    sink: Sink,
    slot: int,
    context: Context,
    *,
    verify: bool,
) -> None:
    """Decode one image to a row of a column; what that takes is counted, or refused before it is taken."""
    nbytes = min(file.size, HEAD_NBYTES)
    try:
        with context.hold(nbytes):
            picture = open_picture(file, size, verify=verify)
        with picture:
            height, width, _ = picture.shape
            depth = spec.shape[2] or 0
            if not spec.admits((height, width, depth)):
                wanted = f"{spec.shape[0]} x {spec.shape[1]}"
                raise SpecMismatchError(
                    f"{file}: is {picture.height} x {picture.width}, and the others that were looked at are {wanted}; "
                    f"give them one size: size=({spec.shape[0]}, {spec.shape[1]})."
                )
            nbytes = picture.nbytes + (3 * height * width if depth == 1 else 0)
            with context.hold(nbytes):
                _put(picture, depth, sink, slot, context)
    except BudgetError as error:
        budget = context.budget or 0
        raise BudgetError(
            f"{file}: decoding it takes {format_nbytes(nbytes)}, more than the memory budget of "
            f"{format_nbytes(budget)} has left. Write with_options(memory={2 * (budget + nbytes)}), or more, "
            "or make the image smaller.",
            is_final=True,
        ) from error


def _put(picture: Picture, depth: int, sink: Sink, slot: int, context: Context) -> None:
    if isinstance(sink, Fixed) and depth == 3:
        picture.decode(sink.room(slot))
        return
    image = decoded(picture, depth)
    if isinstance(sink, Fixed):
        sink.room(slot)[:] = image
        return
    column = column_of([image], sink.spec, context.allocate, aligned=False)
    sink.at(np.array([slot])).add(column)


def decoded(picture: Picture, depth: int) -> Array:
    """Return the pixels, with three colours or as grey."""
    image: Array = np.empty(picture.shape, np.uint8)
    picture.decode(image)
    return image if depth == 3 else grey(image)


def grey(image: Array) -> Array:
    """Return the brightness of pixels, (height, width, 1), by the weights of ITU-R 601, as Pillow has them.

    >>> grey(np.full((1, 1, 3), 77, np.uint8)).tolist()
    [[[77]]]
    """
    weights = np.array([19595, 38470, 7471], np.uint32)  # Of 2**16.
    total = (image.astype(np.uint32) * weights).sum(axis=2, keepdims=True, dtype=np.uint32)
    brightness: Array = ((total + (1 << 15)) >> 16).astype(np.uint8)
    return brightness
