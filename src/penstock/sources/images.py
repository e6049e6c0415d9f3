"""Folders of images: a row is an image and its label, the folder it lies in. Decoded on threads."""

import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.blocks import Block, Pieces
from penstock.core.columns import Fixed, column_of
from penstock.core.digests import array_digest
from penstock.core.evidence import Evidence
from penstock.core.fields import Field
from penstock.core.optional import require
from penstock.core.rows import Context, RowSet, as_index
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FileError, SpecMismatchError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.seekable import SeekableFile
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
_MOST_PIXELS = 1 << 28  # An image that claims more is an attack, or needs another tool.
# An image is opened as what its name says, and as nothing else: Pillow would run Ghostscript for an EPS of any name.
_PILLOW_FORMATS = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".bmp": "BMP",
    ".webp": "WEBP",
    ".gif": "GIF",
    ".tif": "TIFF",
    ".tiff": "TIFF",
}


def open_format(locations: Sequence[Location], request: Request) -> "ImageRows":
    """Return the images of folders, with labels; reads the headers of some of them."""
    require("PIL", f"reading {locations[0].suffix or 'images'}", "images")
    names, structure = chosen_fields(str(locations[0]), ("image", "label"), request)
    check_names(str(locations[0]), names, {"image": None, "label": None})
    return ImageRows(locations, names, structure, _checked_size(request.size), request)


def _checked_size(size: Any) -> tuple[int, int] | None:
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
        # The classes of all files: skipping a bad image must not change the number of a class.
        self.classes = tuple(sorted({_label(location) for location in locations}))
        self.is_sampled = False
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
            return Field(ArraySpec((*self.size, 3), np.uint8))
        step = -(-len(self.locations) // _MOST_LOOKED_AT)
        looked_at = self.locations[::step]
        self.is_sampled = step > 1
        good, sizes = attempt_each(looked_at, _size_of, request)
        if len(good) < len(looked_at):
            bad_urls = {one.url for one in looked_at} - {one.url for one in good}
            self.locations = [one for one in self.locations if one.url not in bad_urls]
        if len(set(sizes)) == 1:
            return Field(ArraySpec((*sizes[0], 3), np.uint8))
        mean = sum(height * width * 3 for height, width in sizes) // len(sizes)
        return Field(ArraySpec((None, None, 3), np.uint8), estimate=mean + 24)

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
                image = self._decoded(self.locations[row], row)
                if isinstance(sink, Pieces):
                    sink.at(np.array([slot])).add(_column(image, sink, context))
                else:
                    sink.put_row(slot, image)

    def bad_runs(self, start: int, stop: int, context: Context) -> Iterator[BadRun]:
        """Yield the images that can't be decoded."""
        for row in range(start, stop) if "image" in self.names else ():
            if context.executor.is_closing:
                return
            try:
                self._decoded(self.locations[row], row)
            except BAD as error:
                yield BadRun(row, row + 1, str(self.locations[row]), bad(error))

    def _decoded(self, location: Location, row: int) -> Array:
        image = _decode(location, self.size)
        if not self.image.spec.admits(image.shape):
            raise SpecMismatchError(
                f"{location}: is {image.shape[0]} x {image.shape[1]}, and the others that were looked at are "
                f"{self.image.spec.shape[0]} x {self.image.spec.shape[1]}; give them one size: "
                f"from_files(..., size=({self.image.spec.shape[0]}, {self.image.spec.shape[1]}))."
            )
        return image

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes of an image as it lies in its file, decoded, and in its final size."""
        largest = max((location.size for location in self.locations), default=0)
        decoded = 8 * self.image.nbytes  # An image may be far larger than the size that is wanted.
        return largest + max(decoded, 1 << 20)

    def locate(self, row: int, epoch: int) -> str:
        """Return the file."""
        return str(self.locations[row])

    def describe(self) -> str:
        """Return the call that made it."""
        size = f", size={self.size}" if self.size else ""
        return f"from_files({self.num_rows} images in {len(self.classes)} folders{size})"

    def fingerprint(self) -> Any:
        """Return the classes and names of the files."""
        names = [location.name for location in self.locations]
        return ["images", list(self.classes), names, self.image.spec.to_json(), list(self.names)]

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


def _column(image: Array, sink: Pieces, context: Context) -> Any:
    return column_of([image], sink.spec, context.allocate, aligned=False)


def _formats_of(location: Location) -> list[str]:
    """Return what an image may be, in Pillow's words: what its name says; any of ours if it says nothing."""
    claimed = _PILLOW_FORMATS.get(location.suffix)
    return sorted({*_PILLOW_FORMATS.values()}) if claimed is None else [claimed]


def _opened(location: Location, reader: Any) -> Any:
    image_module = require("PIL.Image", f"reading {location.suffix}", "images")
    with warnings.catch_warnings():
        # Pillow warns of images that claim many pixels; we refuse those ourselves.
        warnings.simplefilter("ignore", image_module.DecompressionBombWarning)
        return image_module.open(SeekableFile(reader), formats=_formats_of(location))


def _size_of(location: Location) -> tuple[int, int]:
    with open_reader(location) as reader:
        try:
            width, height = _opened(location, reader).size
        except FileError:
            raise
        except Exception as error:
            raise _damaged(error, location) from error
    _check_pixels(width, height, location)
    return height, width


def _decode(location: Location, size: tuple[int, int] | None) -> Array:
    image_module = require("PIL.Image", f"reading {location.suffix}", "images")
    with open_reader(location, direct=False) as reader:
        try:
            image = _opened(location, reader)
            _check_pixels(image.width, image.height, location)
            if size is not None:
                image.draft("RGB", (size[1], size[0]))  # Makes decoding a JPEG cheaper.
            image = image.convert("RGB")
            if size is not None and image.size != (size[1], size[0]):
                image = image.resize((size[1], size[0]), image_module.Resampling.BILINEAR)
            return np.asarray(image)
        except FileError:
            raise
        except Exception as error:
            raise _damaged(error, location) from error


def _check_pixels(width: int, height: int, location: Location) -> None:
    if width * height > _MOST_PIXELS:
        raise DataError(
            f"claims {width} x {height} pixels",
            file=str(location),
            cure="Cut it into smaller images, or leave it out.",
        )


def _damaged(error: Exception, location: Location) -> DataError:
    # Pillow's message would name our file object, not the file.
    kinds = " or ".join(_formats_of(location))
    why = f"it is not {kinds}" if "cannot identify" in str(error) else str(error)
    return DataError(
        f"can't be decoded: {why}",
        file=str(location),
        cure="It may be damaged or cut off, or another kind of file: leave it out, copy it again, or give it "
        "the ending of what it is.",
    )
