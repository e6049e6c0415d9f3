"""What every adapter is given: a declared dataset, and how to run it."""

from dataclasses import dataclass
from typing import Any

from penstock.core.nest import field_names
from penstock.core.rows import Node, Rows
from penstock.core.spec import ArraySpec
from penstock.engine.plan import Explanation, Options, explain, make_plan
from penstock.engine.stream import Stream


@dataclass(frozen=True, slots=True)
class Recipe:
    """A chain of stages and its options: what a Dataset is made of, without being one."""

    node: Node
    options: Options

    @property
    def spec(self) -> Any:
        """The nest of `ArraySpec` of a batch."""
        return self.node.spec

    @property
    def num_batches(self) -> int | None:
        """How many batches an epoch has; None where that is unknown or infinite."""
        return None if self.node.is_endless else self.node.num_rows

    @property
    def is_addressable(self) -> bool:
        """Whether batch i can be had from i: the cursor of a stream is then its number."""
        return isinstance(self.node, Rows)

    @property
    def batch_size(self) -> int | None:
        """The rows of a whole batch, where all fields agree on one."""
        sizes = set()
        for field in self.node.fields:
            first = field.spec.shape[0] if field.spec.shape else None
            sizes.add(field.most if first is None else first)
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def fields(self) -> list[tuple[str, ArraySpec]]:
        """Each leaf of a batch, by name."""
        names = field_names(self.node.structure)
        return [(name, f.spec) for name, f in zip(names, self.node.fields, strict=True)]

    def stream(
        self, *, epoch: int = 0, state: dict[str, Any] | None = None, by_element: bool = False
    ) -> Stream:
        """Return one epoch of it, to be taken a block at a time, or by element."""
        plan = make_plan(self.node, self.options)
        return Stream(plan, epoch=epoch, state=state, by_element=by_element)

    def explain(self) -> Explanation:
        """Return what running it will do."""
        return explain(make_plan(self.node, self.options))

    def check_batched(self, call: str) -> None:
        """Raise with the line to write if `batch` was forgotten."""
        if self.node.is_batched:
            return
        raise ValueError(
            f"{call} needs batches, and this dataset gives single rows: {self.node.spec}.\n"
            f"  wrong: ds.{call}\n  right: ds.batch(32).{call}"
        )

    def check_numeric(self, framework: str) -> None:
        """Raise if a field is text, which only TensorFlow can hold."""
        for name, spec in self.fields:
            if spec.numpy_dtype.kind not in "biufc" and not _is_extension_float(spec):
                raise TypeError(
                    f"field {name!r} is {spec}, and {framework} has numbers only; "
                    "turn it into numbers with .map(...) before .batch(...)."
                )


def _is_extension_float(spec: ArraySpec) -> bool:
    # bfloat16 and the 8-bit floats of ml_dtypes have kind 'V' and a name.
    return "float" in spec.numpy_dtype.name
