"""The rows of a dataset as any process can read them by their numbers: caches on disk are filled, and read as files."""

from collections.abc import Iterator

from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Node, Rows, plain_context
from penstock.engine.plan import Options
from penstock.engine.stream import open_stream
from penstock.stages.base.stage import StageFlow
from penstock.stages.cache.base import CacheFlow
from penstock.stages.cache.folder import CacheTable
from penstock.stages.cache.on_disk import FlowOnDisk, RowsOnDisk
from penstock.stages.filter import FilteredFlow
from penstock.stages.shuffle.forward import ShuffledFlow


def check_random_access(node: Node) -> None:
    """Raise if a node can only be read forward, and no cache on disk behind it will change that."""
    flow = _only_forward(node)
    if flow is not None:
        cure = "write it without engine first, or cache it on a disk that all nodes share"
        raise ValueError(
            f'engine="ray" needs rows with random access, and {flow.describe()} can only be read forward: '
            f"{cure}.\n"
            '  wrong: ds.write(path, engine="ray")\n'
            '  right: ds.cache(folder).write(path, engine="ray")'
        )


def _only_forward(node: Node) -> Node | None:
    """Return the first node behind which rows have no numbers; None if all have, once caches on disk are full."""
    if isinstance(node, Rows | FlowOnDisk):
        return None
    # The order of a shuffle depends on whether its input has random access: it must stay as it is.
    if isinstance(node, ShuffledFlow | FilteredFlow) or not node.inputs:
        return node
    inner = next((one for one in map(_only_forward, node.inputs) if one is not None), None)
    if inner is None and not isinstance(node, CacheFlow):
        rows = all(isinstance(one, Rows) for one in node.inputs)
        return node if rows else None
    return inner or node


def with_random_access(node: Node, options: Options) -> Rows:
    """Return the same rows, with random access; fills caches on disk first, so that tasks only read them."""
    found = _filled(node, options)
    check_random_access(found)
    assert isinstance(found, Rows)
    return found


def _filled(node: Node, options: Options) -> Node:
    if isinstance(node, FlowOnDisk):
        with open_stream(_Fill(node.stage, node), options) as stream:
            for _ in stream.parcels():
                pass
        return node.table(plain_context())
    if isinstance(node, RowsOnDisk):
        return _table(node, options) or node
    inputs = [_filled(one, options) for one in node.inputs]
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    return node.rebuilt(inputs)


def _table(node: RowsOnDisk, options: Options) -> Rows | None:
    """Return the rows of a cache, filled if need be; None if another process fills it."""
    if node.folder.shards() is None:
        with open_stream(node, options) as stream:
            for parcel in stream.parcels():
                del parcel
    shards = node.folder.shards()
    if shards is None:
        return None
    table = CacheTable(node.folder, shards, node)
    # A shuffle behind it depends on these: they must be those that it was declared with.
    table.fields, table.grains = node.fields, node.grains
    return table


class _Fill(StageFlow):
    """No rows at all; but when it is read, the cache is filled."""

    input: FlowOnDisk

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Fill the cache."""
        self.input.table(context)
        yield from ()
