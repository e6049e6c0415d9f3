"""Which library decodes an image: that follows from the file, never from what is installed."""

from collections.abc import Iterable

from penstock.core.optional import require
from penstock.io.location import Location
from penstock.sources.images.by_pillow import PillowPicture, formats_of
from penstock.sources.images.jpeg import JpegPicture
from penstock.sources.images.picture import Picture
from penstock.sources.images.png import PngPicture


def require_decoders(locations: Iterable[Location]) -> None:
    """Raise ImportError if a library is missing that one of the files needs, or may need."""
    first = next(iter(locations))
    require("PIL", f"reading {first.suffix or 'images'}", "images")
    jpeg = next((one for one in locations if _may_be_jpeg(one)), None)
    if jpeg is not None:
        require("simplejpeg", f"reading {jpeg.suffix or 'images'}", "images")


def open_picture(
    location: Location, size: tuple[int, int] | None, *, verify: bool = True
) -> Picture:
    """Return an image, of which the header is read; `size` is the height and width that it shall have."""
    kinds = formats_of(location)
    for one in (JpegPicture, PngPicture):
        found = one.opened(location, size, verify=verify) if one.kind in kinds else None
        if found is not None:
            return found
    return PillowPicture(location, size, verify=verify)


def _may_be_jpeg(location: Location) -> bool:
    return JpegPicture.kind in formats_of(location)
