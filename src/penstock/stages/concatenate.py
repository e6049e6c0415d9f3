"""concatenate: all rows of one dataset, then all rows of the next."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from penstock.core.blocks import Block
from penstock.core.fields import Field
from penstock.core.grains import coarsest
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.residues import Residue
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, as_index, shifted
from penstock.core.state import cursor_parts
from penstock.stages.base.combining import merged_fields, over, read_part, read_parts, transfer
from penstock.stages.base.segment import as_flow


def concatenated(nodes: Sequence[Node]) -> Node:
    """Return the rows of each input, one input after the other."""
    fields = merged_fields(nodes, "concatenate")
    endless = next((n for n, node in enumerate(nodes) if node.is_endless), len(nodes) - 1)
    if all(isinstance(node, Rows) for node in nodes) and endless == len(nodes) - 1:
        return ConcatenatedRows([node for node in nodes if isinstance(node, Rows)], fields)
    return ConcatenatedFlow([as_flow(node) for node in nodes], nodes, fields)


class _Concatenated(Node):
    def _join(self, nodes: Sequence[Node], fields: tuple[Field, ...]) -> None:
        self.fields = fields
        self.structure = nodes[0].structure
        self.like_all(nodes)
        self.grains = coarsest(node.grains for node in nodes)

    def describe(self) -> str:
        """Return the call that made it."""
        return f"concatenate({len(self.inputs)} datasets)"

    def fingerprint(self) -> Any:
        """Return its name, and the number of inputs."""
        return ["concatenate", len(self.inputs)]

    def rebuilt(self, inputs: Sequence[Node]) -> Node:
        """Return the concatenation of other inputs."""
        return concatenated(inputs)


class ConcatenatedRows(_Concatenated, Rows):
    """Row i is a row of the input whose range i falls into."""

    def __init__(self, nodes: Sequence[Rows], fields: tuple[Field, ...]) -> None:
        self._join(nodes, fields)
        self.nodes = nodes
        self.starts = np.cumsum([0] + [node.num_rows for node in nodes])
        self.num_rows = ENDLESS if nodes[-1].is_endless else int(self.starts[-1])

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the rows of each input into their places."""
        index = as_index(rows)
        owners = np.searchsorted(self.starts[1:-1], index, side="right")
        if len(index) and owners[0] == owners[-1] and isinstance(rows, slice):
            number = int(owners[0])
            here = shifted(rows, -int(self.starts[number]))
            read_part(self.nodes[number], here, out, self.fields, context)
            return
        read_parts(self, self.nodes, owners, index - self.starts[owners], out, context)

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over inputs of which only those are read that are wanted."""
        starts = self.starts.tolist()
        return over(
            self,
            [
                node.narrowed(wanted.shifted(-start))
                for node, start in zip(self.nodes, starts, strict=False)
            ],
        )

    def staging_nbytes(self, num_rows: int) -> int:
        """Return the bytes that the inputs need, and those of a copy for rows that must be widened."""
        return num_rows * self.row_nbytes + max(
            node.staging_nbytes(num_rows) for node in self.nodes
        )

    def locate(self, row: int, epoch: int) -> str:
        """Return where a row comes from."""
        number = int(np.searchsorted(self.starts[1:-1], row, side="right"))
        where = self.nodes[number].locate(row - int(self.starts[number]), epoch)
        return f"{where} of input {number}"


class ConcatenatedFlow(_Concatenated, Flow):
    """Flows one after the other; the cursor is [number of the flow, its cursor]."""

    def __init__(
        self, flows: Sequence[Flow], nodes: Sequence[Node], fields: tuple[Field, ...]
    ) -> None:
        self._join(nodes, fields)
        self.flows = flows
        lengths = [node.num_rows for node in nodes]
        known = [length for length in lengths if length is not None]
        if any(node.is_endless for node in nodes):
            self.num_rows = ENDLESS
        else:
            self.num_rows = sum(known) if len(known) == len(lengths) else None

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield the parcels of each flow."""
        first, inner = cursor_parts(self, cursor, (0, None), most=(len(self.flows), None))
        for number in range(first, len(self.flows)):
            for parcel in self.flows[number].parcels(inner, context):
                block = context.block(self, parcel.size)
                transfer(parcel.block, np.arange(parcel.size), block)
                yield Parcel(
                    block.finish(), parcel.size, partial(_after, number, parcel.cursor_after)
                )
            inner = None

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the largest input holds, and the copy made of its blocks."""
        own = 2 * max(block_nbytes, self.block_nbytes(1))
        return own + max(flow.holds_nbytes(block_nbytes, ahead) for flow in self.flows)


def _after(number: int, cursor_after: CursorAfter, offset: int) -> Cursor:
    return [number, cursor_after(offset)]
