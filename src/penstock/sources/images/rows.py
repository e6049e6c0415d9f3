"""Folders of images: a row is an image and its label, the folder it lies in. Decoded on threads."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.blocks import Block, Pieces, Sink
from penstock.core.columns import Fixed, column_of
from penstock.core.digests import array_digest
from penstock.core.evidence import Evidence
from penstock.core.fields import Field, tops_of
from penstock.core.nest import flatten
from penstock.core.rows import Context, Node, RowSet, as_index
from penstock.core.spec import ArraySpec
from penstock.errors import BudgetError, DataError, SpecMismatchError
from penstock.io.location import Location
from penstock.memory import default_budget, format_nbytes
from penstock.sources.images.decoders import open_picture, require_decoders
from penstock.sources.images.picture import HEAD_NBYTES, RULES, Picture
from penstock.sources.reading.bad_rows import BadRun, SkippableRows
from penstock.sources.reading.file_rows import chosen_fields
from penstock.sources.reading.parts import (
    BAD,
    Request,
    attempt_each,
    bad,
    check_names,
    skipped_words,
)

_MOST_LOOKED_AT = 512  # Images whose sizes are read when the dataset is built.
_OUTLIER = 16  # An image that takes so many times what most take is far larger than they are.
_ROW_NBYTES = 24  # What an image takes in a block besides its pixels, where they differ in size.
_MOST_LOOKED_AT_AFAR = 16  # Of images behind URLs that get a size anyway: each is a request.


def open_format(locations: Sequence[Location], request: Request) -> "ImageRows":
    """Return the images of folders, with labels; reads the headers of some of them."""
    require_decoders(locations)
    names, structure = chosen_fields(str(locations[0]), ("image", "label"), request)
    check_names(str(locations[0]), names, {"image": None, "label": None})
    return ImageRows(locations, names, structure, checked_size(request.size), request)


def checked_size(size: Any) -> tuple[int, int] | None:
    """Return the height and width that images shall have, or raise if that is none."""
    if size is None:
        return None
    if isinstance(size, int):
        size = (size, size)
    if len(size) != 2 or any(isinstance(s, bool) or not isinstance(s, int) or s < 1 for s in size):
        raise ValueError(f"size must be (height, width), each at least 1, got {size!r}.")
    return tuple(size)


class ImageRows(SkippableRows):
    """Row i is file i: fields `image`, uint8 (height, width, 3), and `label`, an int64."""

    def __init__(
        self,
        locations: Sequence[Location],
        names: Sequence[str],
        structure: Any,
        size: tuple[int, int] | None,
        request: Request,
    ) -> None:
        self.locations = locations
        self.names = names
        self.structure = structure
        self.size = size
        self.verify = request.verify
        # The classes of all files: skipping a bad image must not change the number of a class.
        self.classes = tuple(sorted({_label(location) for location in locations}))
        self.is_sampled = False
        self.is_forgiving = False
        """Whether an image that is far larger than the others, and than there is room for, is a bad one."""
        self.largest: _Look | None = None
        """Of the images that were looked at, the one that takes most to decode."""
        self.usual: _Look | None = None
        """The same, but for images that are far larger than the others."""
        self.usual_image: Field | None = None
        """The field of the images without those, where they differ in size."""
        image = self._image_field(request) if "image" in names else Field(ArraySpec((), np.int64))
        self.num_rows = len(self.locations)
        numbers = {label: number for number, label in enumerate(self.classes)}
        self.labels = np.array([numbers[_label(one)] for one in self.locations], np.int64)
        self.fields = tuple(
            image if name == "image" else Field(ArraySpec((), np.int64)) for name in names
        )
        self.image = image

    def _image_field(self, request: Request) -> Field:
        """Return the field of the images, from the sizes of some; bad ones among these are skipped."""
        if self.size is not None:
            self._look_for_largest(request)
            return Field(ArraySpec((*self.size, 3), np.uint8))
        step = -(-len(self.locations) // _MOST_LOOKED_AT)
        looked_at = self.locations[::step]
        self.is_sampled = step > 1
        _, looks = attempt_each(looked_at, lambda one: _look(one, None), request)
        looks = self._note(looks, request)
        if len(looks) < len(looked_at):
            bad_urls = {one.url for one in looked_at} - {look.location.url for look in looks}
            self.locations = [one for one in self.locations if one.url not in bad_urls]
        sizes = [(look.height, look.width) for look in looks]
        if len(set(sizes)) == 1:
            return Field(ArraySpec((*sizes[0], 3), np.uint8))
        assert self.usual is not None
        self.usual_image = self._varying_field(
            [look for look in looks if look.nbytes <= self.usual.nbytes]
        )
        return self._varying_field(looks)

    def _varying_field(self, looks: list["_Look"]) -> Field:
        rows = [look.height * look.width * 3 + _ROW_NBYTES for look in looks]
        tops = () if self.is_sampled else tops_of(rows)
        mean = sum(rows) // len(rows)
        return Field(ArraySpec((None, None, 3), np.uint8), estimate=mean, tops=tops)

    def _note(self, looks: list["_Look"], request: Request) -> list["_Look"]:
        """Note the largest images, and return all, without those that break every plan if bad files are skipped."""
        usual = _OUTLIER * sorted(look.nbytes for look in looks)[len(looks) // 2]
        kept = looks
        if request.skip:
            most = max(usual, default_budget())
            kept = [look for look in looks if look.nbytes <= most]
            large = (look for look in looks if look.nbytes > most)
            request.skipped.extend(
                _too_large(one.location, _decoding(one), one.nbytes) for one in large
            )
        self.largest = max(kept, key=lambda look: look.nbytes)
        self.usual = max(
            (look for look in kept if look.nbytes <= usual), key=lambda look: look.nbytes
        )
        return kept

    def _look_for_largest(self, request: Request) -> None:
        """Find out what decoding takes; an image that can't be opened is an error when it is read."""
        is_remote = self.locations[0].is_remote
        most = _MOST_LOOKED_AT_AFAR if is_remote else _MOST_LOOKED_AT
        step = -(-len(self.locations) // most)
        self.is_sampled = step > 1
        looks = []
        for location in self.locations[::step]:
            with suppress(*BAD):
                looks.append(_look(location, self.size))
        if looks:
            kept = self._note(looks, request)
            bad_urls = {one.location.url for one in looks} - {one.location.url for one in kept}
            self.locations = [one for one in self.locations if one.url not in bad_urls]

    def with_errors(self, on_error: str) -> Node:
        """Return the rows, or the flow that skips bad ones; only then is an image too large a bad one."""
        if self.is_forgiving == (on_error == "skip"):
            return super().with_errors(on_error)
        other = copy.copy(self)
        other.is_forgiving = not self.is_forgiving
        if self.usual_image is not None:
            other.image, other.usual_image = self.usual_image, self.image
            other.fields = tuple(
                other.image if name == "image" else field
                for name, field in zip(self.names, self.fields, strict=True)
            )
        return other.with_errors(on_error)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read and decode the images one after the other; threads do so side by side."""
        index = as_index(rows)
        for name, sink in zip(self.names, out.sinks, strict=True):
            if name == "label":
                assert isinstance(sink, Fixed)
                sink.put(self.labels[index])
                continue
            for slot, row in enumerate(index.tolist()):
                if context.executor.is_closing:
                    return
                self._decode(row, context, partial(_put, sink, slot, context))

    def only(self, number: int) -> "ImageRows | None":
        """Return the labels alone: they are known without decoding an image."""
        if self.names[number] != "label":
            return None
        made = copy.copy(self)
        made.names, made.structure = ["label"], flatten(0)[1]
        made.fields = (self.fields[number],)
        return made

    def bad_runs(self, start: int, stop: int, context: Context) -> Iterator[BadRun]:
        """Yield the images that can't be decoded."""
        for row in range(start, stop) if "image" in self.names else ():
            if context.executor.is_closing:
                return
            try:
                self._decode(row, context, _decoded)
            except BAD as error:
                yield BadRun(row, row + 1, str(self.locations[row]), bad(error))

    def _decode(self, row: int, context: Context, put: Callable[[Picture], object]) -> None:
        """Decode one image to some place; what that takes is counted, or refused before it is taken."""
        location = self.locations[row]
        what = "opening it"
        nbytes = min(location.size, HEAD_NBYTES)
        try:
            with context.hold(nbytes):
                picture = open_picture(location, self.size, verify=self.verify)
            with picture:
                what = _decoding(picture)
                nbytes = picture.nbytes
                self._check_shape(picture)
                with context.hold(nbytes):
                    put(picture)
        except BudgetError as error:
            if self.is_forgiving and self.usual is not None and nbytes > self.usual.nbytes:
                raise _too_large(location, what, nbytes) from error
            budget = context.budget or 0
            raise BudgetError(
                f"{location}: {what} takes {format_nbytes(nbytes)}, more than the memory budget of "
                f"{format_nbytes(budget)} has left. Write with_options(memory={2 * (budget + nbytes)}), or more, "
                "or make the image smaller.",
                is_final=True,
            ) from error

    def _check_shape(self, picture: Picture) -> None:
        if not self.image.spec.admits(picture.shape):
            raise SpecMismatchError(
                f"{picture.location}: is {picture.height} x {picture.width}, and the others that were looked at are "
                f"{self.image.spec.shape[0]} x {self.image.spec.shape[1]}; give them one size: "
                f"from_files(..., size=({self.image.spec.shape[0]}, {self.image.spec.shape[1]}))."
            )

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of the largest image while it is decoded, and of images on their way to the block."""
        if "image" not in self.names:
            return 0
        look = self._heaviest()
        heaviest = 1 << 20 if look is None else look.nbytes
        header = min(HEAD_NBYTES, max((one.size for one in self.locations), default=0))
        moving = 0 if self.image.storage_shape else 2 * self.block_nbytes(num_rows)
        return max(heaviest, header) + moving

    def _heaviest(self) -> "_Look | None":
        return self.usual if self.is_forgiving else self.largest

    def heaviest(self) -> str:
        """Return the largest of the images that were looked at."""
        look = self._heaviest()
        if look is None:
            return ""
        return (
            f"decoding {look.location}, {look.width} x {look.height} pixels, takes "
            f"{format_nbytes(look.nbytes)}"
        )

    def locate(self, row: int, epoch: int) -> str:
        """Return the file."""
        return str(self.locations[row])

    def describe(self) -> str:
        """Return the call that made it."""
        size = f", size={self.size}" if self.size else ""
        return f"from_files({self.num_rows} images in {len(self.classes)} folders{size})"

    def fingerprint(self) -> Any:
        """Return the classes and names of the files, and what their pixels are."""
        names = [location.name for location in self.locations]
        return [
            "images",
            RULES,
            list(self.classes),
            names,
            self.image.spec.to_json(),
            list(self.names),
        ]

    def evidence(self) -> Iterator[Evidence]:
        """Yield the files, and the labels: these are names of folders, which a file can be moved between."""
        yield from super().evidence()
        yield Evidence("the labels of the images", lambda: array_digest(self.labels), "values")

    def choice(self) -> str:
        """Return how they are read, and which label is which folder."""
        classes = [f"{number} = {name}" for number, name in enumerate(self.classes[:8])]
        more = ", ..." if len(self.classes) > len(classes) else ""
        sampled = f", sizes of {_MOST_LOOKED_AT} looked at" if self.is_sampled else ""
        return f"decoded on the threads{sampled}; labels: {', '.join(classes)}{more}{skipped_words(self)}"


def _label(location: Location) -> str:
    """Return the name of the folder that an image lies in."""
    return location.url.rstrip("/").rpartition("/")[0].rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class _Look:
    """What the header of an image tells."""

    location: Location
    height: int
    width: int
    nbytes: int
    """What decoding it takes."""


def _look(location: Location, size: tuple[int, int] | None) -> _Look:
    with open_picture(location, size) as picture:
        return _Look(location, picture.height, picture.width, picture.nbytes)


def _decoding(image: "_Look | Picture") -> str:
    return f"decoding its {image.width} x {image.height} pixels"


def _too_large(location: Location, what: str, nbytes: int) -> DataError:
    """Return the error of an image that is far larger than the others, and that there is no room for."""
    return DataError(
        f"{what} takes {format_nbytes(nbytes)}, far more than the others take and than there is room for",
        file=str(location),
        cure="Make it smaller, or leave it out.",
    )


def _put(sink: Sink, slot: int, context: Context, picture: Picture) -> None:
    if isinstance(sink, Pieces):
        image = _decoded(picture)
        column = column_of([image], sink.spec, context.allocate, aligned=False)
        sink.at(np.array([slot])).add(column)
    else:
        picture.decode(sink.room(slot))


def _decoded(picture: Picture) -> Array:
    image = np.empty(picture.shape, np.uint8)
    picture.decode(image)
    return image
