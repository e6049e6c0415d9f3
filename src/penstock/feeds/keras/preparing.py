"""Batches as Keras would make them of arrays: its dtypes, its sample weights, its nests."""

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


def check_parts(spec: Any) -> None:
    """Raise unless a batch is x, (x,), (x, y) or (x, y, sample_weight)."""
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


def class_weights(spec: Any, class_weight: dict[int, float], floatx: str) -> Convert:
    """Return a function that adds to a batch the weight of each row's class."""
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
        return (*batch, _weights(batch[1], class_weight, floatx))

    return weighted


def _weights(labels: Array, class_weight: dict[int, float], floatx: str) -> Array:
    if labels.ndim > 1:
        labels = labels.argmax(axis=-1) if labels.shape[-1] != 1 else labels.squeeze(axis=-1)
    numbers = np.round(labels).astype("int32")
    classes, which = np.unique(numbers, return_inverse=True)
    table = np.array([class_weight.get(int(number), 1.0) for number in classes], floatx)
    return aligned_cast(table[which.reshape(numbers.shape)], floatx)


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


def preparation(node: Node, class_weight: dict[int, float] | None, floatx: str) -> Convert | None:
    """Return the function that makes a batch of the stream one for Keras; None if it is one already."""
    weigh = None if class_weight is None else class_weights(node.spec, class_weight, floatx)
    return chained(casts(node, floatx), weigh, spread_weights(node.spec))


def prepared_spec(node: Node, class_weight: dict[int, float] | None, floatx: str) -> Any:
    """Return the nest of `ArraySpec` of a batch once it is prepared."""
    leaves, structure = flatten(node.spec)
    spec: Any = structure.unflatten([_cast_spec(leaf, floatx) for leaf in leaves])
    if class_weight is not None:
        spec = (*spec, ArraySpec(spec[1].shape[:1], floatx))
    if spread_weights(node.spec) is not None:
        outputs = flatten(spec[1])[1]
        spec = (*spec[:2], outputs.unflatten([spec[2]] * outputs.num_leaves))
    return spec


def _cast_spec(spec: ArraySpec, floatx: str) -> ArraySpec:
    return ArraySpec(spec.shape, floatx) if _is_float(spec) else native(spec)
