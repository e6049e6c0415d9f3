"""The length of each row, by a function of the user's: one more field after those of the row."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from penstock.core.columns import Fixed
from penstock.core.fields import Field
from penstock.core.nest import field_names, flatten, tuple_of
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import ENDLESS, Context, Flow, Node
from penstock.core.spec import ArraySpec
from penstock.stages.base.function_flow import Piece, applied
from penstock.stages.base.functions import BadRow
from penstock.stages.filter import Filter, FilteredFlow

LENGTH = Field(ArraySpec((), np.int64))


@dataclass(frozen=True, slots=True)
class Lengths(Filter):
    """Pairs (row, length), the length by `function`."""

    answers: ClassVar[tuple[Field, ...]] = (LENGTH,)
    plain_types: ClassVar[tuple[type, ...]] = ()

    def of_flow(self, flow: Flow) -> Node:
        """Return the pairs."""
        return MeasuredFlow(self, flow)

    def describe(self) -> str:
        """Return whose function it is."""
        return f"lengths({self.function.name})"

    def fingerprint(self) -> Any:
        """Return the name of the function."""
        return ["lengths", self.function.name, self.skip]

    def checked(self, answer: Any, where: Callable[[], str]) -> Any:
        """Return the length; raise if it is not one whole number."""
        if type(answer) is int and abs(answer) < ENDLESS:
            return answer
        array = np.asarray(answer)
        if array.shape != () or array.dtype.kind not in "iu" or abs(int(array)) >= ENDLESS:
            text = f"must return one whole number, got {type(answer).__name__}: {answer!r:.60}."
            raise self.function.mismatch(where(), text)
        return int(array)


class MeasuredFlow(FilteredFlow):
    """Rows with their lengths; the cursor is [number of the next input row, cursor of the input]."""

    stage: Lengths

    def __init__(self, stage: Lengths, flow: Flow) -> None:
        super().__init__(stage, flow)
        self.num_rows = flow.num_rows
        if stage.skip and flow.num_rows:
            self.num_rows = ENDLESS if flow.is_endless else None
        self.fields = (*flow.fields, LENGTH)
        self.structure = tuple_of([flow.structure, flatten(0)[1]])

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the rows with their lengths; the function is called ahead, in parallel."""

        def apply(piece: Piece) -> tuple[Parcel, list[BadRow]]:
            good, answers, bad = self.ask(piece, context)
            block = context.block(self, len(good))
            block.part(0, len(self.input.fields)).copy_from(piece.parcel.block, piece.start + good)
            lengths = block.sinks[-1]
            assert isinstance(lengths, Fixed)
            lengths.put(answers)
            after = piece.cursor_after(good if bad else None)
            return Parcel(block.finish(), len(good), after), bad

        return applied(self, apply, cursor, context)


def rows_of(node: Node) -> Node:
    """Return the node whose rows go into buckets: without their lengths, if a function tells those."""
    return node.inputs[0] if isinstance(node, MeasuredFlow) else node


def measured_field(node: Node, name: str) -> int:
    """Return the number of the field whose first axis is the length of a row."""
    names = field_names(node.structure)
    if name not in names:
        raise ValueError(
            f"element_length_func must be a function or the name of a field, one of {names}, got {name!r}."
        )
    number = names.index(name)
    if not node.fields[number].spec.shape:
        raise ValueError(
            f"element_length_func: field {name!r} is {node.fields[number].spec}, which has no length; name another, or "
            "give a function of a row."
        )
    return number
