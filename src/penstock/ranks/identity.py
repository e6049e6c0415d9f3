"""What must be the same on every rank, as texts: stages, seeds, files, lengths and a few rows."""

import hashlib
import json
from collections.abc import Iterable
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from penstock.core.digests import digest
from penstock.core.fingerprint import walk
from penstock.core.rows import ENDLESS, Node, Rows, plain_context

_FEW_FILES = 4
_STAGE_SHOWN = 200  # Characters of one stage: that of a source can list a million files.
_SAMPLED_ROWS = 16
_SAMPLED_ROWS_ON_STORAGE = 2
_SAMPLED_NBYTES = 4 << 20

_known: WeakKeyDictionary[Node, dict[str, str]] = WeakKeyDictionary()
"""What is known of sources: rows are read, and files listed, once a process and not once an epoch."""


def identity_of(node: Node, *, world: int, start: str) -> dict[str, str]:
    """Return what must be the same on every rank that reads a chain, as texts by what a message calls them.

    Of rows with random access a few are read: each rank may have loaded its own part of the data, of the same shape.

    Args:
        node: The chain as one process reads it, before the rows of a rank are cut out of it.
        world: How many ranks there are.
        start: Where the stream starts: "epoch 0, batch 12".
    """
    nodes = list(walk(node))
    sources = [_known_of(item) for item in nodes if not item.inputs]
    stages = [_stage(item) if item.inputs else _known_of(item)["stage"] for item in nodes]
    return {
        "stages": " > ".join(stages),
        "seeds": _listed(map(_seed, nodes), "none"),
        "files": _listed((source["files"] for source in sources), "none"),
        "length": _listed((source["length"] for source in sources), "none"),
        "rows": _listed((source["rows"] for source in sources), "not looked at"),
        "start": start,
        "world": str(world),
    }


def _listed(words: Iterable[str], none: str) -> str:
    return "; ".join(filter(None, words)) or none


def _known_of(source: Node) -> dict[str, str]:
    found = _known.get(source)
    if found is None:
        rows = _sampled(source) if isinstance(source, Rows) else ""
        found = {
            "stage": _stage(source),
            "files": _files(source),
            "length": _length(source),
            "rows": rows,
        }
        _known[source] = found
    return found


def _stage(node: Node) -> str:
    # Not its description: that may name a path, and each machine may have its own.
    text = json.dumps(node.fingerprint(), sort_keys=True)
    return text if len(text) <= _STAGE_SHOWN else f"{text[:_STAGE_SHOWN]}... {_short_digest(text)}"


def _seed(node: Node) -> str:
    seed = getattr(getattr(node, "stage", None), "seed", None)
    return "" if seed is None else f"{node.fingerprint()[0]} {seed}"


def _files(source: Node) -> str:
    locations = source.locations
    if len(locations) <= _FEW_FILES:
        return "; ".join(f"{one.name} {one.size} bytes" for one in locations)
    total = sum(one.size for one in locations)
    listed = "".join(f"{one.name}\0{one.size}\0" for one in locations)
    ends = f"{locations[0].name} to {locations[-1].name}"
    return f"{len(locations)} files of {total} bytes, {ends}, {_short_digest(listed)}"


def _length(source: Node) -> str:
    if source.num_rows is None:
        return "not known"
    return "endless" if source.num_rows == ENDLESS else f"{source.num_rows} rows"


def _sampled(source: Rows) -> str:
    """Return a digest of a few rows, evenly spaced; '' if there are none, or they are too large."""
    # Where rows are stored together, all of them are decoded for one.
    nbytes = max([source.row_nbytes, *(grain.rows * grain.nbytes for grain in source.grains)])
    most = _SAMPLED_ROWS_ON_STORAGE if source.grains or source.locations else _SAMPLED_ROWS
    num_rows = min(most, source.num_rows, _SAMPLED_NBYTES // max(1, nbytes))
    if num_rows < 1 or source.is_endless:
        return ""
    numbers = np.linspace(0, source.num_rows - 1, num_rows).astype(np.int64)
    try:
        found = _short_digest("".join(map(digest, _read(source, numbers))))
    except Exception as error:  # noqa: BLE001  # Others' arrays raise anything. The stream itself will say where.
        found = f"{type(error).__name__} instead"
    return f"digest of {num_rows} of {source.num_rows} rows: {found}"


def _read(source: Rows, numbers: "np.ndarray[Any, np.dtype[np.int64]]") -> list[Any]:
    context = plain_context()
    try:
        block = context.block(source, len(numbers))
        source.read(numbers, block, context)
        finished = block.finish()
        return [finished.row(place) for place in range(len(numbers))]
    finally:
        context.resources.close()


def _short_digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
