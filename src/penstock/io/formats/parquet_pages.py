"""The pages of a Parquet column: what their headers claim, read before anything is unpacked.

pyarrow takes as much memory as a header asks for, and gives the sizes of encoded columns only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.errors import DataError
from penstock.io.reader import Reader, read_bytes

_WINDOW_NBYTES = 1 << 12
# A longer one is taken for damage: it has two values of a column at most.
_MOST_HEADER_NBYTES = 1 << 20
_SLACK = (
    128  # Old writers leave the header of the dictionary out when they count the bytes of a column.
)
_DATA, _DICTIONARY, _DATA_2 = 0, 2, 3  # The format's numbers for kinds of pages.
_CODED = (2, 8)  # ... and for encodings: numbers of words of the dictionary,
_DELTAS = (6, 7)  # ... and texts behind their lengths,
_PREFIXED = 7  # ... the second without the beginning they have in common with the one before.
_OPTIONAL, _REPEATED = 1, 2  # ... for how often a value comes,
_BYTE_ARRAY = 6  # ... and for a type.
_WORD_NBYTES = {"BOOLEAN": 1, "INT64": 8, "DOUBLE": 8, "INT96": 12, "FIXED_LEN_BYTE_ARRAY": 1}


@dataclass(frozen=True, slots=True)
class Pages:
    """The pages of one column of a row group."""

    largest: int = 0
    """The bytes of the largest page, packed and unpacked."""
    dictionary: int = 0
    """The bytes of the dictionary, unpacked; 0 if there is none."""
    num_words: int = 0
    """How many values the dictionary has."""
    num_coded: int = 0
    """How many values are stored as numbers of words of the dictionary."""
    is_coded_first: bool = False
    """Whether the first data page has such values."""
    densest: int = 1
    """The bytes of a value in the page that has most of them, of pages whose values are stored as they are."""
    has_prefixes: bool = False
    """Whether values are stored without what they have in common with the one before."""

    has_deltas: bool = False
    """Whether there are texts of which pyarrow can't make words of a dictionary."""

    @property
    def can_be_coded(self) -> bool:
        """Whether texts can be had as words of a dictionary."""
        return self.num_coded > 0 and not self.has_deltas

    def safe_rows(self, nbytes: int, longest_word: int | None = None) -> int:
        """Return how many texts surely decode to `nbytes`, or to a few times that."""
        if longest_word is None:
            longest_word = self.dictionary if self.num_coded else 1
        # One may be as long as all that is stored of those before it.
        longest = max(self.densest, longest_word, self.largest // 4 if self.has_prefixes else 1)
        return max(1, nbytes // longest)


def first_page(column: Any) -> int:
    """Return where the pages of a column begin, given pyarrow's metadata of the column of a row group."""
    start: int = column.data_page_offset
    if column.has_dictionary_page and 0 < (column.dictionary_page_offset or 0) < start:
        start = column.dictionary_page_offset
    return start


def read_pages(reader: Reader, column: Any, what: str) -> Pages:
    """Return what the headers of the pages of a column claim; raise a DataError if that can't be.

    `column` is pyarrow's metadata of the column of a row group, `what` names it in errors.
    """
    start = first_page(column)
    end = min(reader.size, start + column.total_compressed_size + _SLACK)
    headers = _Headers(reader, end, what)
    found = dict.fromkeys(("largest", "dictionary", "num_words", "num_coded"), 0) | {"densest": 1}
    first_coded: bool | None = None
    has_prefixes = has_deltas = False
    at, seen = start, 0
    while seen < column.num_values and at < end:
        begin, (fields, at) = at, headers.read(at)
        kind, unpacked, packed = (_number(fields, key) for key in (1, 2, 3))
        if unpacked < 0 or packed < 0 or at + packed > reader.size:
            raise headers.damaged(begin, f"a page claims {packed} bytes, and {unpacked} unpacked")
        at += packed
        found["largest"] = max(found["largest"], packed + unpacked)
        if kind == _DICTIONARY:
            words = _number(fields.get(7), 1)
            if words < 0 or words * _WORD_NBYTES.get(column.physical_type, 4) > unpacked:
                raise headers.damaged(
                    begin, f"a dictionary of {unpacked} bytes claims {words} words"
                )
            found["dictionary"], found["num_words"] = unpacked, words
        elif kind in (_DATA, _DATA_2):
            head = fields.get(5 if kind == _DATA else 8)
            values, encoding = _number(head, 1), _number(head, 2 if kind == _DATA else 4)
            seen += values
            if values < 0 or seen > column.num_values:
                raise headers.damaged(
                    begin,
                    f"its pages have {seen} values or more, and its footer says {column.num_values}",
                )
            is_coded = encoding in _CODED
            first_coded = is_coded if first_coded is None else first_coded
            has_prefixes |= encoding == _PREFIXED
            has_deltas |= encoding in _DELTAS
            if is_coded:
                found["num_coded"] += values
            elif values:
                found["densest"] = max(found["densest"], -(-unpacked // values))
    if seen != column.num_values:
        raise headers.damaged(at, f"has {seen} values, and its footer says {column.num_values}")
    return Pages(
        is_coded_first=bool(first_coded), has_prefixes=has_prefixes, has_deltas=has_deltas, **found
    )


def check_footer(reader: Reader, nbytes: int) -> bool:
    """Return whether columns are encrypted; raise a DataError if they are not what the schema says.

    pyarrow ends the process if it is asked for a column of either kind.
    """
    what = "its footer"
    if not 0 < nbytes <= reader.size - 12:
        return False  # pyarrow says what is wrong with it.
    offset = reader.size - 8 - nbytes
    headers = _Headers(reader, reader.size, what)
    try:
        footer, _ = _struct(read_bytes(reader, offset, nbytes), 0, 0)
    except (IndexError, ValueError) as error:
        raise headers.damaged(offset, str(error) or "it has no end") from None
    schema, groups = footer.get(2), footer.get(4)
    if not isinstance(schema, list) or not isinstance(groups, list):
        raise headers.damaged(offset, "it has no schema, or no row groups")
    leaves = _leaves(schema)
    is_encrypted = False
    for number, group in enumerate(groups):
        found = group.get(1) if isinstance(group, dict) else None
        columns = (
            [one if isinstance(one, dict) else {} for one in found]
            if isinstance(found, list)
            else []
        )
        is_encrypted |= any(isinstance(one.get(8), dict) for one in columns)
        is_sound = len(columns) == len(leaves) and all(
            leaf.describes(one.get(3)) or isinstance(one.get(8), dict)
            for one, leaf in zip(columns, leaves, strict=True)
        )
        if not is_sound:
            raise headers.damaged(
                offset, f"the columns of row group {number} are not those of the schema"
            )
    return is_encrypted


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A column of the schema: the number of its type, and how many of the lists and optional values it is in."""

    kind: int
    num_lists: int
    num_levels: int

    def describes(self, head: Any) -> bool:
        """Return whether the head of a column in a row group is of this type, and so are its statistics of sizes."""
        if not isinstance(head, dict) or _number(head, 1) != self.kind:
            return False
        sizes = head.get(16)
        if not isinstance(sizes, dict):
            return True
        if 1 in sizes and self.kind != _BYTE_ARRAY:
            return False
        counts = [len(one) if isinstance(one := sizes.get(key), list) else 0 for key in (2, 3)]
        return counts[0] in (0, self.num_lists + 1) and counts[1] in (0, self.num_levels + 1)


def _leaves(schema: list[Any]) -> list[_Leaf]:
    """Return the columns of a schema, which is a tree that lists each group before what is in it."""
    found = []
    groups: list[
        list[int]
    ] = []  # The children that are left, lists and levels, of each group around.
    for element in schema[1:]:
        while groups and not groups[-1][0]:
            groups.pop()
        around = groups[-1] if groups else [len(schema), 0, 0]
        around[0] -= 1
        repetition, num_children = _number(element, 3), _number(element, 5)
        num_lists = around[1] + (repetition == _REPEATED)
        num_levels = around[2] + (repetition in (_OPTIONAL, _REPEATED))
        if num_children > 0:
            groups.append([num_children, num_lists, num_levels])
        else:
            found.append(_Leaf(_number(element, 1), num_lists, num_levels))
    return found


def _number(fields: Any, key: int) -> int:
    """Return a number of a struct; -1 where there is none."""
    value = fields.get(key, -1) if isinstance(fields, dict) else -1
    return value if type(value) is int else -1


class _Headers:
    """The headers of pages, in Thrift's compact protocol."""

    def __init__(self, reader: Reader, end: int, what: str) -> None:
        self.reader = reader
        self.end = end
        self.what = what
        self.start = 0
        self.data = b""

    def read(self, at: int) -> tuple[Mapping[int, Any], int]:
        """Return the fields of the header at `at`, by number, and where it ends."""
        nbytes = _WINDOW_NBYTES
        while True:
            if not self.start <= at < self.start + len(self.data) or nbytes > _WINDOW_NBYTES:
                self.start, self.data = at, read_bytes(self.reader, at, min(nbytes, self.end - at))
            try:
                fields, place = _struct(self.data, at - self.start, 0)
            except IndexError:
                if self.start == at and (
                    at + len(self.data) >= self.end or nbytes >= _MOST_HEADER_NBYTES
                ):
                    raise self.damaged(at, "the header of a page has no end") from None
                nbytes *= 16
            except ValueError as error:
                raise self.damaged(at, f"there is no page where one should be: {error}") from None
            else:
                return fields, self.start + place

    def damaged(self, offset: int, problem: str) -> DataError:
        return DataError(
            f"{self.what} can't be decoded: {problem}",
            file=str(self.reader.location),
            offset=offset,
            cure="It may be damaged or cut off: compare it with its original.",
        )


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


def _struct(data: bytes, at: int, depth: int) -> tuple[dict[int, Any], int]:
    """Return the numbers and structs of a struct by their keys, and where it ends; all else is passed over."""
    fields: dict[int, Any] = {}
    key = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        if head >> 4:
            key += head >> 4
        else:
            raw, at = _varint(data, at)
            key = (raw >> 1) ^ -(raw & 1)
        fields[key], at = _value(data, at, head & 0xF, depth)


def _value(data: bytes, at: int, kind: int, depth: int) -> tuple[Any, int]:
    if depth > 8:
        raise ValueError("structs within structs")
    if kind in (1, 2):  # True and False, which are in the head.
        return kind == 1, at
    if kind == 3:
        return data[at], at + 1
    if kind in (4, 5, 6):
        raw, at = _varint(data, at)
        return (raw >> 1) ^ -(raw & 1), at
    if kind == 7:
        return None, at + 8
    if kind == 8:
        length, at = _varint(data, at)
        return None, at + length
    if kind in (9, 10):
        head = data[at]
        count, at = (head >> 4, at + 1) if head >> 4 != 15 else _varint(data, at + 1)
        inner = head & 0xF
        items = []
        for _ in range(count):
            # Truths of a list are a byte each, unlike those of a struct.
            item, at = (None, at + 1) if inner in (1, 2) else _value(data, at, inner, depth + 1)
            if at > len(data):
                raise IndexError
            if inner in (6, 12):  # Numbers and structs.
                items.append(item)
        return items, at
    if kind == 12:
        return _struct(data, at, depth + 1)
    raise ValueError(f"a value of kind {kind}")
