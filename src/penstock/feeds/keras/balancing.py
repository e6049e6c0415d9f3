"""class_weight="balanced": the weight of each class, so that all count alike, from one pass over the labels."""

from collections import Counter
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.nest import flatten
from penstock.core.rows import Node, Rows, rows_per_block
from penstock.engine.stream import open_stream
from penstock.feeds.keras.class_weight import CURE, label_name
from penstock.feeds.keras.preparing import parts_spec
from penstock.feeds.keras.ranks_apart import all_rows
from penstock.outlets import Outlets
from penstock.stages.batch import Batch
from penstock.stages.shuffle import Shuffle

_PIECE_NBYTES = 1 << 21  # What is counted at a time.
_MOST_CLASSES = 1 << 16


def balanced_weights(source: Outlets) -> dict[int, float]:
    """Return n / (k * count) for each of k classes of n rows, as scikit-learn does.

    Only the labels are read, where the source can do that and nothing but shuffle and batch stand after it.
    """
    rows = all_rows(source)
    counts: Counter[int] = Counter()
    number = len(flatten(parts_spec(rows.node)[0])[0])  # The leaves of x come before it.
    name = label_name(rows.node)
    node, number = _read_node(rows, number)
    start = 0
    with open_stream(node, rows.options) as stream:
        for batch in stream:
            labels = np.asarray(flatten(batch)[0][number])
            found, times = np.unique(_classes(labels, name, start), return_counts=True)
            counts.update(dict(zip(found.tolist(), times.tolist(), strict=True)))
            start += len(labels)
            if len(counts) > _MOST_CLASSES:
                problem = f"{name} has more than {_MOST_CLASSES} values: these are no classes"
                raise ValueError(f'class_weight="balanced" can\'t be used: {problem}. {CURE}')
    return {each: start / (len(counts) * counts[each]) for each in sorted(counts)}


def _read_node(source: Outlets, number: int) -> tuple[Node, int]:
    """Return what is read for the labels, in batches, and the number of their leaf in it.

    The order does not matter: shuffles are left out. Of a source that can, only the labels are read; but not where bad
    rows are skipped, which may be bad in another field.
    """
    node = source.node
    stage = _stage(node)
    is_plain = type(stage) is Batch and not stage.drop_remainder and not node.inputs[0].is_batched
    if not is_plain or source.options.on_error == "skip":
        return node, number
    inner = node.inputs[0]
    while isinstance(_stage(inner), Shuffle):
        inner = inner.inputs[0]
    # Behind a shuffle, take and the like have other rows in each epoch, and those may follow from all fields.
    only = inner.only(number) if isinstance(inner, Rows) and not inner.follows_epoch else None
    if only is not None:
        inner, number = only, 0
    size = max(1, min(rows_per_block(inner, _PIECE_NBYTES), 1 << 16))
    return Batch(size).build(inner), number


def _stage(node: Node) -> Any:
    return getattr(node, "stage", None)


def _classes(labels: Array, name: str, start: int) -> Array:
    """Return the class of each row; raise if they have none."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim == 1:
        with np.errstate(invalid="ignore"):  # Of NaN, which is refused below.
            classes = labels.astype("int64")
        is_wrong = classes != labels
        what = "a whole number"
    else:
        classes = labels.argmax(axis=1)
        is_wrong = (labels.sum(axis=1) != 1) | (labels.max(axis=1, initial=0) != 1)
        is_wrong |= (labels != 0).sum(axis=1) != 1
        what = "one-hot"
    if is_wrong.any():
        row = int(is_wrong.argmax())
        raise ValueError(
            f'class_weight="balanced" needs a class for each row, and {name} is not {what} in row {start + row}, '
            f"as it is counted: {labels[row]!s:.60}. {CURE}"
        )
    return classes
