"""The results of functions: checked against their spec, and put into a block."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from penstock._native import RowFiller
from penstock.core.blocks import Block
from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.nest import Structure, field_names, flatten, plain_keys
from penstock.core.spec import ArraySpec, spec_of_value, written
from penstock.stages.base.functions import UserFunction


class Results:
    """Takes the results of a function, checks each against its spec, and puts them into a block."""

    def __init__(
        self,
        function: UserFunction,
        structure: Structure,
        fields: Sequence[Field],
        out: Block,
        *,
        is_declared: bool = True,
    ) -> None:
        self.function = function
        self.is_declared = is_declared
        """Whether the user gave the spec; else it is that of row 0."""
        self.structure = structure
        self.fields = fields
        self.out = out
        self.is_bare = structure == flatten(0)[1]
        self.lists: list[list[Any]] = [[] for _ in fields]
        self.shapes = [f.spec.shape if f.spec.is_fixed else None for f in fields]
        self.filler = self._filler()

    def _filler(self) -> RowFiller | None:
        """Return the native filler, for results exactly as declared; None for a block that it can't fill."""
        columns = [
            sink.grouped
            for sink in self.out.sinks
            if isinstance(sink, Fixed) and sink.slots is None and sink.lengths is None
        ]
        if not columns or len(columns) < len(self.out.sinks):
            return None
        try:
            return RowFiller(tuple(columns), plain_keys(self.structure), is_grouped=True)
        except LookupError:
            return None

    def put(self, row: int, result: Any, where: Callable[[], str]) -> None:
        """Put the result for one row into the block."""
        if self.filler is not None and self.filler.put(row, result):
            return
        if self.is_bare:
            leaves = [result]
        else:
            leaves, structure = flatten(result)
            if structure != self.structure:
                text = nest_text(result, self.structure, is_declared=self.is_declared)
                raise self.function.mismatch(where(), text)
        for number, value in enumerate(leaves):
            sink = self.out.sinks[number]
            if isinstance(sink, Fixed):
                dtype = sink.grouped.dtype
                if (
                    type(value) is not np.ndarray
                    or value.dtype != dtype
                    or value.shape != self.shapes[number]
                ):
                    value = self._checked(number, value, where)
                sink.put_row(row, value)
            else:
                # A copy: the function may return the same memory each time, filled anew.
                copied = self._checked(number, value, where, copy=True)
                del self.lists[number][row:]  # Left by a bad row, whose next field failed.
                self.lists[number].append(copied)

    def finish(self, num_rows: int) -> None:
        """Put the fields of variable size into the block, all rows at once."""
        for sink, values in zip(self.out.sinks, self.lists, strict=True):
            if not isinstance(sink, Fixed):
                sink.put(values[:num_rows])

    def _checked(
        self, number: int, value: Any, where: Callable[[], str], *, copy: bool = False
    ) -> Any:
        try:
            return conformed(value, self.fields[number].spec, copy=copy)
        except (TypeError, ValueError) as error:
            specs = self.structure.unflatten([field.spec for field in self.fields])
            text = misfit_text(error, value, number, specs, is_declared=self.is_declared)
        raise self.function.mismatch(where(), text)


class Misfit(ValueError):
    """A value that does not fit its spec: what came, and the spec that it would fit, if one would do.

    `instead` is what would fit the spec as it is, as Python of `value`; '' if there is nothing of the kind.
    """

    def __init__(self, came: str, want: str, fitting: ArraySpec | None, instead: str = "") -> None:
        super().__init__(f"{came}, but {want} is declared.")
        self.came = came
        self.want = want
        self.fitting = fitting
        self.instead = instead


def misfit_text(error: Exception, value: Any, number: int, specs: Any, *, is_declared: bool) -> str:
    """Return what is wrong with field `number` of a result, and the cure: the whole nest of specs, to be pasted."""
    name = field_names(flatten(specs)[1])[number]
    if not isinstance(error, Misfit):
        return f"returned for field {name!r} {error}"
    words = misfit_words(error, number, specs, is_declared=is_declared)
    if error.fitting is None and not error.instead:
        alike = "" if is_declared else " All rows must have its dtype, and as many dimensions."
        words += no_field_hint(value) or alike
    return f"returned for field {name!r} {words}"


def misfit_words(
    error: Misfit,
    number: int,
    specs: Any,
    *,
    is_declared: bool = True,
    verb: str = "return",
    num_axes: int = 0,
) -> str:
    """Return what came, what was to come and where that was said, and what would do: a nest of specs, or a value.

    `verb` is what the function does with a value; `num_axes` are those before the axes of a row, of which the user's
    spec does not tell.
    """
    origin = "is declared" if is_declared else "was inferred from row 0"
    text = f"{error.came}, but {error.want} {origin}."
    if error.fitting is None:
        return f"{text} {verb.capitalize()} {error.instead}." if error.instead else text
    leaves, structure = flatten(specs)
    leaves[number] = error.fitting
    rows = [ArraySpec(leaf.shape[num_axes:], leaf.dtype) for leaf in leaves]
    text += f" If rows may be like that, give spec={written(structure.unflatten(rows))}"
    return f"{text}; else {verb} {error.instead}." if error.instead else f"{text}."


def conformed(value: Any, spec: ArraySpec, *, copy: bool = False) -> Any:
    """Return `value` as an array (or text) that fits `spec`; raise if it does not fit safely.

    With `copy`, the array is in memory that nobody else refers to. Raises Misfit, or TypeError or ValueError for
    what is no array at all.
    """
    if value is None:
        raise Misfit("None", str(spec), None)
    if not isinstance(spec.dtype, np.dtype):
        # As objects: so NumPy's own text of one width is accepted, and an empty array of any dtype.
        items = np.asarray(value, object)
        if not spec.admits(items.shape) or not all(isinstance(v, spec.dtype) for v in items.flat):
            raise Misfit(str(spec_of_value(value)), str(spec), None)
        if not spec.shape:
            return items[()]
        return items.copy() if copy else items
    try:
        array = np.asarray(value)
    except ValueError as error:
        kind = type(value).__name__
        raise Misfit(f"a {kind} whose parts differ in shape", str(spec), None) from error
    if not spec.admits(array.shape):
        fitting = _loosened(spec, array.shape) if len(array.shape) == len(spec.shape) else None
        raise Misfit(f"an array of shape {array.shape}", str(spec), fitting)
    if array.dtype != spec.dtype:
        is_weak = isinstance(value, bool | int | float | complex)
        if not (is_weak and _fits(array, spec.dtype)) and not np.can_cast(array.dtype, spec.dtype):
            if array.dtype.kind in "OSU":
                raise Misfit(f"{value!r:.80}", str(spec), None)
            came = f"dtype {array.dtype}, which can't become {spec.dtype} without loss"
            fitting = ArraySpec(spec.shape, array.dtype) if array.dtype.kind in "biufc" else None
            raise Misfit(came, str(spec), fitting, _instead(value, array.dtype, spec.dtype))
        return array.astype(spec.dtype)
    # Whatever `value` is, the array may be memory that somebody keeps: that of a tensor, say.
    return array.copy() if copy else array


def _instead(value: Any, dtype: np.dtype[Any], wanted: np.dtype[Any]) -> str:
    """Return how to make a value of the wanted dtype of any `value`; '' if that would be another value."""
    name = "value" if hasattr(value, "astype") else "np.asarray(value)"
    if wanted.kind == "b":
        return f"{name} != 0" if dtype.kind in "iufc" else ""
    if wanted.kind in "iu" and dtype.kind in "iu":
        mine, theirs = np.iinfo(dtype), np.iinfo(wanted)
        low, high = max(mine.min, theirs.min), min(mine.max, theirs.max)
        return f"np.clip(value, {low}, {high}).astype({str(wanted)!r})"
    is_extension = wanted.kind == "V" and wanted.type is not np.void  # Such as bfloat16.
    is_rounded = (wanted.kind in "fc" or is_extension) and dtype.kind in "iuf"
    is_cut = wanted.kind == dtype.kind and wanted.kind in "cmM"
    return f"{name}.astype({str(wanted)!r})" if is_rounded or is_cut else ""


def _fits(array: "np.ndarray[Any, Any]", dtype: np.dtype[Any]) -> bool:
    if not np.can_cast(array.dtype, dtype, "same_kind") and not (
        array.dtype.kind in "iub" and dtype.kind in "iufc"
    ):
        return False
    with np.errstate(over="ignore"):
        made = array.astype(dtype)
    return bool(np.isinf(made) == np.isinf(array) if dtype.kind in "fc" else made == array)


def _loosened(spec: ArraySpec, shape: tuple[int, ...]) -> ArraySpec:
    sizes = [a if a == b else None for a, b in zip(spec.shape, shape, strict=True)]
    return ArraySpec(sizes, spec.dtype)


def nest_text(result: Any, want: Structure, *, is_declared: bool = True) -> str:
    """Return the message for a result whose nest is not the declared one."""
    origin = "is declared" if is_declared else "was inferred from row 0"
    cure = " Return that, or change spec=." if is_declared else " All rows must have the same nest."
    got = nest_words(flatten(result)[1])
    return f"returned a nest {got}, but {nest_words(want)} {origin}.{no_field_hint(result) or cure}"


def no_field_hint(value: Any) -> str:
    """Return what was most likely meant by a result that is no field, or ''."""
    if value is None:
        return " Did it forget to return something?"
    if isinstance(value, list):
        return " A list is one field; for several, return a tuple: return a, b."
    if inspect.isgenerator(value):
        return " A function that yields rows is one for flat_map."
    if inspect.iscoroutine(value):
        value.close()  # Else Python warns that nobody awaited it.
        return " Functions can't be async: return the value itself."
    return ""


class _AnyLeaf:
    def __repr__(self) -> str:
        return "*"


def nest_words(structure: Structure) -> str:
    """Return a nest with a star for each field.

    >>> nest_words(flatten((1, {"a": 2}))[1])
    "(*, {'a': *})"
    """
    return repr(structure.unflatten([_AnyLeaf()] * structure.num_leaves))
