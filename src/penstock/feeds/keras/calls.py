"""What Keras does not tell an adapter: who asks, for what, and with which arguments.

`fit(x=adapter)` takes any DataAdapter and then ignores `y`, `sample_weight`, `class_weight` and
`batch_size` silently, reads a batch to build the model before training, and fixes the number of steps of
all epochs at the first. All of this can be seen in the frames that call the adapter, and corrected there:
`EpochIterator` reads its counts again at each step. In a Keras where these frames are not found, feeding
still works, as it would for any adapter; the tests are the first to notice.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any

from penstock.core.frames import frames_of_threads
from penstock.core.rows import Node
from penstock.errors import warn_user
from penstock.feeds.facts import batch_size, num_batches

_CALLS = {
    "fit": "fit",
    "evaluate": "evaluate",
    "predict": "predict",
    "_symbolic_build": "build",
    "_maybe_symbolic_build": "build",
}
# What an epoch iterator is called by itself, by the build, and by fit, evaluate and predict.
_OWNER_NAMES = ("self", "iterator", "epoch_iterator")


@dataclass(slots=True, eq=False)
class Role:
    """What one epoch iterator of Keras reads for, and the arguments it was made with."""

    call: str
    """'fit', 'evaluate' (also as validation data) or 'predict'."""
    steps: int | None
    """`steps_per_epoch`, `validation_steps` or `steps`."""
    class_weight: dict[int, float] | None = None
    batch_size: int | None = None
    refused: tuple[str, ...] = ()
    """Arguments that were given, but are only allowed with arrays."""
    is_validation: bool = False
    """Whether `fit` evaluates it between two epochs: too late to refuse what could be read all the same."""

    @property
    def is_continued(self) -> bool:
        """Whether epochs of Keras are not epochs of the dataset, so that one pass goes on across both."""
        return self.call == "fit" and self.steps is not None


def check_role(role: Role, node: Node) -> None:
    """Raise if the arguments of a call can't work with this dataset."""
    if role.refused:
        raise ValueError(
            f"{' and '.join(role.refused)} can't be given beside a penstock feed, which has all of "
            "it: write ps.from_arrays((x, y, sample_weight))."
        )
    own = batch_size(node)
    if role.batch_size is not None and own is not None and role.batch_size != own:
        raise ValueError(
            f"batch_size={role.batch_size} contradicts the feed, whose batches have {own} rows; "
            f"leave it out, or write .batch({role.batch_size})."
        )
    if role.steps is None and node.is_endless:
        name = {"fit": "steps_per_epoch"}.get(role.call, "steps (validation_steps in fit)")
        raise ValueError(
            f"the dataset never ends (repeat without a count): say where an epoch of {role.call} "
            f"does, with {name}=..., or leave repeat() out."
        )
    total = num_batches(node)
    if role.call != "fit" and total is not None and (role.steps or 0) > total:
        problem = (
            f"{role.call} was asked for {role.steps} steps, and the data has {total} batches; "
            "leave the number of steps out to read all of them."
        )
        if not role.is_validation:
            raise ValueError(problem)
        # Not seen when `fit` was called, and an epoch of training is done. All batches that there are can be read.
        warn_user(problem)
        role.steps = total


def epoch_iterator() -> Any:
    """Return the EpochIterator of Keras that asks the adapter, or None."""
    for frame in _keras_frames():
        for name in _OWNER_NAMES:
            owner = frame.f_locals.get(name)
            if _is_epoch_iterator(owner):
                return owner
        if _CALLS.get(frame.f_code.co_name, "build") != "build":
            return None
    return None


def is_reset() -> bool:
    """Whether an EpochIterator starts over: all that it read before was a probe."""
    frame = next(_keras_frames(), None)
    return frame is not None and frame.f_code.co_name == "reset"


def new_epoch_iterator() -> tuple[Any, Role] | None:
    """Return the EpochIterator that is just being made, and what it is for; None if there is none."""
    owner, arguments, call = None, {}, ""
    is_validation = False
    for frame in _keras_frames():
        name, found = frame.f_code.co_name, frame.f_locals
        if owner is None and name == "__init__" and "steps_per_execution" in found:
            owner, arguments = found.get("self"), found
        if name in _CALLS:
            call = _CALLS[name]
            # `fit` makes the iterator of its validation data once it has that of the training data.
            is_validation = call == "fit" and "epoch_iterator" in found
            break
    if not _is_epoch_iterator(owner):
        return None
    return owner, Role(
        call="evaluate" if is_validation else call or "fit",
        steps=arguments.get("steps_per_epoch"),
        class_weight=arguments.get("class_weight"),
        # For validation data this is the `batch_size` of `fit`, which is meant for the training data.
        batch_size=None if is_validation else arguments.get("batch_size"),
        refused=tuple(n for n in ("y", "sample_weight") if arguments.get(n) is not None),
        is_validation=is_validation,
    )


def validation_of_fit() -> tuple[Any, Role] | None:
    """Return the data that `fit`, which is just called, will validate on, and how; None if there is none."""
    for frame in _keras_frames():
        if frame.f_code.co_name != "fit":
            continue
        given: Any = frame.f_locals.get("validation_data")
        # Not isinstance, which would ask a feed for its class: that is where it calls this function.
        parts = tuple(given) if issubclass(type(given), (tuple, list)) else (given,)
        if given is None or not parts:
            return None
        names = [
            name
            for name, part in zip(("y", "sample_weight"), parts[1:], strict=False)
            if part is not None
        ]
        return parts[0], Role(
            call="evaluate",
            steps=frame.f_locals.get("validation_steps"),
            batch_size=frame.f_locals.get("validation_batch_size"),
            refused=tuple(names),
        )
    return None


def is_unpacking() -> bool:
    """Whether `fit` was just called, and Keras looks what its validation data consists of."""
    frame = next(_keras_frames(), None)
    return frame is not None and frame.f_code.co_name == "unpack_x_y_sample_weight"


def current_call() -> str:
    """Return 'fit', 'evaluate', 'predict', 'build' for a read that only builds the model, or ''."""
    for frame in _keras_frames():
        call = _CALLS.get(frame.f_code.co_name)
        if call is not None:
            return call
    return ""


def model_of(*calls: str) -> Any:
    """Return the model whose `fit`, or whichever call is named, reads; None if it is something else that does."""
    for frame in _keras_frames():
        if frame.f_code.co_name in _CALLS:
            is_one = _CALLS[frame.f_code.co_name] in calls
            return frame.f_locals.get("self") if is_one else None
    return None


def is_stopped() -> bool:
    """Whether a callback has told `fit`, which leaves its loop over steps, to stop."""
    frame = next(_keras_frames(), None)
    return frame is not None and bool(getattr(frame.f_locals.get("self"), "stop_training", False))


def life_of_call() -> Any:
    """Return what lives as long as the call of Keras that reads, and no longer: its list of callbacks; or None."""
    for frame in _keras_frames():
        if _CALLS.get(frame.f_code.co_name, "build") != "build":
            found = frame.f_locals.get("callbacks")
            return found if hasattr(found, "callbacks") else None
    return None


def strategy_of_fit() -> Any:
    """Return the strategy of tf.distribute that Keras is about to spread the dataset with; None if it does not."""
    for frame in _keras_frames():
        if "distribute_strategy" in frame.f_locals:
            return frame.f_locals["distribute_strategy"]
    return None


def outputs_of_predict() -> Any:
    """Return what `predict`, which has left its loop over steps, has so far: a nest of lists of batches; or None."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to a frame
    while frame is not None:
        if frame.f_code.co_name == "predict" and _is_of_keras(frame):
            return frame.f_locals.get("outputs")
        frame = frame.f_back
    return None


def is_splitting() -> bool:
    """Whether `validation_split` was given, and Keras looks whether the data can be split."""
    return any(frame.f_code.co_name == "train_validation_split" for frame in _keras_frames())


def is_building() -> bool:
    """Whether Keras, on some thread, reads a batch only to build its model: tf.data reads on threads of its own."""
    for frame in frames_of_threads().values():
        at: FrameType | None = frame
        while at is not None:
            if _CALLS.get(at.f_code.co_name) == "build" and _is_of_keras(at):
                return True
            at = at.f_back
    return False


def _keras_frames() -> Iterator[FrameType]:
    """Yield the frames of Keras that led to a call of the adapter; none if someone else called it."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to a frame
    while frame is not None and _is_ours(frame):
        frame = frame.f_back
    # Between two of Keras may be one of ours, which hands out the steps of an epoch.
    while frame is not None and (_is_of_keras(frame) or _is_ours(frame)):
        if _is_of_keras(frame):
            yield frame
        frame = frame.f_back


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("penstock.")


def _is_of_keras(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("keras.")


def _is_epoch_iterator(owner: Any) -> bool:
    return any(
        each.__name__ == "EpochIterator" and each.__module__.startswith("keras.")
        for each in type(owner).__mro__
    )
