"""What training loops for a DataLoader ask of it: PyTorch Lightning, and Hugging Face's Trainer with accelerate.

Lightning saves `state_dict()` of what it trains on, and gives it back before it iterates. Three things it does not say,
which can be seen in the frames that ask: that it has fetched batches which it has not trained on (one ahead, where
there is no length; the one that failed), that it ends epochs early (`limit_train_batches`), and the state itself, if it
was saved at the end of an epoch: Lightning keeps it, but does not load it. The tests notice if this changes.

Hugging Face's Trainer saves no place in the data. It knows its steps, calls `set_epoch`, and makes a DataLoader of the
dataset and of a batch sampler whose first numbers it drops. So a feed has both.
"""

import itertools
import math
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

from penstock.core.rows import Node
from penstock.feeds.facts import batch_size, num_batches
from penstock.outlets import Outlets

_LIGHTNING = ("lightning.", "pytorch_lightning.")


class LoopFeed(Protocol):
    """What is asked of a feed here."""

    source: Outlets

    def __iter__(self) -> Iterator[Any]: ...

    def __len__(self) -> int: ...

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read this epoch."""
        ...

    def skip_to(self, number: int) -> None:
        """Let the next iteration begin with the batch of this number in its epoch."""
        ...


@dataclass(frozen=True, slots=True)
class Asking:
    """What the loop that asks for a state does with the batches that it gets."""

    num_ahead: int = 0
    """Batches that it has fetched, and not trained on."""
    limit: float = math.inf
    """The batches of an epoch, if it leaves the others out."""


def asking_loop(feed: object) -> Asking:
    """Return what is seen of Lightning in the frames that ask; nothing special if something else asks."""
    limit = math.inf
    for asks in _lightning_frames():
        loaders = getattr(asks, "flattened", ())
        for one, most in zip(loaders, getattr(asks, "limits", None) or (), strict=False):
            limit = most if one is feed else limit
        fetcher = getattr(asks, "_data_fetcher", None)
        if hasattr(asks, "epoch_loop") and any(one is feed for one in _combined(asks)):
            progress = asks.epoch_loop.batch_progress.current
            in_hand = max(0, progress.ready - progress.processed)
            return Asking(len(getattr(fetcher, "batches", ())) + in_hand, limit)
    return Asking(0, limit)


def state_not_loaded(feed: object) -> Any:
    """Return the state that Lightning has read for a feed, and not given to it, if it is about to iterate over it."""
    for asks in _lightning_frames():
        states = getattr(asks, "_combined_loader_states_to_load", None)
        if states and getattr(asks, "is_resuming", False):
            loaders = [one for one in _combined(asks) if _is_stateful(one)]
            found = [state for one, state in zip(loaders, states, strict=False) if one is feed]
            return found[0] if found and len(loaders) == len(states) else None
    return None


def _lightning_frames() -> Iterator[Any]:
    """Yield the objects of Lightning whose methods led here, from the inside to the outside."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to a frame
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(_LIGHTNING):
            yield frame.f_locals.get("self")
        frame = frame.f_back


def _combined(loop: Any) -> Any:
    """Return what a loop of Lightning reads from."""
    return getattr(getattr(loop, "_combined_loader", None), "flattened", ())


def _is_stateful(loader: Any) -> bool:
    return hasattr(loader, "state_dict") and hasattr(loader, "load_state_dict")


class TorchRows:
    """The rows of a feed, as the `dataset` of a DataLoader: their number, and its batches by the number of each."""

    def __init__(self, feed: LoopFeed) -> None:
        self._feed = feed
        self._reading: Iterator[Any] | None = None
        self._following = 0
        """The number of the batch that is read next."""

    def __len__(self) -> int:
        found = _num_rows(self._feed.source.node)
        if found is None:
            raise TypeError("the number of rows is unknown or infinite.")
        return found

    def __bool__(self) -> bool:
        """Return True: else Python would ask `len`, which raises if the number of rows is unknown."""
        return True

    def __getitems__(self, numbers: list[int]) -> Any:
        """Return the one batch that has this number in the epoch."""
        (number,) = numbers
        if self._reading is None or number != self._following:
            self.close()
            self._feed.skip_to(number)
            self._reading = iter(self._feed)
        self._following = number + 1
        return next(
            self._reading
        )  # StopIteration, where the length is unknown, ends the loop of a DataLoader.

    def close(self) -> None:
        """End what is being read."""
        reading, self._reading = self._reading, None
        if reading is not None:
            reading.close()  # type: ignore[attr-defined]  # It is a generator.


class BatchNumbers:
    """The batch sampler of a DataLoader that reads a feed: numbers of batches. To leave some out costs nothing."""

    def __init__(self, feed: LoopFeed, rows: TorchRows) -> None:
        self._feed = feed
        self._rows = rows

    def __len__(self) -> int:
        return len(self._feed)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield a list of one number a batch; what is read is closed with this iterator, however the loop ends."""
        total = num_batches(self._feed.source.node)
        with closing(self._rows):
            for number in itertools.count() if total is None else range(total):
                yield [number]

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read this epoch."""
        self._feed.set_epoch(epoch)


def as_it_is(batch: Any) -> Any:
    """Return a batch: it has been made of its rows already."""
    return batch


def _num_rows(node: Node) -> int | None:
    """Return how many rows all batches have together; None if that is unknown."""
    total, size = num_batches(node), batch_size(node)
    if total is None:
        return None
    if size is not None and all(field.spec.is_fixed for field in node.fields):
        return total * size  # No batch is shorter.
    inner = node.inputs[0] if node.inputs else node
    return None if inner.is_batched or inner.is_endless else inner.num_rows
