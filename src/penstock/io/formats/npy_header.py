"""The `.npy` format: headers read without trust and without pickle, and headers written.

No memory is allocated on a header's word: a shape is compared with the bytes that are really there
before it is used.
"""

import ast
import functools
import math
import re
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.lib.format as npy

from penstock.core import forking
from penstock.core.spec import plain_dtype
from penstock.errors import DataError, FieldError
from penstock.io.location import Location
from penstock.io.open import open_reader, read_start
from penstock.io.reader import Reader, read_bytes

MAGIC = b"\x93NUMPY"
# The longest header that version 1 can have; a thousand named columns still fit.
MAX_HEADER = 1 << 16
# The magic bytes, the version, and the longest form of the header's length.
PREFIX_NBYTES = 12
# Most headers have 128 bytes, so that one request to a server is enough.
_FIRST_READ = 512
_MAX_DIMENSIONS = 64
_MAX_DEPTH = 16
_MAX_NBYTES = 2**63 - 1
_ALIGNMENT = 64  # of the data in the file, as NumPy aligns it
# Room for the digits of the number of rows, which may grow when a header is rewritten in place; as NumPy leaves it.
_MAX_DIGITS = 21

# What a header may consist of: no operators, names or calls. Escapes are those that repr writes.
# Python 3.11 counts the depth of all syntax trees that threads make at once in one place, and fails if they mix it up.
_parsing = forking.lock()
_TOKEN = re.compile(
    r"""\s+ | [()\[\]{},:] | True | False | (?P<number>\d{1,20})L?
    | '(?:[^'\\\n]|\\[\\'"nrtxuU])*' | "(?:[^"\\\n]|\\[\\'"nrtxuU])*" """,
    re.VERBOSE,
)
_PLAIN_DTYPE = re.compile(
    r"[<>|=]?(?:\?|b1|[iu][1248]|f(?:2|4|8|12|16)|c(?:8|16|24|32)|[SUV]\d{1,10}"
    r"|[mM]8(?:\[\d{0,9}[A-Za-z]{1,8}\])?)|bool|u?int(?:8|16|32|64)|float(?:16|32|64)|complex(?:64|128)"
)
_OBJECT_CURE = (
    "Its rows are Python objects, stored as pickle, which can run code and is never loaded. "
    "Save it as a plain array: np.save(path, np.asarray(list(array), dtype='float32')), "
    "or rows of unequal length as values and offsets."
)


@dataclass(frozen=True, slots=True)
class NpyHeader:
    """What an `.npy` header says: the array's dtype and shape, and where its data starts.

    Args:
        dtype: Never one with Python objects.
        shape: Of the whole array.
        fortran_order: Whether the first index varies fastest.
        data_offset: Where the first element is, from the beginning of the file.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran_order: bool
    data_offset: int

    @property
    def nbytes(self) -> int:
        """How many bytes the data has."""
        return math.prod(self.shape) * self.dtype.itemsize


def read_header(reader: Reader, *, offset: int = 0, nbytes: int | None = None) -> NpyHeader:
    """Return the header of the `.npy` that starts at `offset` and has `nbytes` (default: the rest).

    Reads and holds at most 64 KB.
    """
    file = str(reader.location)
    end = reader.size if nbytes is None else offset + nbytes
    head = read_bytes(reader, offset, max(min(_FIRST_READ, end - offset), 0))
    length = header_nbytes(head[:PREFIX_NBYTES], file=file, offset=offset)
    if length > end - offset:
        raise _cut_off(file, offset, f"the header has {length} bytes", end - offset)
    if length > len(head):
        head += read_bytes(reader, offset + len(head), length - len(head))
    return parse_header(head[:length], file=file, offset=offset, nbytes=end - offset)


def header_of(location: Location) -> NpyHeader:
    """Return the header of an `.npy` file; most files are opened and read once for it."""
    head = read_start(location, _FIRST_READ)
    file = str(location)
    length = header_nbytes(head[:PREFIX_NBYTES], file=file)
    if length <= len(head):
        return parse_header(head[:length], file=file, nbytes=location.size)
    with open_reader(location) as reader:
        return read_header(reader)


def header_nbytes(prefix: bytes, *, file: str, offset: int = 0) -> int:
    """Return how long the whole header is, from its first `PREFIX_NBYTES` bytes."""
    if len(prefix) < len(MAGIC) + 4 or not prefix.startswith(MAGIC):
        problem = f"not an .npy file: it starts with {prefix[:8]!r} instead of {MAGIC!r}"
        raise DataError(problem, file=file, offset=offset, cure="Check what wrote it.")
    version = (prefix[6], prefix[7])
    if version not in ((1, 0), (2, 0), (3, 0)):
        problem = f".npy version {version[0]}.{version[1]} is not known: versions 1.0 to 3.0 are"
        raise DataError(problem, file=file, offset=offset + 6, cure="Save it again with np.save.")
    form = "<H" if version == (1, 0) else "<I"
    start = 8 + struct.calcsize(form)
    if len(prefix) < start:
        raise _cut_off(file, offset, f"the header has more than {start} bytes", len(prefix))
    (length,) = struct.unpack_from(form, prefix, 8)
    if length > MAX_HEADER:
        problem = f"the header claims {length} bytes, more than the {MAX_HEADER} that are allowed"
        raise DataError(problem, file=file, offset=offset + 8, cure="Save it with fewer columns.")
    return start + int(length)


def parse_header(
    header: bytes, *, file: str, offset: int = 0, nbytes: int | None = None
) -> NpyHeader:
    """Return what a whole header says, checked against `nbytes`, the size of header and data together."""
    try:
        dtype, shape, fortran_order = _parsed(header)
    except _WrongError as error:
        start = offset + _text_start(header)
        raise error.kind(error.problem, file=file, offset=start, cure=error.cure) from (
            error.__cause__
        )
    result = NpyHeader(dtype, shape, fortran_order, offset + len(header))
    if nbytes is not None and result.nbytes > nbytes - len(header):
        claim = f"the header claims shape {shape} of {dtype}, which takes {result.nbytes} bytes"
        raise _cut_off(file, result.data_offset, claim, nbytes - len(header))
    return result


class _WrongError(Exception):
    """A header that can't be used: all that is said of it but for the file that it is in."""

    def __init__(
        self,
        problem: str,
        cure: str = "Save the array again with np.save.",
        kind: type[DataError] = DataError,
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.cure = cure
        self.kind = kind


def _text_start(header: bytes) -> int:
    return 10 if header[6] == 1 else 12


# Files of one shape and dtype have the same header, byte for byte: thousands of files are parsed once. A header has
# 64 KB at most, so these take no more than 4 MB.
@functools.lru_cache(maxsize=64)
def _parsed(header: bytes) -> tuple[np.dtype[Any], tuple[int, ...], bool]:
    """Return the dtype, the shape, and whether the first index varies fastest."""
    encoding = "utf-8" if header[6] == 3 else "latin-1"
    try:
        fields = _literal(header[_text_start(header) :].decode(encoding))
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise _WrongError(f"the header is damaged: {str(error)[:200]}") from error
    if not isinstance(fields, dict) or set(fields) != {"descr", "fortran_order", "shape"}:
        raise _WrongError("the header must hold descr, fortran_order and shape, and nothing else")
    fortran_order, shape = fields["fortran_order"], fields["shape"]
    if not isinstance(fortran_order, bool):
        raise _WrongError(f"fortran_order must be True or False, got {fortran_order!r:.50}")
    if not isinstance(shape, tuple) or not all(type(size) is int for size in shape):
        raise _WrongError(f"shape must be a tuple of whole numbers, got {shape!r:.50}")
    if len(shape) > _MAX_DIMENSIONS:
        raise _WrongError(f"shape must have at most {_MAX_DIMENSIONS} dimensions, got {len(shape)}")
    dtype = _dtype(fields["descr"])
    # Sizes of 0 don't count: NumPy refuses an array whose other sizes are too large, though it would be empty.
    if math.prod(size for size in shape if size) * max(dtype.itemsize, 1) > _MAX_NBYTES:
        raise _WrongError(f"shape {shape} of {dtype} is larger than any memory can address")
    return dtype, shape, fortran_order


def format_header(
    dtype: np.dtype[Any], shape: tuple[int, ...], *, fortran_order: bool = False
) -> bytes:
    """Return the header for an array, byte for byte as np.save writes it.

    Its length is the same for any number of rows, so that it can be rewritten once they are known.

    >>> header = format_header(np.dtype("float32"), (10, 3))
    >>> len(header), len(format_header(np.dtype("float32"), (10**12, 3)))
    (128, 128)
    """
    dtype = np.dtype(dtype)
    if dtype.hasobject:
        raise ValueError(f"an .npy file holds no Python objects, got dtype {dtype}.")
    fields = {
        "descr": npy.dtype_to_descr(plain_dtype(dtype)),
        "fortran_order": bool(fortran_order),
        "shape": tuple(int(size) for size in shape),
    }
    text = "{" + "".join(f"'{key}': {value!r}, " for key, value in fields.items()) + "}"
    if shape:
        growing = shape[-1] if fortran_order else shape[0]
        text += " " * (_MAX_DIGITS - len(str(int(growing))))
    for version, form, encoding in ((1, "<H", "latin-1"), (2, "<I", "latin-1"), (3, "<I", "utf-8")):
        try:
            body = text.encode(encoding)
        except UnicodeEncodeError:
            continue
        start = len(MAGIC) + 2 + struct.calcsize(form)
        padding = _ALIGNMENT - (start + len(body) + 1) % _ALIGNMENT
        length = len(body) + padding + 1
        if form == "<H" and length > 0xFFFF:
            continue
        prefix = MAGIC + bytes((version, 0)) + struct.pack(form, length)
        return prefix + body + b" " * padding + b"\n"
    raise ValueError("names of columns must be text that can be encoded as UTF-8.")


def _literal(text: str) -> Any:
    """Return the value of a literal of dicts, tuples, lists, strings, numbers and truth values."""
    position = depth = 0
    parts = []
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            raise ValueError(f"unexpected {text[position : position + 20]!r}")
        position = token.end()
        part = token[0]
        depth += (part in "([{") - (part in ")]}") if len(part) == 1 else 0
        if depth > _MAX_DEPTH:
            raise ValueError(f"brackets more than {_MAX_DEPTH} deep")
        parts.append(token["number"] or part)  # Python 2 wrote 10L
    with _parsing:
        return ast.literal_eval("".join(parts).strip())


def _dtype(descr: Any) -> np.dtype[Any]:
    for plain in _plain_parts(descr):
        if plain.lstrip("<>|=") in ("O", "O4", "O8", "object"):
            raise _WrongError(
                "the array holds Python objects (dtype object)", _OBJECT_CURE, FieldError
            )
        if not _PLAIN_DTYPE.fullmatch(plain):
            raise _WrongError(f"dtype {plain!r:.50} is not one of NumPy's plain ones")
    try:
        found = npy.descr_to_dtype(descr)
    except Exception as error:  # NumPy raises errors of many types here
        raise _WrongError(f"descr is no dtype: {descr!r:.100}") from error
    if found.subdtype is not None:  # NumPy writes these sizes into the shape, and so should others.
        raise _WrongError(f"descr is a sub-array, which no array of NumPy's has: {descr!r:.100}")
    return found


def _plain_parts(descr: Any) -> list[str]:
    """Return the plain dtypes that a descr is made of: itself, or those of its fields."""
    if isinstance(descr, str):
        return [descr]
    if isinstance(descr, tuple) and len(descr) == 2:  # (descr, shape)
        return _plain_parts(descr[0])
    if isinstance(descr, list) and all(
        isinstance(one, tuple) and len(one) in (2, 3) for one in descr
    ):
        return [part for _, one, *_ in descr for part in _plain_parts(one)]
    raise _WrongError(f"descr is no dtype: {descr!r:.100}")


def _cut_off(file: str, offset: int, claim: str, present: int) -> DataError:
    problem = f"{claim}, but {max(present, 0)} bytes are there"
    cure = "The file is cut off, or its header was changed: copy it again from its original."
    return DataError(problem, file=file, offset=offset, cure=cure)
