"""A part, one file of a dataset: its fields by name, with random access to their rows."""

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.errors import DataError, FieldError, LengthError, ReadError, SpecMismatchError
from penstock.io.location import Location
from penstock.sources.reading.leaves import Leaf

In = TypeVar("In")
Out = TypeVar("Out")
BAD = (DataError, SpecMismatchError, LengthError)
"""The errors of bad files and bad rows, which can be skipped."""
_MOST_NAMES = 50  # Names of fields in a message.
_MOST_REASONS = 10  # Fields that are left out are named up to this many.


@dataclass(frozen=True, slots=True)
class Request:
    """What a user asked `from_files` for, besides the files."""

    fields: Any = None
    """A nest of names, of the structure that a row shall have; None: all fields, in a dict."""
    spec: Any = None
    size: tuple[int, int] | None = None
    direct: bool = False
    """Whether large reads go past the page cache."""
    skip: bool = False
    """Whether bad files are skipped."""
    skipped: list[Exception] = field(default_factory=list)
    """The errors of the files that were skipped."""
    left_out: dict[str, list[FieldError]] = field(default_factory=dict)
    """Why fields are left out, by name; one error a file. Only if all fields were asked for."""
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """What fsspec needs to know to read URLs."""
    verify: bool = True
    """Whether checksums in the files are compared."""
    separator: str | None = None
    """What stands between the cells of CSV files; None: it is found."""
    decimal: str | None = None
    """The decimal mark of numbers in CSV files; None: a point."""

    @property
    def names(self) -> list[str] | None:
        """The names in `fields`, or None for all fields."""
        return None if self.fields is None else flatten(self.fields)[0]


def bad(error: Exception) -> Exception:
    """Return the error of a bad file or row, to skip it; raise it if it says that the storage failed.

    The error comes without its traceback, whose frames would keep the memory of a block alive.
    """
    if isinstance(error, ReadError):
        raise error
    return copy.copy(error)


def attempt_each(
    items: Sequence[In], attempt: Callable[[In], Out], request: Request
) -> tuple[list[In], list[Out]]:
    """Return the items for which `attempt` succeeds, and its results; bad items are skipped.

    The first error is raised if the request does not skip bad files, or if all items are bad.
    """
    good: list[In] = []
    found: list[Out] = []
    errors: list[Exception] = []
    for item in items:
        try:
            found.append(attempt(item))
        except BAD as error:
            if not request.skip:
                if len(items) > 1:
                    error.add_note("from_files(..., on_error='skip') skips files like this.")
                raise
            errors.append(bad(error))
        else:
            good.append(item)
    if errors and not good:
        raise errors[0]
    request.skipped.extend(errors)
    return good, found


def each_field(
    names: Iterable[str], make: Callable[[str], Out], request: Request
) -> tuple[dict[str, Out], dict[str, FieldError]]:
    """Return what `make` makes of each field of a file, and the errors of fields that are left out.

    A field that can't be read is left out where all were asked for, unless none can be read.
    """
    made: dict[str, Out] = {}
    left_out: dict[str, FieldError] = {}
    for name in names:
        try:
            made[name] = make(name)
        except FieldError as error:
            if request.fields is not None:
                raise
            left_out[name] = copy.copy(error)
    if left_out and not made:
        raise next(iter(left_out.values()))
    for name, reason in left_out.items():
        request.left_out.setdefault(name, []).append(reason)
    return made, left_out


def left_out_words(left_out: Mapping[str, Sequence[FieldError]]) -> str:
    """Return which fields are left out, why, and what to do, for a warning."""
    reasons = []
    for errors in list(left_out.values())[:_MOST_REASONS]:
        others = f" (and in {len(errors) - 1} more files)" if len(errors) > 1 else ""
        reasons.append(f"{errors[0].file}: {errors[0].problem.rstrip('.')}{others}")
    if len(left_out) > _MOST_REASONS:
        reasons.append(f"and {len(left_out) - _MOST_REASONS} more")
    count = "a field is" if len(left_out) == 1 else f"{len(left_out)} fields are"
    return (
        f"{count} left out, since rows can't be read from there. {'; '.join(reasons)}. "
        "Name those that you want with fields=(...)."
    )


def skipped_words(node: Node) -> str:
    """Return how many files were skipped when a source was opened, for `explain()`; '' if none."""
    if not node.skipped_files:
        return ""
    count = len(node.skipped_files)
    return f"; {count} {'file' if count == 1 else 'files'} skipped: {node.skipped_files[0]}"


@dataclass(frozen=True, slots=True)
class Part:
    """The fields of one file; a format without names has one field, which is called ''."""

    name: str
    leaves: dict[str, Leaf]
    left_out: Mapping[str, FieldError] = field(default_factory=dict)
    """Why other fields of the file can't be read."""

    @property
    def num_rows(self) -> int:
        """How many rows its first field has; `chosen` checks that the others have as many."""
        return next(iter(self.leaves.values())).num_rows

    def chosen(self, names: Sequence[str]) -> "Part":
        """Return the part with these fields only, after checking that they belong together."""
        check_names(self.name, names, self.leaves, self.left_out)
        if len(names) == len(self.leaves) == 1:
            return self
        leaves = {name: self.leaves[name] for name in names}
        lengths = {name: leaf.num_rows for name, leaf in leaves.items()}
        if len(set(lengths.values())) > 1:
            raise unequal_lengths(self.name, lengths)
        return Part(self.name, leaves)


def unequal_lengths(file: str, lengths: Mapping[str, int]) -> LengthError:
    """Return the error for fields of one file that differ in their number of rows."""
    text = ", ".join(f"{length} in {name!r}" for name, length in lengths.items())
    return LengthError(
        f"{file}: all fields must have the same number of rows, got {text}; "
        "choose those that belong together with fields=(...)."
    )


def check_names(
    file: str,
    names: Sequence[str],
    available: Iterable[str],
    left_out: Mapping[str, FieldError] | None = None,
) -> None:
    """Raise if one of the fields that are wanted is not there, or can't be read."""
    available = dict.fromkeys(available)
    missing = [name for name in names if name not in available]
    if missing:
        if missing[0] in (left_out or {}):
            raise (left_out or {})[missing[0]]
        shown = _shown(list(available)) or "none"
        cure = "Choose among them with fields=(...)."
        if list(available) == [""]:
            cure = (
                "It is one array without a name: leave fields out. Files side by side are a dict: "
                "from_files({'x': 'x.npy', 'y': 'y.npy'})."
            )
        cure = _ending_cure(missing[0], available) or cure
        raise DataError(f"has no field {missing[0]!r}, only {shown}", file=file, cure=cure)


def _ending_cure(name: str, available: Mapping[str, Any]) -> str:
    """Return what to write for a field as webdataset has it, 'jpg;png' or '.jpg'; '' if it is none such."""
    endings = dict.fromkeys(one.lstrip(".").lower() for one in name.split(";"))
    found = " or ".join(repr(one) for one in endings if one in available)
    if not found:
        return ""
    if ";" not in name:
        return f"Write {found}."
    return f"A field has one name: write {found}; on_error='skip' leaves out rows that have no such field."


def given_specs(spec: Any, available: Iterable[str], file: str) -> dict[str, ArraySpec]:
    """Return the specs that the user gave for some columns: {column: ArraySpec or dtype}."""
    if spec is None:
        return {}
    if not isinstance(spec, Mapping):
        raise TypeError(
            f"spec must be a dict of columns, got {spec!r}.\n"
            '  right: from_files("x.csv", spec={"price": "float32", "name": str})'
        )
    columns = dict.fromkeys(available)
    found = {}
    for name, one in spec.items():
        if name not in columns:
            raise DataError(
                f"spec names {name!r}, and the columns are {_shown(list(columns))}",
                file=file,
                cure="Check the spec, and the beginning of the file.",
            )
        try:
            found[name] = one if isinstance(one, ArraySpec) else ArraySpec((), one)
        except TypeError as error:
            raise TypeError(f"spec of column {name!r}: {error}") from error
    return found


def _shown(names: Sequence[str]) -> str:
    more = len(names) - _MOST_NAMES
    return ", ".join(map(repr, names[:_MOST_NAMES])) + (f" and {more} more" if more > 0 else "")


def no_rows(name: str, field: str) -> FieldError:
    """Return the error for an array without a first axis."""
    what = f"field {field!r} is a single value" if field else "is a single value"
    return FieldError(
        f"{what} and has no rows", file=name, cure="Leave it out: choose others with fields=(...)."
    )


def array_key(locations: Sequence[Location], name: str) -> tuple[str, str]:
    """Return the key of one field of a dataset, by which a stream finds its retained chunks."""
    return locations[0].url, name
