"""`.npy` files: read in place, in C and in Fortran order."""

from collections.abc import Sequence

from penstock.core.rows import Rows
from penstock.io.formats.npy_header import NpyHeader, header_of
from penstock.io.location import Location
from penstock.sources.reading.file_rows import rows_of
from penstock.sources.reading.leaves import Leaf
from penstock.sources.reading.parts import Part, Request, attempt_each, no_rows
from penstock.sources.reading.regions import FortranRegion, Region
from penstock.sources.reading.whole_checks import WholeCheck


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the one array of each file; reads their headers."""
    opened = attempt_each(
        locations, lambda location: _open(location, direct=request.direct), request
    )
    return rows_of(*opened, request)


def _open(location: Location, *, direct: bool) -> Part:
    leaf = leaf_of_header(location, header_of(location), "", direct=direct)
    return Part(str(location), {"": leaf})


def leaf_of_header(
    location: Location,
    header: NpyHeader,
    field: str,
    *,
    direct: bool,
    whole: WholeCheck | None = None,
) -> Leaf:
    """Return the leaf of an array that lies in a file as its header says."""
    if not header.shape:
        raise no_rows(str(location), field)
    is_spread = header.fortran_order and len(header.shape) > 1
    make = FortranRegion if is_spread else Region
    offset = header.data_offset
    return make(location, offset, header.dtype, header.shape, direct=direct, whole=whole)
