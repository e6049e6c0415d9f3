"""How much of the data one rank reads, in words, for `explain()`."""

from collections.abc import Iterator

from penstock.core.fingerprint import walk
from penstock.core.rows import Flow, Node, Rows
from penstock.io.sizes import GAP_NBYTES, OWN_NBYTES
from penstock.memory import format_nbytes
from penstock.stages.cache import Cache
from penstock.stages.distribute.cut import CutRows
from penstock.stages.distribute.rank_rows import RankRows
from penstock.stages.shuffle.by_index import ShuffledRows
from penstock.stages.shuffle.on_storage import WindowedRows
from penstock.stages.shuffle.scatter import ScatteredRows
from penstock.stages.shuffle.window_order import MOST_LANES


def reading_notes(node: Node, world: int) -> Iterator[str]:
    """Yield what a rank of `world` reads besides its own rows."""
    if world == 1:
        return
    if isinstance(node, Flow):
        yield _flow_note(node)
        return
    for one in _nodes(node):
        if isinstance(one, CutRows):
            yield (
                f"{one.input.describe()} works on whole global batches: every rank reads and makes all of their "
                "rows, and hands on its part. Before batch, it would work on the rank's rows alone."
            )
        elif isinstance(one, RankRows):
            yield from _notes_of_inputs(one.input, world)


def _flow_note(flow: Flow) -> str:
    folders = [one for one in walk(flow) if _cache(one) is not None]
    if not folders:
        return (
            "rows come forward only: every rank reads and makes all of them, and hands on its part. "
            ".cache(path) before shuffle and batch is filled by one rank and read by all."
        )
    if _cache(folders[-1]) == "":
        return "every rank reads all rows, and keeps them in its memory; .cache(path) is filled by one rank for all."
    return "one rank fills the cache; every rank reads all of its rows, and hands on its part."


def _cache(node: Node) -> str | None:
    """Return the folder of a cache, '' for one in memory; None for other nodes."""
    stage = getattr(node, "stage", None)
    return (stage.path or "") if isinstance(stage, Cache) else None


def _notes_of_inputs(node: Rows, world: int) -> Iterator[str]:
    """Yield what is read of each source of rows that a rank picks, with its name if they differ."""
    found = list(_found(node, world))
    notes = dict.fromkeys(note for _, note in found)
    for source, note in dict.fromkeys(found) if len(notes) > 1 else [("", one) for one in notes]:
        yield f"{source}: {note}" if source else note


def _found(node: Node, world: int) -> Iterator[tuple[str, str]]:
    """Yield the sources, or shuffles of them, and what a rank reads of each."""
    if isinstance(node, WindowedRows | ScatteredRows):
        yield node.describe(), node.rank_note(world)
    elif _cache(node) is not None:
        note = "one rank reads all rows to fill the cache, of which each reads its own."
        if _cache(node) == "":
            note = "every rank reads all rows once, and keeps them in its memory."
        yield node.describe(), note
    elif isinstance(node, ShuffledRows) and node.grains:
        yield node.describe(), f"this rank reads its own rows, 1/{world} of the bytes."
    elif node.inputs:
        for one in node.inputs:
            yield from _found(one, world)
    elif isinstance(node, Rows) and node.grains:
        yield node.describe(), _unshuffled_note(node, world)


def _unshuffled_note(rows: Rows, world: int) -> str:
    chunk = max(grain.rows for grain in rows.grains)
    cure = (
        f" shuffle() of more than a window of rows reads 1/{world}."
        if MOST_LANES % world == 0
        else ""
    )
    if chunk > 1:
        return (
            f"in the order of the files this rank reads all bytes: {chunk} rows are stored together, those of other "
            f"ranks among them.{cure}"
        )
    # Each field by itself: it has a file, or a part of one, of its own.
    are_far = [(world - 1) * grain.nbytes > GAP_NBYTES for grain in rows.grains]
    if all(are_far):
        return f"this rank reads 1/{world} of the bytes: its rows, one by one."
    widths = [grain.nbytes for grain in rows.grains]
    if any(are_far) or max(widths) >= OWN_NBYTES:
        return (
            f"in the order of the files this rank reads its rows, and where these lie near each other those between "
            f"them, too: from 1/{world} to all of the bytes.{cure}"
        )
    return (
        f"in the order of the files this rank reads all bytes: rows of {format_nbytes(max(widths))} lie so near that "
        f"it reads those between its own, too.{cure}"
    )


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    for one in node.inputs:
        if isinstance(one, Rows):
            yield from _nodes(one)
