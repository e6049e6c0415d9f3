"""How much of the data one rank reads, in words, for `explain()`."""

from collections.abc import Iterator

from penstock.core.rows import Flow, Node, Rows
from penstock.io.sizes import GAP_NBYTES
from penstock.memory import format_nbytes
from penstock.stages.distribute.cut import CutRows
from penstock.stages.distribute.rank_rows import RankRows
from penstock.stages.shuffle.on_storage import WindowedRows
from penstock.stages.shuffle.scatter import ScatteredRows


def reading_notes(node: Node, world: int) -> Iterator[str]:
    """Yield what a rank of `world` reads besides its own rows."""
    if world == 1:
        return
    if isinstance(node, Flow):
        yield (
            "rows come forward only: every rank reads and makes all of them, and hands on its part. "
            ".cache(path) before shuffle and batch is filled by one rank and read by all."
        )
        return
    found = [one for one in _nodes(node) if isinstance(one, CutRows | RankRows)]
    for one in found:
        if isinstance(one, CutRows):
            yield (
                f"{one.input.describe()} works on whole global batches: every rank reads and makes all of their "
                "rows, and hands on its part. Before batch, it would work on the rank's rows alone."
            )
            continue
        shuffles = [s for s in _nodes(one) if isinstance(s, WindowedRows | ScatteredRows)]
        for shuffle in shuffles:
            yield shuffle.rank_note(world)
        if not shuffles and one.input.grains:
            yield _unshuffled_note(one, world)


def _unshuffled_note(rows: RankRows, world: int) -> str:
    width = sum(grain.nbytes for grain in rows.input.grains)
    chunk = max(grain.rows for grain in rows.input.grains)
    if chunk == 1 and (world - 1) * width > GAP_NBYTES:
        return f"this rank reads 1/{world} of the bytes: its rows, one by one."
    why = f"rows of {format_nbytes(width)} lie so near that it reads those between its own, too"
    if chunk > 1:
        why = f"{chunk} rows are stored together, those of other ranks among them"
    return f"in the order of the files this rank reads all bytes: {why}. shuffle() reads 1/{world} of them."


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for one in node.inputs:
        if isinstance(one, Rows):
            yield from _nodes(one)
