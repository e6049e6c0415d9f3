"""Which plain arrays hold a field: one array if rows are of one size, else values and offsets.

- rows of one size: `x`, whose row i is row i;
- text: `x.values`, bytes one after the other, and `x.offsets`: row i is `values[offsets[i]:offsets[i + 1]]`;
- rows that differ in length: `x.values` and `x.offsets`, likewise; if they differ in more than the length,
  `values` is flat and `x.shapes` has the shape of each row;
- arrays of text: `x.items` says where each text starts in `values`, and `x.offsets` counts items.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.spec import ArraySpec

CHECKS = ".crc32c"
"""What follows the name of an array's file in that of its checksums: not .npy, or a glob would take it for data."""
STEM = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_UNSAFE = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_STEM = 100  # A file name has at most 255 bytes, and what follows the stem takes up to 40.
_ROLES = ("", ".values", ".offsets", ".shapes", ".items")
_INT = np.dtype(np.int64)
_BYTE = np.dtype(np.uint8)


@dataclass(frozen=True, slots=True)
class ArrayLayout:
    """One array of a field: what follows the field's name in the file name, and dtype and shape of an entry."""

    role: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def entry_nbytes(self) -> int:
        """The bytes of one entry along the first axis."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class FieldLayout:
    """One field: its spec, and the name that its files start with."""

    stem: str
    spec: ArraySpec

    @property
    def is_fixed(self) -> bool:
        """Whether one array holds the whole field."""
        return self.spec.is_fixed

    @property
    def inner_shape(self) -> tuple[int, ...] | None:
        """The shape of an entry of `values`, if rows differ only in length; else None."""
        shape = self.spec.shape
        if self.spec.is_text or not shape or None in shape[1:]:
            return None
        return tuple(size for size in shape[1:] if size is not None)

    @property
    def has_shapes(self) -> bool:
        """Whether the shape of a row is more than its length."""
        return not self.is_fixed and self.inner_shape is None and len(self.spec.shape) > 1

    @property
    def has_items(self) -> bool:
        """Whether a row is an array of texts."""
        return self.spec.is_text and bool(self.spec.shape)

    @property
    def arrays(self) -> dict[str, ArrayLayout]:
        """The arrays by role: 'rows', or 'values', 'offsets', 'shapes' and 'items'."""
        if self.is_fixed:
            return {"rows": ArrayLayout("", self.spec.numpy_dtype, self.spec.fixed_shape)}
        dtype = _BYTE if self.spec.is_text else self.spec.numpy_dtype
        found = {
            "values": ArrayLayout(".values", dtype, self.inner_shape or ()),
            "offsets": ArrayLayout(".offsets", _INT, ()),
        }
        if self.has_shapes:
            found["shapes"] = ArrayLayout(".shapes", _INT, (len(self.spec.shape),))
        if self.has_items:
            found["items"] = ArrayLayout(".items", _INT, ())
        return found

    def file_names(self, shard: int) -> list[str]:
        """Return the names of all files that a shard has of this field: of its arrays, and of their checksums."""
        arrays = [self.file_name(role, shard) for role in self.arrays]
        return [*arrays, *(f"{name}{CHECKS}" for name in arrays)]

    def file_name(self, role: str, shard: int) -> str:
        """Return the name of one file: 'x-00003.npy'."""
        return f"{self.stem}{self.arrays[role].role}-{shard:05d}.npy"


def check_names(names: Iterable[Any], stems: Iterable[str]) -> None:
    """Raise ValueError unless all names are such as files of the fields with these stems have.

    What a manifest or journal lists may be removed, and it may have been changed: it must not name anything else.
    """
    fields = "|".join(map(re.escape, stems))
    roles = "|".join(map(re.escape, _ROLES))
    own = re.compile(rf"({fields})({roles})-[0-9]{{5,}}\.npy({re.escape(CHECKS)})?")
    for name in names:
        if not isinstance(name, str) or not own.fullmatch(name):
            raise ValueError(f"it lists {name!r:.100}, which is no file of its fields")


def layouts_of(names: Sequence[str], specs: Sequence[ArraySpec]) -> tuple[FieldLayout, ...]:
    """Return a layout for each field, with safe file names, no two of them alike.

    >>> [one.stem for one in layouts_of(["x", "../x", "X"], [ArraySpec((), "i4")] * 3)]
    ['x', 'x_2', 'X_3']
    """
    taken: set[str] = set()
    layouts: list[FieldLayout] = []
    for name, spec in zip(names, specs, strict=True):
        plain = _UNSAFE.sub("_", name)[:_MAX_STEM].lstrip("._-") or "field"
        stem, number = plain, len(layouts) + 1
        # Compared in lower case: some file systems ignore case.
        while taken & {f"{stem}{role}".lower() for role in _ROLES}:
            stem, number = f"{plain}_{number}", number + 1
        taken |= {f"{stem}{role}".lower() for role in _ROLES}
        layouts.append(FieldLayout(stem, spec))
    return tuple(layouts)
