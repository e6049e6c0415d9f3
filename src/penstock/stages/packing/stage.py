"""pack: the declaration."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.core.fields import Field
from penstock.core.nest import field_names, flatten, unflatten
from penstock.core.rows import Flow, Node, Rows
from penstock.core.spec import ArraySpec
from penstock.stages.base.segment import as_flow
from penstock.stages.base.stage import Stage
from penstock.stages.packing.flow import PackedFlow, Packing
from penstock.stages.padded_batch import find_pads, pad_to_json


@dataclass(frozen=True, slots=True)
class Pack(Stage):
    """Rows of `length` values, each with as many rows of the input as there is room for."""

    length: int
    bins: int
    method: str = "first_fit"
    """"first_fit" leaves rows whole, "concat" cuts them wherever a row of `length` is full."""
    long: str = "error"
    """What becomes of a row that is longer: "error", "split" or "truncate"."""
    pad: Any = None
    pads: tuple[Any, ...] = ()
    """The value for each field, found when the stage is built."""
    drop_remainder: bool = False

    def build(self, node: Node) -> Node:
        """Return the packed rows."""
        self.refuse_after(node)
        _check_fields(node)
        # One axis is open for all: also where it has one size in every row.
        targets = [(None, *field.spec.shape[1:]) for field in node.fields]
        made = replace(self, pads=find_pads(self.pad, node, targets))
        return Stage.build(made, node)

    def of_rows(self, rows: Rows) -> Node:
        """Return a flow: which rows share one is known only when they come."""
        return self.of_flow(as_flow(rows))

    def of_flow(self, flow: Flow) -> Node:
        """Return the packed rows."""
        return PackedFlow(self, flow, self._packing(flow))

    def _packing(self, node: Node) -> Packing:
        """Return how rows are packed, with the fields of a packed row, and where in it each field of a row goes."""
        fields = [
            Field(ArraySpec((self.length, *field.spec.shape[1:]), field.spec.dtype))
            for field in node.fields
        ]
        ids = Field(ArraySpec((self.length,), np.int32))
        row = unflatten(node.structure, range(len(fields)))
        segments, positions = len(fields), len(fields) + 1
        if isinstance(row, dict):
            taken = {"segment_ids", "positions"} & row.keys()
            if taken:
                raise ValueError(
                    f"pack adds the fields segment_ids and positions, and rows have {sorted(taken)} already; give "
                    "these another name with map."
                )
            nest: Any = {**row, "segment_ids": segments, "positions": positions}
        else:
            nest = (row, segments, positions)
        order, structure = flatten(nest)
        every = [*fields, ids, ids]
        return Packing(
            self.length,
            self.bins,
            self.method,
            self.long,
            self.pads,
            self.drop_remainder,
            structure,
            tuple(every[at] for at in order),
            tuple(fields),
            tuple(order),
        )

    def describe(self) -> str:
        """Return the call that made it."""
        words = [str(self.length)]
        if self.method == "first_fit":
            words.append(f"bins={self.bins}")
            words += [] if self.long == "error" else [f'long="{self.long}"']
        else:
            words.append('method="concat"')
        words += [] if self.pad is None else [f"padding_values={self.pad!r}"]
        words += ["drop_remainder=True"] if self.drop_remainder else []
        return f"pack({', '.join(words)})"

    def fingerprint(self) -> Any:
        """Return its name and arguments."""
        pads = [pad_to_json(pad) for pad in self.pads]
        return ["pack", self.length, self.bins, self.method, self.long, pads, self.drop_remainder]


def _check_fields(node: Node) -> None:
    """Raise unless all fields are sequences: of numbers, each of one shape."""
    if not node.fields:
        raise ValueError("pack needs rows with at least one field, got none.")
    for field, name in zip(node.fields, field_names(node.structure), strict=True):
        spec = field.spec
        cure = "leave it out with map, or pad it with padded_batch"
        if not spec.shape:
            problem = "has no axis to pack along"
        elif None in spec.shape[1:]:
            problem = "has an open size that is not its first"
        elif spec.is_text:
            problem, cure = "is text", "make numbers of it with map"
        else:
            continue
        raise ValueError(
            f"pack needs sequences of numbers of one shape in every field, and {name!r} is {spec}, which {problem}: "
            f"{cure}."
        )
