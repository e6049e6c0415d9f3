"""What is easily done wrong with a feed in Keras, told when it is done, with what to write instead."""

from typing import Any

from penstock.core.fingerprint import walk
from penstock.core.nest import field_names, flatten
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.errors import warn_user
from penstock.feeds.keras.calls import model_of
from penstock.feeds.keras.preparing import parts_spec
from penstock.stages.zip import ZippedRows

# What fields with labels are mostly called.
_LABELS = {"y", "label", "labels", "target", "targets", "class", "classes", "output", "outputs"}


def check_labels(node: Node) -> None:
    """Raise when `fit` or `evaluate` has a loss that compares with labels, and batches have none, or text."""
    spec = parts_spec(node)
    labels = spec[1] if isinstance(spec, tuple) and len(spec) > 1 else None
    if labels is not None and not (isinstance(labels, ArraySpec) and _is_text(labels)):
        return
    model = model_of("fit", "evaluate")
    if model is None or getattr(model, "_compile_loss", None) is None:
        return
    if any(_is_own(model, name) for name in ("train_step", "test_step", "compute_loss")):
        return  # It may know where its labels are.
    if labels is not None:
        raise TypeError(
            f"the loss of this model needs labels that are numbers, and those of this dataset are {labels}.\n"
            "  right: names = sorted(set(all_labels)), then ds.map(lambda x, y: (x, names.index(y))) before batch"
        )
    names = field_names(flatten(spec)[1]) if isinstance(spec, dict) else []
    if len(names) > 1:
        names.sort(key=lambda name: name.rpartition(".")[2].lower() in _LABELS)
        fields = _pair([repr(name) for name in names])
        values = _pair([f"row[{name!r}]" for name in names])
        by_fields = f"ps.from_files(path, fields={fields}), or "
        if any(isinstance(one, ZippedRows) for one in walk(node)):
            by_fields = ""  # Files side by side have their names from the dict of paths.
        raise ValueError(
            f"the loss of this model needs labels, and a row of this dataset is a dict, all of which Keras takes as "
            f"inputs: {', '.join(map(repr, names))}. Name the fields, inputs first and the label last:\n"
            f"  wrong: ps.from_files(path)\n"
            f"  right: {by_fields}ds.map(lambda row: {values}) before batch"
        )
    raise ValueError(
        f"the loss of this model needs labels, and batches have none: {spec}.\n"
        "  wrong: ps.from_arrays(x)\n  right: ps.from_arrays((x, y))"
    )


def _is_text(spec: ArraySpec) -> bool:
    return spec.is_text or spec.numpy_dtype.kind in "US"


def _pair(names: list[str]) -> str:
    """Return inputs and label as a tuple: the last is the label; several inputs are a tuple of their own."""
    inputs = names[0] if len(names) == 2 else f"({', '.join(names[:-1])})"
    return f"({inputs}, {names[-1]})"


def _is_own(model: Any, method: str) -> bool:
    """Whether a model's class has its own way to do what Keras does in a method."""
    found = getattr(type(model), method, None)
    return not str(getattr(found, "__module__", "")).startswith("keras.")


def warn_of_shuffled_outputs(node: Node, call: str) -> None:
    """Warn that outputs do not stand in the order of the rows, if they do not."""
    if node.num_shuffles:
        warn_user(
            f"{call} gives its outputs in the order in which the dataset is shuffled (that of epoch 0), not in that "
            "of its files or arrays. For their order leave shuffle() out: ds.batch(32).to_keras()."
        )
        return
    for one in walk(node):
        stage = getattr(one, "stage", None)
        if getattr(stage, "moves_rows", False):
            name = one.describe().partition("(")[0]
            warn_user(
                f"{call} gives its outputs in the order in which {name} puts rows, not in that of its files or arrays. "
                f"For their order leave {name} out: ds.batch(32).to_keras(), or ds.padded_batch(32).to_keras()."
            )
            return


def not_for_tf_keras() -> TypeError:
    """Return the error for a feed of Keras 3 that was given to a model of Keras 2."""
    return TypeError(
        "this is a model of tf_keras (Keras 2), which takes no feed of to_keras(), but a tf.data.Dataset:\n"
        "  wrong: model.fit(ds.to_keras())\n  right: model.fit(ds.to_tf())"
    )
