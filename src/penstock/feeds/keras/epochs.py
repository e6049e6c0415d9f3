"""Which epoch of the dataset a read by Keras is, in whichever order its calls come.

Keras reads more than it trains on: a batch to build its model, iterators that it makes and lets go of. Three of its
calls decide: the first pass after `on_epoch_begin` is an epoch; what was read before `reset()` is undone; a pass that
no epoch was begun for counts only if it was read to its end.
"""

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.rows import ENDLESS
from penstock.core.state import State
from penstock.feeds.keras import calls as keras_calls
from penstock.feeds.keras.calls import Role
from penstock.feeds.keras.epoch_iterators import Reader
from penstock.feeds.keras.head_start import HeadStart
from penstock.feeds.passes import Pass
from penstock.outlets import Outlets


@dataclass(frozen=True, slots=True)
class Resume:
    """Where training goes on: at a state of the dataset, `steps_done` steps into an epoch of Keras."""

    state: State
    steps_done: int | None = None
    """None: not known, since the state did not come from a checkpoint."""

    def steps_before(self, role: Role) -> int:
        """Return how many steps of the epoch that Keras begins were taken before, or are left out of it."""
        if role.steps is None:
            return self.state.element  # Epochs of Keras are epochs of the dataset.
        return self.steps_done or 0


@dataclass(slots=True, eq=False)
class Begun:
    """What Keras is about to read for: the epoch that it has begun, or the build of a model."""

    call: str = ""
    """'fit', 'evaluate', 'predict', 'build', or '' where that can't be seen."""
    reader: Reader | None = None
    is_unread: bool = False
    """Whether an epoch was begun, and no pass opened for it yet: one pass is the epoch, any more are probes."""

    @property
    def role(self) -> Role | None:
        """What the reader reads for."""
        return None if self.reader is None else self.reader.role


class Epochs:
    """Where `fit` stands in the epochs of a dataset, and who reads them."""

    def __init__(self, fingerprint: str, total: int | None) -> None:
        """Start with epoch 0 of a dataset; `total` is its number of batches, if that is known."""
        self._fingerprint = fingerprint
        self._total = total
        self._readers: weakref.WeakKeyDictionary[Any, Reader] = weakref.WeakKeyDictionary()
        self._begun = Begun()
        self._uncounted: Pass | None = None
        """A pass that no epoch was begun for: one more epoch if it was read to its end, else a probe."""
        self._head_start: HeadStart | None = None
        self.resume: Resume | None = None
        self.num_skipped = 0
        """Batches that `skip` goes past, from wherever the next epoch of `fit` begins."""
        self.training: Pass | None = None
        """What `fit` reads from at the moment, or read from last."""

    def first(self) -> State:
        """Return the start of epoch 0, which `evaluate` and `predict` read."""
        return State(self._fingerprint, 0)

    def next(self) -> State:
        """Return where the next epoch of `fit` begins."""
        if self.resume is not None:
            return self.resume.state
        epoch = 0 if self.training is None else self.training.epoch + 1
        return State(self._fingerprint, epoch)

    @property
    def is_in_epoch(self) -> bool:
        """Whether `fit` reads from a pass at this moment."""
        reading = self.training
        return reading is not None and not (reading.is_closed or reading.is_ended)

    def add(self, owner: Any, role: Role) -> Reader:
        """Return the reader for an epoch iterator that Keras has made."""
        reader = Reader(owner, role, (self.resume, self.training))
        self._readers[owner] = reader
        return reader

    def reader(self) -> Reader | None:
        """Return the reader that asks, if it is one of Keras."""
        owner = keras_calls.epoch_iterator()
        return None if owner is None else self._readers.get(owner)

    def start_over(self, reader: Reader) -> None:
        """Forget what was read before the first epoch, in whichever way Keras did that, to build its model."""
        reader.close()
        self._begun, self._uncounted = Begun(), None
        if reader.role.call == "fit":
            self.resume, self.training = reader.before

    def begin(self) -> None:
        """Note which call of Keras is about to read, and correct the number of steps that it will take."""
        reader, call = self.reader(), keras_calls.current_call()
        self._begun = Begun(call, reader, is_unread=True)
        if reader is None or call == "build":
            return
        reader.live_as_long_as(keras_calls.life_of_call())
        owner, role = reader.owner, reader.role
        if not role.is_continued:
            reader.close()
        resume = self.resume if call == "fit" else None
        done = 0 if resume is None else resume.steps_before(role)
        if role.steps is not None:
            owner.steps_per_epoch = role.steps - done
        elif self._total is None:
            owner._num_batches = ENDLESS  # noqa: SLF001  # Until the last batch was handed out.
        else:
            owner._num_batches = self._total - done  # noqa: SLF001  # Keras' own count

    def begin_build(self) -> None:
        """Note that a model is built, if it is: Keras may read for that without saying that an epoch begins."""
        if keras_calls.current_call() == "build":
            self._begun = Begun("build", self.reader())

    def end(self) -> None:
        """Close what was read in the epoch, unless the next one goes on with it."""
        reader = self.reader()
        if reader is not None and not reader.role.is_continued:
            reader.close()

    def start_early(self, source: Outlets) -> None:
        """Begin to read what `fit` will read first, if a model is built for it and the rows are on storage."""
        reader = self._begun.reader
        if reader is None or reader.role.call != "fit" or not HeadStart.helps(source):
            return
        self._end_head_start()
        self._head_start = reader.head_start = HeadStart(source, self.next())

    def _end_head_start(self) -> None:
        if self._head_start is not None:
            self._head_start.close()

    def now(self) -> Begun:
        """Return what is read for: as noted last, unless that call of Keras is over."""
        if self._begun.reader is not None and self._begun.reader.is_over:
            self._begun = Begun()
        return self._begun

    def open(self, make: Callable[..., Pass], begun: Begun, *, is_recorded: bool) -> Pass:
        """Return the pass that `make` makes for what has begun."""
        if begun.call in ("build", "evaluate", "predict"):
            self._end_head_start()  # It has memory that these need.
        if begun.call == "build":
            reading = make(begin=self.next())
        elif begun.call in ("evaluate", "predict"):
            reading = make(begin=self.first())
        else:
            reading = self._open_training(make, begun, is_recorded=is_recorded)
        reading.must_have_batches = begun.call != "build"
        reader = begun.reader
        if reader is not None:
            if reader.role.steps is None and self._total is None:
                reading.on_last = reader.set_num_batches
            reader.reads(reading)
        return reading

    def _open_training(self, make: Callable[..., Pass], begun: Begun, *, is_recorded: bool) -> Pass:
        if self._uncounted is not None and self._uncounted.is_ended:
            self.resume, self.training = None, self._uncounted
        self._uncounted = None
        is_continued = begun.role is not None and begun.role.is_continued
        begin = self.next()
        stream = None if self._head_start is None else self._head_start.take(begin)
        reading = make(
            begin=begin, is_continued=is_continued, is_recorded=is_recorded, stream=stream
        )
        if begun.is_unread:
            begun.is_unread = False
            self.resume, self.training = None, reading
            self.num_skipped = 0
        else:
            self._uncounted = reading
        return reading

    def close(self) -> None:
        """Close all that is being read."""
        self._end_head_start()
        for reader in list(self._readers.values()):
            reader.close()
        for reading in (self.training, self._uncounted):
            if reading is not None:
                reading.close()
