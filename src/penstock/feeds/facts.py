"""What feeds ask of the dataset that they read: how many batches, how large, and whether they can be fed."""

from penstock.core.nest import field_names
from penstock.core.rows import Node, Rows
from penstock.core.spec import ArraySpec


def num_batches(node: Node) -> int | None:
    """Return how many batches an epoch has; None where that is unknown or infinite."""
    return None if node.is_endless else node.num_rows


def has_random_access(node: Node) -> bool:
    """Whether the batches have random access: the cursor of a stream is then the number of a batch."""
    return isinstance(node, Rows)


def batch_size(node: Node) -> int | None:
    """Return the rows of a whole batch, where all fields agree on one."""
    sizes = set()
    for field in node.fields:
        first = field.spec.shape[0] if field.spec.shape else None
        sizes.add(field.most if first is None else first)
    return sizes.pop() if len(sizes) == 1 else None


def named_specs(node: Node) -> list[tuple[str, ArraySpec]]:
    """Return the name and spec of each leaf of a batch."""
    names = field_names(node.structure)
    return [(name, field.spec) for name, field in zip(names, node.fields, strict=True)]


def check_batched(node: Node, call: str) -> None:
    """Raise with the line to write if `batch` was forgotten."""
    if not node.is_batched:
        raise ValueError(
            f"{call} needs batches, and this dataset gives single rows: {node.spec}.\n"
            f"  wrong: ds.{call}\n  right: ds.batch(32).{call}"
        )
