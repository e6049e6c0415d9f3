"""Many batches as one long batch, for a framework that cuts it up again in C++."""

from penstock.core.arrays import Array
from penstock.core.blocks import Block
from penstock.core.columns import Column, Fixed
from penstock.core.rows import Node
from penstock.feeds.facts import batch_size, has_random_access
from penstock.stages.batch import BatchedRows


def can_join(node: Node) -> bool:
    """Whether the batches of a block can be cut up again by their size alone."""
    if not has_random_access(node) or batch_size(node) is None:
        return False
    if not all(field.storage_shape is not None for field in node.fields):
        return False
    # A batch that is cut short must be the last: true of `batch` itself, not of what follows it.
    return isinstance(node, BatchedRows) or all(f.spec.is_fixed for f in node.fields)


def join(block: Block, size: int) -> list[Array]:
    """Return the first `size` batches of a block as one long batch a leaf, as views if the layout allows it."""
    return [_rows(column, size) for column in block.columns]


def _rows(column: Column, size: int) -> Array:
    assert isinstance(column, Fixed)
    batches = column.rows[:size]
    num_rows = batches.shape[0] * batches.shape[1]
    if column.lengths is not None:
        num_rows = int(column.lengths[:size].sum())
    # A gap between batches, for alignment, makes this a copy; most batches have none.
    joined: Array = batches.reshape(-1, *batches.shape[2:])
    return joined[:num_rows]
