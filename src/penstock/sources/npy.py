"""`.npy` files: read in place, in C and in Fortran order."""

from penstock.io.location import Location
from penstock.io.npy_format import NpyHeader, read_header
from penstock.io.open import open_reader
from penstock.sources.leaves import Leaf
from penstock.sources.parts import Part, no_rows
from penstock.sources.regions import FortranRegion, Region


def open_npy(location: Location, *, direct: bool) -> Part:
    """Return the one array of a file; reads its header."""
    with open_reader(location) as reader:
        header = read_header(reader)
    return Part(str(location), {"": leaf_of_header(location, header, "", direct=direct)})


def leaf_of_header(location: Location, header: NpyHeader, field: str, *, direct: bool) -> Leaf:
    """Return the rows of an array that lies in a file as its header says."""
    if not header.shape:
        raise no_rows(str(location), field)
    is_spread = header.fortran_order and len(header.shape) > 1
    make = FortranRegion if is_spread else Region
    return make(location, header.data_offset, header.dtype, header.shape, direct=direct)
