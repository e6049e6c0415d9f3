"""What is in files, and what a shuffled pass over them would cost: the figures of `penstock inspect`."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.nest import field_names
from penstock.core.rows import Node, Rows
from penstock.core.spec import dtype_name
from penstock.dataset import Dataset
from penstock.errors import DataError
from penstock.io.location import Location
from penstock.memory import format_nbytes
from penstock.sources.reading.chunked import Chunked
from penstock.sources.reading.file_rows import FileRows
from penstock.sources.tfrecord.flow import Files
from penstock.sources.tfrecord.index import record_offsets
from penstock.sources.tfrecord.rows import Sample, inferred
from penstock.stages.shuffle.on_storage import WindowedRows

_MOST_EDGES = 10_000_000  # With more chunks than this in a file, they are not compared with blocks.
_MIXED = 1.2  # Chunks that are decoded more often than this are worth a note.


def locations_of(node: Node) -> list[Location]:
    """Return the files that rows come from, those of all inputs of a zip."""
    found = [one for one in node.locations if isinstance(one, Location)]
    return found + [one for child in node.inputs for one in locations_of(child)]


def facts_of(ds: Dataset, window: int | None = None) -> dict[str, Any]:
    """Return what is in the files of a dataset; sizes are in bytes."""
    node = ds.node
    locations = locations_of(node)
    stored = sum(map(_stored_nbytes, locations))
    facts: dict[str, Any] = {
        "source": node.describe(),
        "num_files": len(locations),
        "stored_nbytes": stored,
        "num_rows": node.num_rows,
        "row_nbytes": node.row_nbytes,
        "fields": [
            {
                "name": name,
                "dtype": dtype_name(field.spec.dtype),
                "shape": list(field.spec.shape),
                "nbytes": field.nbytes,
            }
            for name, field in zip(field_names(node.structure), node.fields, strict=True)
        ],
        "read": node.choice(),
    }
    if node.num_rows is not None and isinstance(node, FileRows):
        facts["chunks"] = _chunks(node)
    facts["shuffle"] = _shuffle(ds, stored, window)
    return facts


def facts_of_records(files: Files) -> dict[str, Any]:
    """Return what is in TFRecord files: how they are packed, how many records they have, which features."""
    facts: dict[str, Any] = {
        "files": [
            {"name": str(location), "nbytes": location.size, "packed": packed}
            for location, packed in zip(files.locations, files.compressions, strict=True)
        ],
        "num_records": None,
        "damage": None,
    }
    if not files.is_packed:
        try:
            found = record_offsets(files.locations, verify=True, direct=files.direct)
            facts["num_records"] = sum(len(one) - 1 for one in found)
        except DataError as error:
            facts["damage"] = str(error)
    facts["features"], facts["no_features"] = {}, None
    try:
        features = inferred(files, Sample(files, verify=True))
        facts["features"] = {name: str(feature) for name, feature in features.items()}
    except DataError as error:
        facts["no_features"] = error.problem
    return facts


def lines_of(facts: dict[str, Any]) -> Iterator[str]:
    """Yield the figures as lines for people."""
    num_files = facts["num_files"]
    yield f"files    {num_files}, {format_nbytes(facts['stored_nbytes'])}: {facts['source']}"
    num_rows, row_nbytes = facts["num_rows"], facts["row_nbytes"]
    rows = "unknown until they are read" if num_rows is None else f"{num_rows}"
    yield f"rows     {rows}, {format_nbytes(row_nbytes)} each"
    if num_rows is not None:
        yield f"bytes    {format_nbytes(num_rows * row_nbytes)} in memory"
    for field in facts["fields"]:
        shape = ", ".join("?" if size is None else str(size) for size in field["shape"])
        size = format_nbytes(field["nbytes"])
        yield f"field    {field['name']}: {field['dtype']} ({shape}), {size} a row"
    if facts["read"]:
        yield f"read     {facts['read']}"
    if "chunks" in facts:
        yield f"chunks   {_chunk_words(facts['chunks'], row_nbytes)}"
    yield from _shuffle_lines(facts["shuffle"])


def lines_of_records(facts: dict[str, Any]) -> Iterator[str]:
    """Yield what is in TFRecord files as lines for people."""
    for file in facts["files"]:
        how = "" if file["packed"] == "none" else f", {file['packed']}"
        yield f"file     {file['name']}: {file['nbytes']} bytes{how}"
    if facts["damage"]:
        yield f"damaged  {facts['damage']}"
    else:
        count = facts["num_records"]
        yield f"records  {'unknown until they are read' if count is None else count}"
    if facts["no_features"] and not facts["damage"]:
        yield f"features none ({facts['no_features']}): read them with raw=True"
    for name, feature in facts["features"].items():
        yield f"feature  {name!r}: {feature}"


def _stored_nbytes(location: Location) -> int:
    if location.is_directory and not location.is_remote:
        total = 0
        for one in Path(location.url).rglob("*"):
            with suppress(OSError):  # It went away meanwhile, or may not be looked at.
                total += one.stat().st_size if one.is_file() else 0
        return total
    return location.size


def _chunks(node: FileRows) -> dict[str, int] | None:
    grids = [
        leaf.grid
        for part in node.parts
        for leaf in [max(part.leaves.values(), key=lambda leaf: leaf.field.nbytes)]
        if isinstance(leaf, Chunked)
    ]
    if not grids:
        return None
    return {
        "count": sum(grid.num_chunks for grid in grids),
        "most_rows": max(grid.chunk_rows for grid in grids),
    }


def _chunk_words(chunks: dict[str, int] | None, row_nbytes: int) -> str:
    if chunks is None:
        return "none: rows lie one after the other"
    largest = chunks["most_rows"]
    return f"{chunks['count']}, of up to {largest} rows ({format_nbytes(largest * row_nbytes)})"


def _shuffle(ds: Dataset, stored: int, window: int | None) -> dict[str, Any]:
    node, shuffled = ds.node, ds.shuffle(window=window)
    facts: dict[str, Any] = {"choice": shuffled.node.choice()}
    if isinstance(shuffled.node, WindowedRows) and isinstance(node, FileRows):
        order = shuffled.node.order(0)
        times = decoded_times(node, order.block_rows) if not order.is_whole else 1.0
        facts |= {
            "read_nbytes": int(stored * times),
            "times_decoded": times,
            "num_windows": order.num_windows,
            "mixing": order.mixing(),
        }
    elif isinstance(node, Rows):
        facts |= {"read_nbytes": stored, "mixing": 1.0}
    plan = shuffled.explain()
    return facts | {
        "memory_nbytes": plan.total_nbytes,
        "budget_nbytes": plan.budget_nbytes,
        "need_nbytes": plan.need_nbytes,
    }


def _shuffle_lines(facts: dict[str, Any]) -> Iterator[str]:
    yield f"shuffle  {facts['choice']}"
    if "times_decoded" in facts:
        times = facts["times_decoded"]
        yield (
            f"  reads  {format_nbytes(facts['read_nbytes'])} a pass ({times:.2f} times the files), "
            f"{facts['num_windows']} windows, mixing {facts['mixing']:.2f}"
        )
        if times > _MIXED:
            yield (
                "  note   blocks and chunks don't begin at the same rows, so that chunks are decoded more "
                "than once: files whose lengths are multiples of the chunk avoid that"
            )
    elif "mixing" in facts:
        yield f"  reads  {format_nbytes(facts['read_nbytes'])} a pass, mixing 1.00"
    yield (
        f"  memory {format_nbytes(facts['memory_nbytes'])} of a budget of "
        f"{format_nbytes(facts['budget_nbytes'])}; would do with {format_nbytes(facts['need_nbytes'])}"
    )


def decoded_times(node: FileRows, block_rows: int) -> float:
    """Return how often a byte is decoded in a windowed pass, on average: once where blocks are whole chunks."""
    decoded = 0.0
    for name, field in zip(node.names, node.fields, strict=True):
        decoded += field.nbytes * _decoded_times(node, name, block_rows)
    return decoded / max(1, node.row_nbytes)


def _decoded_times(node: FileRows, name: str, block_rows: int) -> float:
    """Return how often a row of one field is decoded."""
    edges, retained = [], 0
    for start, part in zip(node.starts.tolist(), node.parts, strict=False):
        leaf = part.leaves[name]
        if not isinstance(leaf, Chunked) or leaf.num_chunks > _MOST_EDGES:
            return 1.0
        grid, retained = leaf.grid, leaf.num_retained
        inner = np.arange(0, grid.num_rows, grid.chunk_rows) if grid.edges is None else grid.edges
        edges.append(inner + start)
    chunks = np.unique(np.concatenate([*edges, [node.num_rows]]))
    if len(chunks) - 1 <= retained:
        return 1.0
    blocks = np.arange(0, node.num_rows, block_rows)
    pieces = np.union1d(chunks, blocks)[:-1]
    sizes = np.diff(chunks)[np.searchsorted(chunks, pieces, side="right") - 1]
    return float(sizes.sum() / max(1, node.num_rows))
