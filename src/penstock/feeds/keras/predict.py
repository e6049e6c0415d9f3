"""Predictions written to disk as they come, and layers set from statistics."""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import keras
import numpy as np

from penstock.core.arguments import local_path
from penstock.core.arrays import Array
from penstock.core.nest import field_names, flatten
from penstock.core.rows import refuse_endless
from penstock.engine.stream import open_stream
from penstock.engine.stream.statistics import FieldStatistics
from penstock.feeds.keras.preparing import parts_spec
from penstock.feeds.keras.ranks_apart import all_rows
from penstock.feeds.leafwise import Convert
from penstock.io.atomic import atomic_file
from penstock.io.formats.npy_header import format_header
from penstock.io.paths import PathLike, local_target
from penstock.outlets import Outlets


@dataclass(frozen=True, slots=True)
class Predictions:
    """What `predict_to` wrote."""

    paths: tuple[Path, ...]
    num_rows: int
    to_device_nbytes: int
    """Bytes of batches that went to the model."""
    to_host_nbytes: int
    """Bytes of results that came back."""


class _NpyWriter:
    """An `.npy` that grows by batches; its header is written anew once the rows are counted."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.num_rows = 0
        self.like: Array | None = None

    def add(self, rows: Array) -> None:
        if self.like is None:
            self.like = rows[:0]
            self.file.write(format_header(rows.dtype, (0, *rows.shape[1:])))
        elif rows.shape[1:] != self.like.shape[1:] or rows.dtype != self.like.dtype:
            raise ValueError(
                f"outputs must have one shape to be written as one array, got {rows.shape[1:]} after "
                f"{self.like.shape[1:]}; predict batches of one length, or pad them."
            )
        self.file.write(np.ascontiguousarray(rows).data)
        self.num_rows += len(rows)

    def finish(self) -> None:
        if self.like is None:
            raise ValueError("there are no batches to predict.")
        self.file.seek(0)
        self.file.write(format_header(self.like.dtype, (self.num_rows, *self.like.shape[1:])))


def predict_to(source: Outlets, model: Any, path: PathLike, prepare: Convert | None) -> Predictions:
    """Write what `model` predicts for each row to `path`, a batch at a time.

    A model with several outputs makes `path` a folder with a file each. The files appear whole or not
    at all. It takes the memory of one batch of results. A rank of a distributed dataset predicts for all rows.
    """
    refuse_endless(source.node, "predict_to")
    target = local_path("path", local_target(path))
    _check_ending(target)
    predict = _predict_on_batch(model)
    writers: list[_NpyWriter] = []
    paths: list[Path] = []
    sent = received = 0
    with contextlib.ExitStack() as files, open_stream(source.node, source.options) as stream:
        for batch in stream:
            batch = batch if prepare is None else prepare(batch)
            x = batch[0] if isinstance(batch, tuple) else batch
            sent += sum(leaf.nbytes for leaf in flatten(x)[0])
            outputs, structure = flatten(_as_nest(predict(x)))
            if not writers:
                paths = _paths(target, field_names(structure), is_one=len(outputs) == 1)
                files_ = [files.enter_context(atomic_file(each, replace=True)) for each in paths]
                writers = [_NpyWriter(file) for file in files_]
            for writer, rows in zip(writers, outputs, strict=True):
                received += rows.nbytes
                writer.add(np.asarray(rows))
        if not writers:
            raise ValueError("there are no batches to predict.")
        for writer in writers:
            writer.finish()
    return Predictions(tuple(paths), writers[0].num_rows, sent, received)


def _predict_on_batch(model: Any) -> Convert:
    """Return the function that predicts for one batch, on this process' first device."""
    if keras.backend.backend() == "jax" and keras.distribution.distribution() is not None:
        return _predict_on_one_device(model)
    strategy = getattr(model, "distribute_strategy", None)
    if strategy is None or strategy.num_replicas_in_sync == 1:
        predict: Convert = model.predict_on_batch
        return predict
    import tensorflow as tf

    # Under a strategy predict_on_batch predicts the whole batch on each device, and gives it as often.
    step = tf.function(model.predict_step, reduce_retracing=True)
    return lambda x: tf.nest.map_structure(lambda output: output.numpy(), step((x,)))


def _predict_on_one_device(model: Any) -> Convert:
    """Return the function for JAX under keras.distribution: other devices, and other processes, are not asked."""
    import jax

    def here(variables: list[Any]) -> list[Any]:
        if not all(each.value.is_fully_replicated for each in variables):
            raise ValueError(
                "predict_to computes on one device, and the weights of this model are spread over several; use a model "
                "whose layout keeps them whole, such as one loaded without keras.distribution."
            )
        return [each.value.addressable_data(0) for each in variables]

    state = (here(model.trainable_variables), here(model.non_trainable_variables))
    step = jax.jit(model.predict_step)
    return lambda x: jax.tree.map(np.asarray, step(state, (x,))[0])


def _as_nest(outputs: Any) -> Any:
    return tuple(outputs) if isinstance(outputs, list) else outputs


def _check_ending(path: Path) -> None:
    """Raise for a name that says another format; a number at its end (`run-1.5`) is no ending."""
    suffix = path.suffix
    if suffix.lower() != ".npy" and not suffix[1:].isdecimal() and suffix:
        stem = path.name.removesuffix(suffix)
        raise ValueError(
            f"predict_to writes .npy files, and path ends in {suffix!r}: write {stem + '.npy'!r}, or {stem!r} for the "
            "folder that a model with several outputs makes."
        )


def _paths(path: Path, names: list[str], *, is_one: bool) -> list[Path]:
    if is_one:
        path.parent.mkdir(parents=True, exist_ok=True)
        return [path]
    if path.suffix.lower() == ".npy":
        raise ValueError(
            f"the model has {len(names)} outputs, for which predict_to makes a folder with a file each: write "
            f"{path.stem!r} instead of {path.name!r}."
        )
    path.mkdir(parents=True, exist_ok=True)
    return [path / f"{name}.npy" for name in names]


def normalization(source: Outlets, field: str | int | None, axis: int | None) -> Any:
    """Return a Normalization layer for x, or a nest like x of them, with mean and variance from one pass."""
    rows = all_rows(source)
    refuse_endless(rows.node, "normalization")
    spec = parts_spec(rows.node)
    x_spec = spec[0] if isinstance(spec, tuple) else spec
    wanted, structure = flatten(x_spec)
    names = field_names(structure)
    statistics = rows.statistics()
    # The leaves of x come first; weights of rows that `distribute` adds stand beside the batch.
    found = flatten(statistics)[0][: len(wanted)]
    if field is None:
        made = [_layer(*each, axis) for each in zip(names, found, strict=True)]
        return structure.unflatten(made)
    field = str(field)  # Fields of a tuple have numbers.
    in_row = field_names(flatten(spec)[1])[: len(wanted)] if isinstance(spec, tuple) else []
    for each in (names, in_row):
        if field in each:
            return _layer(field, found[each.index(field)], axis)
    raise ValueError(f"there is no field {field!r} in x; its fields are {', '.join(names)}.")


def _layer(name: str, found: FieldStatistics, axis: int | None) -> Any:
    if found.mean is None or found.variance is None:
        raise TypeError(
            f"field {name!r} of x has no mean and no variance: only numbers have; name the fields to normalise one by "
            "one, with normalization(field=...)."
        )
    if not (np.isfinite(found.mean).all() and np.isfinite(found.variance).all()):
        raise ValueError(
            f"field {name!r} of x has numbers that are missing (nan) or infinite, and so has no mean: the layer would "
            "make nan of every row. Fill them first: .map(lambda x, y: (np.nan_to_num(x), y)), before .batch(...)."
        )
    mean, variance = _along(found.mean, found.variance, axis)
    return keras.layers.Normalization(axis=axis, mean=mean, variance=variance)


def _along(means: Array, variances: Array, axis: int | None) -> tuple[Any, Any]:
    """Return mean and variance for each index of one axis of a row (-1: the last), or for all of it."""
    means, variances = np.asarray(means), np.asarray(variances)
    if axis is None or means.ndim == 0:
        chosen: tuple[int, ...] = ()
    else:
        # Axis 0 of what the layer sees is the batch, which a row does not have.
        chosen = ((axis if axis < 0 else axis - 1) % means.ndim,)
    others = tuple(each for each in range(means.ndim) if each not in chosen)
    mean = means.mean(axis=others)
    # The variance of all is the mean of the variances plus the variance of the means.
    variance = variances.mean(axis=others) + means.var(axis=others)
    return mean.astype("float32"), variance.astype("float32")
