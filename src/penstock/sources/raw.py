"""Raw binary files: rows of a declared dtype and shape, and nothing else."""

from collections.abc import Sequence

from penstock.core.rows import Rows
from penstock.core.spec import ArraySpec
from penstock.errors import DataError
from penstock.io.location import Location
from penstock.sources.reading.file_rows import rows_of
from penstock.sources.reading.parts import Part, Request, attempt_each
from penstock.sources.reading.regions import Region


def open_format(locations: Sequence[Location], request: Request) -> Rows:
    """Return the rows of files without a header; reads nothing."""
    opened = attempt_each(
        locations, lambda location: _open(location, request.spec, direct=request.direct), request
    )
    return rows_of(*opened, request)


def _open(location: Location, spec: ArraySpec | None, *, direct: bool) -> Part:
    if not isinstance(spec, ArraySpec) or not spec.is_fixed or spec.nbytes == 0:
        raise ValueError(
            f"a raw file needs the spec of its rows, of a fixed size, got {spec!r}.\n"
            '  right: from_files("x.bin", format="raw", spec=ps.ArraySpec((28, 28), "uint8"))'
        )
    num_rows, rest = divmod(location.size, spec.nbytes)
    if rest:
        raise DataError(
            f"has {location.size} bytes, which is not a whole number of rows of {spec.nbytes} bytes",
            file=str(location),
            cure="Check the spec, or whether the file has a header or is cut off.",
        )
    shape = (num_rows, *spec.fixed_shape)
    return Part(str(location), {"": Region(location, 0, spec.numpy_dtype, shape, direct=direct)})
