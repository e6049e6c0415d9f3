"""`penstock inspect PATH`: what is in files, and what a shuffled pass over them would cost."""

import argparse
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from penstock.cli import are_tfrecords, parse_storage_options, print_error
from penstock.core.nest import field_names
from penstock.core.rows import Node, Rows
from penstock.core.spec import ArraySpec, dtype_name
from penstock.dataset import Dataset
from penstock.errors import PenstockError
from penstock.io.location import Location
from penstock.makers import from_files
from penstock.memory import format_nbytes
from penstock.sources.reading.chunked import Chunked
from penstock.sources.reading.file_rows import FileRows
from penstock.sources.tfrecord.rows import describe_tfrecord, open_records
from penstock.stages.shuffle.on_storage import WindowedRows

_MOST_EDGES = 10_000_000  # With more chunks than this in a file, they are not compared with blocks.


def main(arguments: list[str]) -> int:
    """Print what is in some files; return 0, or 1 if they can't be read."""
    parser = argparse.ArgumentParser(
        prog="penstock inspect",
        description="Show what is in files, and what a shuffled pass costs.",
    )
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, folder, glob or URL")
    parser.add_argument("--fields", help="names of arrays or columns, separated by commas")
    parser.add_argument("--format", help="where the file's ending does not tell")
    parser.add_argument("--dtype", help="of a raw file")
    parser.add_argument("--shape", default="", help="of a row of a raw file, such as 28,28")
    parser.add_argument("--window", help="of the shuffle, such as 1GB")
    parser.add_argument(
        "--storage-options", metavar="JSON", default="{}", help="what fsspec needs to read a URL"
    )
    found = parser.parse_args(arguments)
    try:
        spec = None
        if found.dtype:
            spec = ArraySpec([int(size) for size in found.shape.split(",") if size], found.dtype)
        fields = tuple(found.fields.split(",")) if found.fields else None
        paths = found.paths[0] if len(found.paths) == 1 else found.paths
        for line in _lines(paths, fields, spec, found):
            print(line)
    except (PenstockError, OSError, ValueError, TypeError, ImportError) as error:
        print_error("inspect", error, source_format="--format")
        return 1
    return 0


def _lines(
    paths: str | list[str],
    fields: tuple[str, ...] | None,
    spec: ArraySpec | None,
    found: argparse.Namespace,
) -> Iterable[str]:
    names = [paths] if isinstance(paths, str) else paths
    options = parse_storage_options(found.storage_options)
    if any(are_tfrecords(name, found.format) for name in names):
        return describe_tfrecord(open_records(paths, None, options).locations)
    ds = from_files(paths, fields, format=found.format, spec=spec, storage_options=options)
    return describe(ds, found.window)


def describe(ds: Dataset, window: str | None = None) -> Iterator[str]:
    """Yield the lines that say what is in the files of a dataset."""
    node = ds.node
    locations = [one for one in node.locations if isinstance(one, Location)]
    stored = sum(map(_stored_nbytes, locations))
    yield f"files    {len(locations)}, {format_nbytes(stored)}: {node.describe()}"
    rows = "unknown until they are read" if node.num_rows is None else f"{node.num_rows}"
    yield f"rows     {rows}, {format_nbytes(node.row_nbytes)} each"
    if node.num_rows is not None:
        yield f"bytes    {format_nbytes(node.num_rows * node.row_nbytes)} in memory"
    for name, field in zip(field_names(node.structure), node.fields, strict=True):
        shape = ", ".join("?" if size is None else str(size) for size in field.spec.shape)
        yield f"field    {name}: {dtype_name(field.spec.dtype)} ({shape}), {format_nbytes(field.nbytes)} a row"
    if node.choice():
        yield f"read     {node.choice()}"
    if node.num_rows is not None and isinstance(node, FileRows):
        yield f"chunks   {_chunks(node)}"
    yield from _shuffled(ds, node, stored, window)


def _stored_nbytes(location: Location) -> int:
    if location.is_directory and not location.is_remote:
        return sum(one.stat().st_size for one in Path(location.url).rglob("*") if one.is_file())
    return location.size


def _chunks(node: FileRows) -> str:
    grids = [
        leaf.grid
        for part in node.parts
        for leaf in [max(part.leaves.values(), key=lambda leaf: leaf.field.nbytes)]
        if isinstance(leaf, Chunked)
    ]
    if not grids:
        return "none: rows lie one after the other"
    count = sum(grid.num_chunks for grid in grids)
    largest = max(grid.chunk_rows for grid in grids)
    return f"{count}, of up to {largest} rows ({format_nbytes(largest * node.row_nbytes)})"


def _shuffled(ds: Dataset, node: Node, stored: int, window: str | None) -> Iterator[str]:
    shuffled = ds.shuffle(window=window)
    yield f"shuffle  {shuffled.node.choice()}"
    if isinstance(shuffled.node, WindowedRows) and isinstance(node, FileRows):
        order = shuffled.node.order(0)
        times = decoded_times(node, order.block_rows) if not order.is_whole else 1.0
        yield (
            f"  reads  {format_nbytes(int(stored * times))} a pass ({times:.2f} times the files), "
            f"{order.num_windows} windows, mixing {order.mixing():.2f}"
        )
        if times > 1.2:
            yield (
                "  note   blocks and chunks don't begin at the same rows, so that chunks are decoded more "
                "than once: files whose lengths are multiples of the chunk avoid that"
            )
    elif isinstance(node, Rows):
        yield f"  reads  {format_nbytes(stored)} a pass, mixing 1.00"
    plan = shuffled.explain()
    yield (
        f"  memory {format_nbytes(plan.total_nbytes)} of a budget of {format_nbytes(plan.budget_nbytes)}; "
        f"would do with {format_nbytes(plan.need_nbytes)}"
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
