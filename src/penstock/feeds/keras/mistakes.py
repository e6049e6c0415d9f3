"""What is easily done wrong with a feed in Keras, told when it is done, with what to write instead."""

from typing import Any

from penstock.core.nest import field_names, flatten
from penstock.core.rows import Node
from penstock.errors import warn_user
from penstock.feeds.keras.calls import model_of_fit
from penstock.feeds.keras.preparing import parts_spec

# What fields with labels are mostly called.
_LABELS = {"y", "label", "labels", "target", "targets", "class", "classes", "output", "outputs"}


def check_labels(node: Node) -> None:
    """Raise when `fit` is called for a loss that compares with labels, on batches that have none."""
    spec = parts_spec(node)
    if isinstance(spec, tuple) and len(spec) > 1:
        return
    model = model_of_fit()
    if model is None or getattr(model, "_compile_loss", None) is None:
        return
    if any(_is_own(model, name) for name in ("train_step", "compute_loss")):
        return  # It may know where its labels are.
    names = field_names(flatten(spec)[1]) if isinstance(spec, dict) else []
    if len(names) > 1:
        names.sort(key=lambda name: name.rpartition(".")[2].lower() in _LABELS)
        x, y = f"{names[0]!r}, {names[1]!r}", f"row[{names[0]!r}], row[{names[1]!r}]"
        raise ValueError(
            f"the loss of this model needs labels, and a row of this dataset is a dict, all of which Keras takes as "
            f"inputs: {', '.join(map(repr, names))}. Name the fields, inputs first:\n"
            f"  wrong: ps.from_files(path)\n"
            f"  right: ps.from_files(path, fields=({x})), or ds.map(lambda row: ({y})) before batch"
        )
    raise ValueError(
        f"the loss of this model needs labels, and batches have none: {spec}.\n"
        "  wrong: ps.from_arrays(x)\n  right: ps.from_arrays((x, y))"
    )


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


def not_for_tf_keras() -> TypeError:
    """Return the error for a feed of Keras 3 that was given to a model of Keras 2."""
    return TypeError(
        "this is a model of tf_keras (Keras 2), which takes no feed of to_keras(), but a tf.data.Dataset:\n"
        "  wrong: model.fit(ds.to_keras())\n  right: model.fit(ds.to_tf())"
    )
