"""fit_arrays: `model.fit(x, y, ...)` for arrays that do not fit in memory, with one line changed."""

import math
import os
from typing import Any

from penstock.core.habits import teaching
from penstock.dataset import Dataset
from penstock.feeds.base import Feed
from penstock.makers import from_arrays


@teaching
def fit_arrays(
    model: Any,
    x: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    batch_size: int = 32,
    shuffle: bool = True,
    seed: int | None = 0,
    validation_split: float = 0.0,
    validation_seed: int | None = None,
    validation_data: Any = None,
    validation_batch_size: int | None = None,
    memory: int | str | None = None,
    device_memory: int | str | None = None,
    **fit_arguments: Any,
) -> Any:
    """Return `model.fit(x, y, ...)`, read a batch at a time from wherever the arrays are.

    Takes what `Model.fit` of Keras takes for arrays, and memmaps, HDF5 and Zarr arrays as they are: where
    `model.fit(x, y, batch_size=32, epochs=3)` took all memory, `ps.fit_arrays(model, x, y, batch_size=32, epochs=3)`
    takes its budget.

    Args:
        model: The compiled Keras model.
        x: An array, or a nest or list of arrays for several inputs.
        y: The targets, likewise.
        sample_weight: A weight a row.
        batch_size: The rows of a batch.
        shuffle: Whether rows are shuffled anew each epoch.
        seed: The order that a shuffle has; None draws one.
        validation_split: The share of rows, the last ones, that is set aside before shuffling, without a copy.
        validation_seed: With one, these are random rows instead of the last, as `ds.split` picks them.
        validation_data: (x, y) or (x, y, sample_weight) to validate on.
        validation_batch_size: The rows of a batch that is validated on; by default `batch_size`.
        memory: The budget beyond the arrays, in bytes or like "512MB"; by default half of what is free.
        device_memory: Training data that fits it is copied to the device once; so is validation data that
            fits what is left of it.
        fit_arguments: What else `Model.fit` takes: `epochs`, `callbacks`, ...
    """
    _check_model(model)
    if not 0 <= validation_split < 1:
        raise ValueError(
            f"validation_split must be at least 0 and less than 1, got {validation_split}."
        )
    if validation_seed is not None and not validation_split:
        raise ValueError(
            f"validation_seed={validation_seed} picks the rows of validation_split, which is not there: "
            "write validation_split=0.1."
        )
    rows = _rows(model, x, y, sample_weight)
    held_out: Dataset | None = None
    if validation_data is not None:
        if not issubclass(type(validation_data), tuple | list) or len(validation_data) not in (
            2,
            3,
        ):
            raise TypeError(
                "validation_data of fit_arrays must be (x, y) or (x, y, sample_weight), got "
                f"{type(validation_data).__name__}; write model.fit(train, validation_data=valid) for feeds."
            )
        held_out = _rows(model, *validation_data)
    elif validation_split:
        first = math.floor(len(rows) * (1.0 - validation_split))
        if first in (0, len(rows)):
            raise ValueError(
                f"validation_split={validation_split} of {len(rows)} rows leaves "
                "nothing to train or to validate on."
            )
        if validation_seed is None:
            rows, held_out = rows.take(first), rows.skip(first)
        else:
            rows, held_out = rows.split(1.0 - validation_split, seed=validation_seed)
    if shuffle:
        rows = rows.shuffle(seed=seed)
    feed = _feed(rows, batch_size, memory, device_memory)
    if held_out is not None:
        left = None if device_memory is None else feed.residency.left_nbytes
        size = batch_size if validation_batch_size is None else validation_batch_size
        fit_arguments["validation_data"] = _feed(held_out, size, memory, left)
    return model.fit(feed, **fit_arguments)


def _check_model(model: Any) -> None:
    """Raise for what is no model of Keras 3: another argument, or a model that takes no feed of `to_keras()`."""
    packages = {each.__module__.partition(".")[0] for each in type(model).__mro__}
    if "tf_keras" in packages:
        raise TypeError(
            "fit_arrays is for models of Keras 3, and this one is of tf_keras (Keras 2).\n"
            "  right: model.fit(ps.from_arrays((x, y)).shuffle(seed=0).batch(32).to_tf())"
        )
    if not callable(getattr(model, "fit", None)):
        raise TypeError(
            f"fit_arrays takes a compiled Keras model first, got {type(model).__name__}: ps.fit_arrays(model, x, y)."
        )


def _rows(model: Any, x: Any, y: Any = None, sample_weight: Any = None) -> Dataset:
    for part in (x, y, sample_weight):
        _refuse_others(part, x, y)
    _refuse_table(model, "x", x, "_inputs_struct")
    _refuse_table(model, "y", y, "_outputs_struct")
    parts = [_nest(part) for part in (x, y, sample_weight) if part is not None]
    return from_arrays(tuple(parts))


def _refuse_others(part: Any, x: Any, y: Any) -> None:
    """Raise for a dataset, a feed and the path of a file, which are read in other ways."""
    kind = type(
        part
    )  # Not isinstance, which asks a dataset for its class: it would take us for Keras.
    if issubclass(kind, Dataset):
        batch = "" if part.node.is_batched else "batch(32)."
        raise TypeError(
            f"fit_arrays takes arrays, got a Dataset; write model.fit(ds.{batch}to_keras())."
        )
    if issubclass(kind, Feed):
        raise TypeError("fit_arrays takes arrays, got a feed; write model.fit(feed).")
    if issubclass(kind, str | os.PathLike):
        files = [f"ps.from_files({os.fspath(one)!r})" for one in (x, y) if _is_path(one)]
        made = files[0] if y is None else f"ps.zip({', '.join(files)})"
        if len(files) < 2 and y is not None:
            made = "ps.zip(ps.from_files('x.npy'), ps.from_files('y.npy'))"
        raise TypeError(
            f"fit_arrays takes arrays, got the path {os.fspath(part)!r}; files are read by from_files.\n"
            f"  right: ds = {made}\n"
            "         model.fit(ds.shuffle(seed=0).batch(32).to_keras())"
        )


def _is_path(part: Any) -> bool:
    return issubclass(type(part), str | os.PathLike)


def _refuse_table(model: Any, name: str, part: Any, struct: str) -> None:
    """Raise for a table where the model has one tensor: rows of a table are dicts of its columns."""
    found = getattr(getattr(model, "_functional", None) or model, struct, None)
    if hasattr(part, "columns") and hasattr(part, "to_numpy") and hasattr(found, "shape"):
        raise TypeError(
            f"a row of a table is a dict of its columns, and the model has one tensor for {name}; write "
            f"{name}.to_numpy()."
        )


def _nest(part: Any) -> Any:
    # Keras takes a list of arrays for several inputs; here a list is data.
    is_several = (
        isinstance(part, list) and part and all(getattr(each, "shape", ()) for each in part)
    )
    return tuple(part) if is_several else part


def _feed(
    rows: Dataset, batch_size: int, memory: int | str | None, device_memory: int | str | None
) -> Any:
    batches = rows.batch(batch_size)
    if memory is not None:
        batches = batches.with_options(memory=memory)
    return batches.to_keras(device_memory=device_memory)
