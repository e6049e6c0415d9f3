"""Exact resume inside `fit`: all of a training run in one file, replaced as a whole; the one before it is kept."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import keras
import numpy as np

from penstock.core.arguments import whole_number
from penstock.errors import AccessError, DataError, NotAFileError, StateError, warn_user
from penstock.feeds.keras.calls import epoch_iterator
from penstock.feeds.keras.going_on import loaded_in_turn
from penstock.feeds.keras.random_state import check_random_state, random_state, set_random_state
from penstock.feeds.keras.saved_run import (
    FILE,
    PREVIOUS,
    Saved,
    beginning_anew,
    damaged,
    load_run,
    make_folder,
    save_run,
)

if TYPE_CHECKING:
    from penstock.feeds.passes import Pass


class Checkpoint(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Saves a run every so many batches and at the end of each epoch, and goes on from what it saved.

    Put it into `fit(callbacks=[...])` and run the same script again after whatever ended it: weights,
    optimizer, metrics, random numbers and the place in the data are those of the batch last trained
    on. It takes the weights' and the optimizer's size on disk, twice, and as much memory while it saves: the one
    before the last is kept, and gone on from, with a warning, if the last is damaged.

    Of the ranks of a distributed dataset the first one saves, and all go on from what it saved: the folder must be one
    that all of them see. A checkpoint of some ranks can be gone on from with more or fewer.

    Deep copies, as KerasTuner makes one for each trial, share the feed and the folder. A copy goes on from what an
    earlier process saved, or itself; where another copy has saved in this process, it starts from the beginning.
    """

    def __init__(self, feed: Any, folder: str, *, every_batches: int = 500) -> None:
        super().__init__()
        self._feed = feed
        self._path = Path(folder) / FILE
        self._copies: list[int] = []
        """The id of the copy that saved last, in this process; all copies share this list."""
        self._keeps = False
        """Whether what is saved is good, and of this run: only that is kept as the one before."""
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
        fitted = epoch_iterator()
        if fitted is not None and fitted.data_adapter is not self._feed:
            raise _of_another_feed()
        make_folder(self._path)
        self._feed.record()
        # So that metrics and optimizer have all their variables before they are loaded or saved.
        self.model._symbolic_build(data_batch=self._feed.example())  # noqa: SLF001  # as fit does itself
        self._epoch = self._offset = self._since_save = 0
        self._metrics = self._random = None
        if self._copies not in ([], [id(self)]):
            self._keeps = False
            return
        saved = loaded_in_turn(self._load, self._path, self._feed.source.node.share)
        if saved is None:
            return
        # From here on ranks do the same at the same time: on JAX a variable is one of all of them, and setting it waits
        # for all.
        set_random_state(saved.random)
        number = len(self._variables())
        for variable, value in zip(self._variables(), saved.values[:number], strict=True):
            variable.assign(value)
        self._metrics = saved.values[number:]
        self._random = saved.random if saved.steps_done else None
        self._epoch, self._offset = saved.epoch, saved.steps_done
        self.model._initial_epoch = self._epoch  # noqa: SLF001  # as BackupAndRestore does
        if saved.is_stopped:
            self.model._initial_epoch = self.params["epochs"]  # noqa: SLF001  # The run ended by itself.
        self._tell_if_done(saved)

    def _tell_if_done(self, saved: Saved) -> None:
        """Warn that nothing is left to train, if nothing is."""
        epochs = int(self.params["epochs"])
        if not self._feed.is_first_rank or (saved.epoch < epochs and not saved.is_stopped):
            return
        if saved.is_stopped:
            why, more = f"the run was stopped after epoch {saved.epoch}", ""
        else:
            why, more = f"{saved.epoch} epochs are done, of {epochs}", "give fit more epochs, or "
        warn_user(
            f"nothing is left to train: {why}, as {saved.path} says. To train on, {more}remove it, or choose another "
            "folder."
        )

    def _load(self) -> Saved | None:
        """Return what was saved, of which the place in the data is taken over; None if nothing was.

        Only what is all right is taken over: a checkpoint that is refused changes nothing.
        """
        try:
            saved = self._load_from(self._path)
        except (AccessError, NotAFileError):
            raise  # It may be all right, or nothing could be saved here.
        except DataError as error:
            try:
                saved = self._load_from(self._path.with_name(PREVIOUS))
            except DataError as other:
                error.add_note(f"Neither is there one before it that is good: {other}")
                saved = None
            if saved is None:
                raise error from None
            warn_user(f"{error} The one before it is gone on from: {saved.path}.")
            self._keeps = False
            return saved
        self._keeps = saved is not None
        return saved

    def _load_from(self, path: Path) -> Saved | None:
        variables = [*self._variables(), *self.model.metrics_variables]
        names = [str(getattr(v, "path", "")) for v in variables]
        saved = load_run(path, [list(v.shape) for v in variables], names)
        if saved is None:
            return None
        self._check(saved)
        try:
            check_random_state(saved.random)
        except Exception as error:
            raise damaged(path, "its random state is none") from error
        try:
            self._feed.resume_at(saved.state, saved.steps_done)
        except StateError as error:
            cure = f"Go on with the chain that it was saved with. {beginning_anew(path)}"
            raise StateError(f"{path}: {error} {cure}") from error
        return saved

    def _check(self, saved: Saved) -> None:
        """Raise unless the counters can be true for this model and this data."""
        optimizer = self.model.optimizer
        if optimizer is not None and saved.iterations is not None:
            place = next(i for i, v in enumerate(self._variables()) if v is optimizer.iterations)
            found = int(saved.values[place])
            if found != saved.iterations:
                problem = f"the optimizer has done {found} steps, and {saved.iterations} were noted"
                raise saved.refused(problem)
        steps = (self.params or {}).get("steps")
        total = steps if steps is not None else self._feed.num_batches
        if total is not None and 0 < total <= saved.steps_done:
            problem = f"{saved.steps_done} batches of an epoch are done, and an epoch has {total}"
            raise saved.refused(problem)

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

    @property
    def steps_done(self) -> int:
        """Batches of this epoch that were trained on, by earlier processes, too."""
        return self._steps_done

    # -- saving -------------------------------------------------------------------------------

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Save if it is time to, but not at the last batch of an epoch: the end of the epoch saves."""
        reading = self._feed.training
        if reading is None:
            raise _of_another_feed()
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
        # On JAX the weights live outside the model during an epoch. The method's name is another since Keras 3.16.
        for name in ("jax_state_sync", "state_sync"):
            getattr(self.model, name, lambda: None)()
        variables = [*self._variables(), *self.model.metrics_variables]
        values = [_value(variable) for variable in variables]
        optimizer = self.model.optimizer
        meta = {
            "epoch": epoch,
            "steps_done": steps_done,
            "is_stopped": is_stopped,
            "state": state,
            "random": random_state(),
            "iterations": None if optimizer is None else int(_value(optimizer.iterations)),
        }
        if self._feed.is_first_rank:
            meta["names"] = [str(getattr(variable, "path", "")) for variable in variables]
            save_run(self._path, meta, values, keeps=self._keeps)
        self._keeps = True
        self._copies[:] = [id(self)]

    def __deepcopy__(self, memo: dict[int, Any]) -> "Checkpoint":
        """Return a callback for another model, of the same feed: a copy of that would not be the one in `fit`."""
        copied = Checkpoint(self._feed, str(self._path.parent), every_batches=self._every)
        copied._copies = self._copies
        memo[id(self)] = copied
        return copied


def _of_another_feed() -> ValueError:
    return ValueError(
        "this checkpoint belongs to another feed than the one that is fitted.\n"
        '  wrong: model.fit(ds.to_keras(), callbacks=[ds.to_keras().checkpoint("run")])\n'
        "  right: feed = ds.to_keras()\n"
        '         model.fit(feed, callbacks=[feed.checkpoint("run")])'
    )


def _value(variable: Any) -> Any:
    """Return the value of a variable; of a metric under a strategy of tf.distribute, the sum over devices and ranks."""
    return np.asarray(keras.ops.convert_to_numpy(keras.ops.convert_to_tensor(variable)))
