"""Exact resume inside `fit`: all of a training run in one file, replaced as a whole."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from penstock.core.arguments import whole_number
from penstock.errors import StateError
from penstock.feeds.keras.random_state import random_state, set_random_state
from penstock.io.atomic import atomic_file

if TYPE_CHECKING:
    from penstock.feeds.passes import Pass

VERSION = 1
FILE = "checkpoint.npz"


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Saves a run every so many batches and at the end of each epoch, and goes on from what it saved.

    Put it into `fit(callbacks=[...])` and run the same script again after whatever ended it: weights,
    optimizer, metrics, random numbers and the place in the data are those of the batch last trained
    on. It takes the weights' and the optimizer's size on disk, and as much memory while it saves.
    """

    def __init__(self, feed: Any, folder: str, *, every_batches: int = 500) -> None:
        super().__init__()
        self._feed = feed
        self._path = Path(folder) / FILE
        self._every = whole_number("every_batches", every_batches, least=1)
        self._epoch = 0
        self._steps_done = 0
        """Batches trained on in this epoch of Keras."""
        self._offset = 0
        """Those of them that an earlier process trained on."""
        self._trained = 0
        """Batches trained on in the pass of the feed."""
        self._reading: Pass | None = None
        self._since_save = 0
        self._metrics: list[Any] | None = None
        self._random: dict[str, Any] | None = None

    # -- going on -----------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        """Load what was saved, if anything was."""
        self._feed.record()
        # So that metrics and optimizer have all their variables before they are loaded or saved.
        self.model._symbolic_build(data_batch=self._feed.example())  # noqa: SLF001  # as fit does itself
        if not self._path.exists():
            return
        with np.load(self._path, allow_pickle=False) as saved:
            meta = json.loads(saved["meta"].tobytes())
            self._check(meta)
            values = [_stored(saved[f"v{i}"], kind) for i, kind in enumerate(meta["dtypes"])]
        number = len(self._variables())
        for variable, value in zip(self._variables(), values[:number], strict=True):
            variable.assign(value)
        self._metrics = values[number:]
        set_random_state(meta["random"])
        self._random = meta["random"] if meta["steps_done"] else None
        self._epoch = int(meta["epoch"])
        self._offset = int(meta["steps_done"])
        self.model._initial_epoch = self._epoch  # noqa: SLF001  # as BackupAndRestore does
        if meta["is_stopped"]:
            self.model._initial_epoch = self.params["epochs"]  # noqa: SLF001  # The run ended by itself.
        self._feed.resume_at(meta["state"], self._offset)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        """Put back the metrics of an epoch that was cut short: Keras has just reset them."""
        self._epoch = epoch
        self._steps_done = self._offset
        if self._metrics is not None and self._offset:
            for variable, value in zip(self.model.metrics_variables, self._metrics, strict=True):
                variable.assign(value)
        self._metrics = None

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        """Put back the random state of an epoch that was cut short: its beginning has drawn numbers."""
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    # -- saving -------------------------------------------------------------------------------

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save if it is time to, but not at the last batch of an epoch: the end of the epoch saves."""
        reading = self._feed.training
        if reading is not self._reading:
            self._reading, self._trained = reading, 0
        steps = self.model.steps_per_execution
        left = reading.num_batches
        self._trained += steps if left is None else min(steps, left - self._trained)
        if reading.is_ended:
            self._trained = min(self._trained, max(reading.handed, left or 0))
        self._steps_done += steps
        self._since_save += steps
        reading.forget(self._trained)
        if self._since_save >= self._every and not self._is_last(reading):
            self._save(self._epoch, self._steps_done, reading.state_after(self._trained).to_dict())

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        """Save the place between two epochs."""
        self._offset = 0
        if self._reading is not None:
            is_stopped = bool(self.model.stop_training)
            state = self._reading.state_after(self._trained).to_dict()
            self._save(epoch + 1, 0, state, is_stopped=is_stopped)

    def on_train_end(self, logs: Any = None) -> None:
        """Let the next `fit` of this model start at its own `initial_epoch`."""
        self.model._initial_epoch = None  # noqa: SLF001  # as it was before

    def _is_last(self, reading: "Pass") -> bool:
        if (self.params or {}).get("steps") is not None and reading.is_continued:
            return self._steps_done >= int(self.params["steps"])
        left = reading.num_batches
        if left is not None:
            return self._trained >= left
        return reading.is_ended and self._trained >= reading.handed

    def _variables(self) -> list[Any]:
        model = self.model
        own = [*model.trainable_variables, *model.non_trainable_variables]
        return own + ([] if model.optimizer is None else list(model.optimizer.variables))

    def _save(self, epoch: int, steps_done: int, state: Any, *, is_stopped: bool = False) -> None:
        self._since_save = 0
        if hasattr(self.model, "jax_state_sync"):
            self.model.jax_state_sync()  # On JAX the weights live outside the model during an epoch.
        variables = [*self._variables(), *self.model.metrics_variables]
        values = [np.asarray(keras.ops.convert_to_numpy(v.value)) for v in variables]
        meta = {
            "version": VERSION,
            "backend": keras.backend.backend(),
            "epoch": epoch,
            "steps_done": steps_done,
            "is_stopped": is_stopped,
            "state": state,
            "random": random_state(),
            "dtypes": [value.dtype.name for value in values],
            "shapes": [list(value.shape) for value in values],
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        text = np.frombuffer(json.dumps(meta).encode(), np.uint8)
        with atomic_file(self._path, replace=True) as file:
            np.savez(file, meta=text, **{f"v{i}": _plain(v) for i, v in enumerate(values)})

    def _check(self, meta: dict[str, Any]) -> None:
        cure = f"Remove {self._path}, or choose another folder, to train from the beginning."
        if meta["version"] != VERSION:
            raise StateError(
                f"{self._path} has version {meta['version']}, and this penstock reads {VERSION}. {cure}"
            )
        variables = [*self._variables(), *self.model.metrics_variables]
        shapes = [list(v.shape) for v in variables]
        if meta["shapes"] != shapes or meta["backend"] != keras.backend.backend():
            raise StateError(
                f"{self._path} belongs to another model or backend: it has {len(meta['shapes'])} "
                f"variables on {meta['backend']}, this model {len(shapes)} on "
                f"{keras.backend.backend()}, or some differ in shape. {cure}"
            )


def _plain(value: Any) -> Any:
    """Return an array that `.npy` can hold: bfloat16 and its like as unsigned integers."""
    return value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "V" else value


def _stored(value: Any, dtype: str) -> Any:
    if value.dtype.name == dtype:
        return value
    import ml_dtypes  # saved bfloat16 arrays came from this package

    return value.view(getattr(ml_dtypes, dtype))
