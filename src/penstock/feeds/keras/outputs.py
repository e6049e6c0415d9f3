"""The outputs of `predict`, before Keras puts the batches of each output together."""

from collections.abc import Callable, Iterator
from typing import Any


def change_batches(outputs: Any, change: Callable[[Any], Any]) -> None:
    """Replace each batch of each output of a model; `outputs` is a nest of lists of batches, or None."""
    for batches in _lists(outputs):
        batches[:] = [change(batch) for batch in batches]


def _lists(outputs: Any) -> Iterator[list[Any]]:
    if outputs is None:
        return
    if isinstance(outputs, list) and (not outputs or hasattr(outputs[0], "shape")):
        yield outputs
        return
    for part in outputs.values() if isinstance(outputs, dict) else outputs:
        yield from _lists(part)
