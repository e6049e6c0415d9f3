"""class_weight: what is wrong with the weights that were given, and which classes the labels had."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from penstock.core.nest import field_names, flatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.errors import warn_user
from penstock.feeds.keras.preparing import parts_spec

ClassWeight = dict[int, float] | str | None
"""What users give: a weight for each class, or "balanced"."""
BALANCED = "balanced"
CURE = 'Give class_weight={0: 1.0, 1: 2.5, ...} instead of "balanced".'


def check_class_weight(node: Node, class_weight: ClassWeight) -> None:
    """Raise if it is neither a dict nor "balanced", or if labels of this kind have no classes; reads nothing."""
    if not isinstance(class_weight, str):
        if class_weight is not None:
            _check_weights(class_weight)
            _check_classes(node, class_weight)
        return
    if class_weight != BALANCED:
        raise ValueError(
            f'class_weight must be a dict of a weight for each class, or "balanced", got {class_weight!r}.'
        )
    spec = parts_spec(node)
    if not (isinstance(spec, tuple) and len(spec) >= 2):
        raise ValueError("class_weight needs labels, and these batches have none: give (x, y).")
    labels = spec[1]
    if not isinstance(labels, ArraySpec):
        raise ValueError(  # noqa: TRY004  # as Keras does
            "class_weight is only supported for models with a single output."
        )
    if labels.is_text or labels.numpy_dtype.kind not in "biuf" or not 1 <= len(labels.shape) <= 2:
        raise ValueError(
            'class_weight="balanced" counts labels that are one number a row, or one-hot; '
            f"{label_name(node)} of a batch is {labels}. {CURE}"
        )
    if node.is_endless:
        raise ValueError(
            'class_weight="balanced" takes one pass over the labels, and the dataset never ends: leave repeat() out.'
        )


def _check_weights(class_weight: Any) -> None:
    """Raise for what Keras would ignore, class by class, without a word, or fail at in the first step."""
    if not isinstance(class_weight, Mapping):
        cure = (
            "dict(enumerate(weights))" if hasattr(class_weight, "__iter__") else "{0: 1.0, 1: 2.5}"
        )
        raise TypeError(
            f"class_weight must be a dict of a weight for each class, got {class_weight!r:.80}; write {cure}."
        )
    for key, weight in class_weight.items():
        if isinstance(key, bool) or not hasattr(key, "__index__"):
            raise TypeError(
                f"the keys of class_weight must be the numbers of classes, got {key!r}, which no label is; write "
                "{int(key): weight for key, weight in class_weight.items()}."
            )
        if isinstance(weight, str) or not np.isscalar(weight) or not np.isfinite(weight):
            raise ValueError(
                f"the weights of class_weight must be finite numbers, got {weight!r} for class {key}."
            )


def _check_classes(node: Node, class_weight: Mapping[int, float]) -> None:
    """Raise for a class that no label of this shape and dtype can be; Keras ignores its weight without a word."""
    spec = parts_spec(node)
    labels = spec[1] if isinstance(spec, tuple) and len(spec) >= 2 else None
    if not isinstance(labels, ArraySpec):
        return  # Refused elsewhere, with what is wrong then.
    if labels.is_text:
        raise TypeError(
            f"class_weight needs labels that are numbers, and {label_name(node)} of a batch is {labels}; make "
            "numbers of them: .map(lambda x, y: (x, names.index(y))), before .batch(...)."
        )
    least, most = _range_of_classes(labels)
    for key in class_weight:
        if not least <= key <= most:
            raise ValueError(
                f"class_weight has a weight for class {int(key)}, and no label can be {int(key)}: "
                f"{label_name(node)} of a batch is {labels}, whose classes are {least} to {most}. Leave it out."
            )


def _range_of_classes(labels: ArraySpec) -> tuple[float, float]:
    """Return the least and the largest number that a label can be as a class, as far as its spec tells."""
    width = labels.shape[-1] if len(labels.shape) > 1 else 1
    if width is None:
        return 0, np.inf
    if width != 1:
        return 0, width - 1  # One-hot.
    if labels.numpy_dtype.kind == "b":
        return 0, 1
    if labels.numpy_dtype.kind in "iu":
        limits = np.iinfo(labels.numpy_dtype)
        return int(limits.min), int(limits.max)
    return -np.inf, np.inf


def check_classes_of_model(model: Any, class_weight: Mapping[int, float] | None) -> None:
    """Raise for a class that the model has no output for, where its loss says that each class has one."""
    shape = getattr(model, "output_shape", None) if getattr(model, "built", False) else None
    if not class_weight or not isinstance(shape, tuple) or not isinstance(shape[-1], int):
        return
    loss = getattr(model, "loss", None)
    name = loss if isinstance(loss, str) else getattr(loss, "name", getattr(loss, "__name__", ""))
    most = shape[-1] - 1
    if name != "sparse_categorical_crossentropy" or max(class_weight) <= most:
        return
    key = int(max(class_weight))
    raise ValueError(
        f"class_weight has a weight for class {key}, and the model has {most + 1} outputs, for the classes 0 to "
        f"{most}; leave class {key} out."
    )


def check_same_weights(of_feed: dict[int, float] | None, of_fit: dict[int, float] | None) -> None:
    """Raise if both were given, and are not the same."""
    if of_feed is not None and of_fit is not None and of_feed != of_fit:
        raise ValueError(
            f"class_weight={_shown(of_fit)} of fit contradicts that of the feed, {_shown(of_feed)}: leave one of them "
            "out.\n"
            "  right: model.fit(ds.to_keras(class_weight=...))\n"
            "  right: model.fit(ds.to_keras(), class_weight=...)"
        )


def _shown(class_weight: dict[int, float]) -> str:
    return f"{ ({int(key): float(weight) for key, weight in class_weight.items()})!r:.80}"


class ClassesSeen:
    """Which classes the labels of a training had: a weight for another is one that Keras ignores without a word."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._told: set[int] = set()

    def update(self, classes: Iterable[int]) -> None:
        """Note the classes of a batch."""
        self._seen.update(classes)

    def warn_of_others(self, class_weight: dict[int, float] | None) -> None:
        """Warn, once, of weights for classes that no label had. To be called when all labels were seen."""
        others = {int(key) for key in class_weight or ()} - self._seen - self._told
        if not others:
            return
        self._told |= others
        warn_user(
            f"class_weight has weights for classes that no label of the epoch has: {_numbers(others)}. The labels are "
            f"{_numbers(self._seen)}; check the numbers of the classes, or leave these weights out."
        )


def _numbers(classes: set[int]) -> str:
    named = ", ".join(str(each) for each in sorted(classes)[:20])
    return f"{named}, ..." if len(classes) > 20 else named


def label_name(node: Node) -> str:
    """Return how messages call the labels of a batch."""
    spec = parts_spec(node)
    number = len(flatten(spec[0])[0])
    return f"field {field_names(flatten(spec)[1])[number]!r}"
