"""What Keras does not tell an adapter: who asks, for what, and with which arguments.

`fit(x=adapter)` takes any DataAdapter and then ignores `y`, `sample_weight`, `class_weight` and
`batch_size` silently, reads a batch to build the model before training, and fixes the number of steps of
all epochs at the first. All of this can be seen in the frames that call the adapter, and corrected there:
`EpochIterator` reads its counts again at each step. In a Keras where these frames are not found, feeding
still works, as it would for any adapter; the tests are the first to notice.
"""

import sys
from dataclasses import dataclass
from types import FrameType
from typing import Any

_CALLS = {
    "fit": "fit",
    "evaluate": "evaluate",
    "predict": "predict",
    "_symbolic_build": "build",
    "_maybe_symbolic_build": "build",
}
_DEPTH = 40  # Frames looked at: Keras calls an adapter from less than ten below `fit`.


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


def epoch_iterator() -> Any:
    """Return the EpochIterator that called the adapter, or None."""
    for frame in _frames(3):
        owner = frame.f_locals.get("self")
        if hasattr(owner, "_steps_seen") and hasattr(owner, "_num_batches"):
            return owner
        if frame.f_code.co_name in _CALLS:
            return None
    return None


def new_epoch_iterator() -> tuple[Any, Role] | None:
    """Return the EpochIterator that is just being made, and what it is for; None if there is none."""
    owner, arguments, call = None, {}, ""
    is_validation = False
    for frame in _frames(20):
        name = frame.f_code.co_name
        if owner is None and name == "__init__" and "steps_per_execution" in frame.f_locals:
            owner, arguments = frame.f_locals.get("self"), frame.f_locals
        if name in _CALLS:
            call = _CALLS[name]
            # `fit` makes the iterator of its validation data once it has that of the training data.
            is_validation = call == "fit" and "epoch_iterator" in frame.f_locals
            break
    if owner is None:
        return None
    given = tuple(n for n in ("y", "sample_weight") if arguments.get(n) is not None)
    return owner, Role(
        call="evaluate" if is_validation else call or "fit",
        steps=arguments.get("steps_per_epoch"),
        class_weight=arguments.get("class_weight"),
        batch_size=arguments.get("batch_size"),
        refused=given,
    )


def current_call() -> str:
    """Return 'fit', 'evaluate', 'predict', 'build' for a read that only builds the model, or ''."""
    for frame in _frames(_DEPTH):
        call = _CALLS.get(frame.f_code.co_name)
        if call is not None and "keras" in frame.f_code.co_filename:
            return call
    return ""


def is_building() -> bool:
    """Whether Keras, on some thread, reads a batch only to build its model: tf.data reads on threads of its own."""
    for frame in sys._current_frames().values():  # noqa: SLF001  # there is no other way to other threads
        at: FrameType | None = frame
        while at is not None:
            if _CALLS.get(at.f_code.co_name) == "build" and "keras" in at.f_code.co_filename:
                return True
            at = at.f_back
    return False


def _frames(count: int) -> list[FrameType]:
    """Return the frames above the function that called this one."""
    found: list[FrameType] = []
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001  # there is no other way to a frame
    while frame is not None and len(found) < count:
        found.append(frame)
        frame = frame.f_back
    return found
