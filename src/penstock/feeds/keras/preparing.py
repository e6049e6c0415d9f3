"""Batches as Keras would make them of arrays: its dtypes, its sample weights, its nests."""

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.core.arrays import Array
from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.feeds.alignment import aligned_cast
from penstock.feeds.dtypes import byte_order, native
from penstock.feeds.facts import named_specs
from penstock.feeds.keras.backend_dtypes import narrowing_of_backend
from penstock.feeds.leafwise import Convert, chained, leafwise

_MOST_PARTS = 3  # x, y, sample_weight
See = Callable[[list[int]], None]
"""Is told which classes the labels of a batch have."""


def parts_spec(node: Node) -> Any:
    """Return the spec of x, (x, y) or (x, y, sample_weight) in a batch: without the weights that `distribute` adds."""
    return node.spec[0] if node.weighs_rows else node.spec


def check_parts(node: Node) -> None:
    """Raise unless a batch is x, (x,), (x, y) or (x, y, sample_weight)."""
    spec = parts_spec(node)
    if isinstance(spec, tuple) and not 1 <= len(spec) <= _MOST_PARTS:
        raise ValueError(
            f"Keras needs batches of x, (x, y) or (x, y, sample_weight), got a tuple of {len(spec)}.\n"
            "  wrong: ps.from_arrays((a, b, c, y))\n"
            '  right: ps.from_arrays(((a, b, c), y)), or {"a": a, ...} for inputs with names'
        )


def casts(node: Node, floatx: str) -> Convert | None:
    """Return the cast of floats to `floatx`, Keras' own; it leaves integers (images) as they are."""
    return leafwise(node.structure, [_cast(*named, floatx) for named in named_specs(node)])


def _cast(name: str, spec: ArraySpec, floatx: str) -> Convert | None:
    if not _is_float(spec):
        return chained(byte_order(spec), narrowing_of_backend(name, spec))
    if spec.numpy_dtype == np.dtype(floatx):
        return None
    return lambda leaf: aligned_cast(np.asarray(leaf), floatx)


def _is_float(spec: ArraySpec) -> bool:
    return not spec.is_text and "float" in spec.numpy_dtype.name


def class_weights(
    spec: Any, class_weight: dict[int, float], floatx: str, see: See | None = None
) -> Convert:
    """Return a function that adds to a batch the weight of each row's class; `see` is told of the classes."""
    if not (isinstance(spec, tuple) and len(spec) >= 2):
        raise ValueError("class_weight needs labels, and these batches have none: give (x, y).")
    if len(spec) == _MOST_PARTS:
        raise ValueError(
            "class_weight and sample_weight can't be used at the same time; "
            "multiply the sample weights by those of the classes with .map(...)."
        )
    if not isinstance(spec[1], ArraySpec):
        raise ValueError(  # noqa: TRY004  # as Keras does
            "class_weight is only supported for models with a single output."
        )

    def weighted(batch: Any) -> Any:
        return (*batch, _weights(batch[1], class_weight, floatx, see))

    return weighted


def _weights(labels: Array, class_weight: dict[int, float], floatx: str, see: See | None) -> Array:
    if labels.ndim > 1:
        labels = labels.argmax(axis=-1) if labels.shape[-1] != 1 else labels.squeeze(axis=-1)
    numbers = np.round(labels).astype("int32")
    classes, which = np.unique(numbers, return_inverse=True)
    if see is not None:
        see(classes.tolist())
    table = np.array([class_weight.get(int(number), 1.0) for number in classes], floatx)
    return aligned_cast(table[which.reshape(numbers.shape)], floatx)


def add_weights(spec: Any, floatx: str) -> Convert:
    """Return a function that makes a batch and the weights that `distribute` gave its rows one batch for Keras."""
    if not (isinstance(spec, tuple) and len(spec) >= 2):
        raise ValueError(
            'distribute(uneven="pad") weighs rows, and Keras takes weights only beside labels, which these batches do '
            'not have: give (x, y), or use uneven="drop".'
        )

    def weighted(pair: Any) -> Any:
        batch, row_weights = pair
        if len(batch) < _MOST_PARTS:
            return (*batch, row_weights)
        given, structure = flatten(batch[2])
        products = [_times(leaf, row_weights, floatx) for leaf in given]
        return (*batch[:2], structure.unflatten(products))

    return weighted


def _times(given: Array, row_weights: Array, floatx: str) -> Array:
    of_rows = row_weights.reshape(-1, *(1 for _ in given.shape[1:]))
    return aligned_cast(given * of_rows, floatx)


def real_rows(pair: Any) -> Any:
    """Return a batch, or a long one, without the rows that `distribute` has filled it up with."""
    batch, row_weights = pair
    is_real = row_weights > 0
    if is_real.all():
        return batch
    leaves, structure = flatten(batch)
    return structure.unflatten([leaf[is_real] for leaf in leaves])


def spread_weights(spec: Any) -> Convert | None:
    """Return a function that gives the one sample weight of a row to each of several outputs."""
    if not (isinstance(spec, tuple) and len(spec) == _MOST_PARTS):
        return None
    if isinstance(spec[1], ArraySpec) or not isinstance(spec[2], ArraySpec):
        return None
    structure = flatten(spec[1])[1]
    if len(spec[2].shape) > 1 and spec[2].shape[1:] != (1,):
        raise ValueError(
            "for a model with several outputs one sample_weight must be a number a row, got "
            f"{spec[2]}; give one sample_weight for each output, in the nest of y."
        )

    def spread(batch: Any) -> Any:
        x, y, weights = batch
        # A copy for each: TensorFlow computes in place in memory that it believes to be one tensor's alone.
        return (
            x,
            y,
            structure.unflatten(
                [aligned_cast(weights, weights.dtype) for _ in range(structure.num_leaves)]
            ),
        )

    return spread


def preparation(
    node: Node,
    class_weight: dict[int, float] | None,
    floatx: str,
    *,
    is_trained: bool = True,
    see: See | None = None,
) -> Convert | None:
    """Return the function that makes a batch of the stream one for Keras; None if it is one already.

    Rows that a batch was filled up with have no weight in training, and are left out elsewhere (not `is_trained`).
    `see` is told of the classes in each batch that class weights are given to.
    """
    spec = parts_spec(node)
    weigh = None if class_weight is None else class_weights(spec, class_weight, floatx, see)
    if not node.weighs_rows:
        return chained(casts(node, floatx), weigh, spread_weights(spec))
    if not is_trained:
        return chained(casts(node, floatx), real_rows, weigh, spread_weights(spec))

    def weigh_rows(pair: Any) -> Any:
        return (pair[0] if weigh is None else weigh(pair[0]), pair[1])

    add = add_weights(spec, floatx)
    spread = spread_weights(_weighed(spec, floatx))
    return chained(casts(node, floatx), weigh_rows, add, spread)


def prepared_spec(
    node: Node, class_weight: dict[int, float] | None, floatx: str, *, is_trained: bool = True
) -> Any:
    """Return the nest of `ArraySpec` of a batch once it is prepared."""
    leaves, structure = flatten(parts_spec(node))
    spec: Any = structure.unflatten([_cast_spec(leaf, floatx) for leaf in leaves])
    if class_weight is not None or (node.weighs_rows and is_trained):
        spec = _weighed(spec, floatx)
    if spread_weights(spec) is not None:
        outputs = flatten(spec[1])[1]
        spec = (*spec[:2], outputs.unflatten([spec[2]] * outputs.num_leaves))
    if node.weighs_rows and not is_trained:
        # A batch has as many rows as are left of it.
        leaves, structure = flatten(spec)
        cut = [ArraySpec((None, *leaf.shape[1:]), leaf.dtype) for leaf in leaves]
        return structure.unflatten(cut)
    return spec


def _weighed(spec: Any, floatx: str) -> Any:
    """Return the spec of a batch with sample weights, as `class_weights` and `add_weights` give them."""
    if len(spec) < _MOST_PARTS:
        return (*spec, ArraySpec(flatten(spec[1])[0][0].shape[:1], floatx))
    leaves, structure = flatten(spec[2])
    return (*spec[:2], structure.unflatten([ArraySpec(leaf.shape, floatx) for leaf in leaves]))


def _cast_spec(spec: ArraySpec, floatx: str) -> ArraySpec:
    return ArraySpec(spec.shape, floatx) if _is_float(spec) else native(spec)
