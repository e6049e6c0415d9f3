"""to_tf(): a true tf.data.Dataset, for every strategy and every tf.data method."""

import weakref
from collections.abc import Iterator
from typing import Any

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError("to_tf needs tensorflow: pip install 'penstock[tensorflow]'") from error

from penstock.core.fingerprint import fingerprint
from penstock.core.state import State, StateDict
from penstock.feeds.base import Feed, standing
from penstock.feeds.dtypes import byte_orders, check_dtypes
from penstock.feeds.facts import check_batched, num_batches
from penstock.feeds.keras.blank import blank_batches
from penstock.feeds.keras.calls import is_building, strategy_of_fit
from penstock.feeds.leafwise import chained
from penstock.feeds.on_device.choice import Residency, choose
from penstock.feeds.on_device.traffic import counting
from penstock.feeds.passes import Epoch, Pass
from penstock.feeds.tf.arrays import has_dtype
from penstock.feeds.tf.device import TfDevice
from penstock.feeds.tf.strategies import is_multi_worker, keep_to_this_worker
from penstock.feeds.tf.tf_data import resident_dataset, streamed_dataset
from penstock.outlets import Outlets


class _Epochs:
    """Opens the next epoch whenever TensorFlow iterates the dataset, and remembers the last."""

    def __init__(self, source: Outlets, residency: Residency) -> None:
        self.source = source
        self.residency = residency
        self.next = State(fingerprint(source.node), 0)
        self.is_whole = True
        """Whether the next epoch has all of its batches."""
        self.last: Pass | None = None
        """The pass that was opened last."""
        self.current: Pass | None = None
        """The same, unless a state was given since."""
        self._opened: list[weakref.ref[Pass]] = []

    def blanks(self) -> Iterator[Any] | None:
        """Return batches of zeros if Keras reads one only to build its model, which it does under a strategy."""
        node = self.source.node
        return blank_batches(node, byte_orders(node)) if is_building() else None

    def open(self) -> Pass:
        begin = self.next
        # Where no zeros will do, a batch is read to build the model. That is no epoch.
        is_epoch = not is_building()
        if is_epoch:
            self.next, self.is_whole = self.next.at_end, True
        data = self.residency.data
        structure = self.source.node.structure
        count = counting(self.residency.traffic, structure) if data is None else None
        prepare = chained(byte_orders(self.source.node), count) if data is None else None
        opened = Pass(
            self.source,
            prepare,
            begin,
            is_recorded=True,
            data=data,
            by_number=data is not None,
            traffic=self.residency.traffic if is_epoch else None,
        )
        self._opened = [each for each in self._opened if not _is_over(each)]
        self._opened.append(weakref.ref(opened))
        if is_epoch:
            self.last = self.current = opened
        return opened

    def resume(self, state: State) -> None:
        self.next, self.is_whole, self.current = state, state.element == 0, None

    def close(self) -> None:
        for each in self._opened:
            reading = each()
            if reading is not None:
                reading.close()


def _is_over(reading: "weakref.ref[Pass]") -> bool:
    found = reading()
    return found is None or found.is_closed


class TfFeed(Feed, tf.data.Dataset):  # type: ignore[misc]  # TensorFlow has no types
    """A tf.data.Dataset of batches; each iteration of it is the next epoch.

    TensorFlow reads ahead, so that only its consumer knows how many batches it has used: `state(n)`.
    """

    def __init__(self, source: Outlets, epochs: _Epochs, whole: Any, rest: Any) -> None:
        """Make it of two datasets over `epochs`: `whole` for whole epochs, `rest` for what is left of one."""
        self.source = source
        self.residency = epochs.residency
        self._epochs = epochs
        self._whole = whole
        self._rest = rest
        super().__init__(self._variant_tensor)

    # How a dataset of tf.data names its inputs. TensorFlow asks for them at the start of each iteration.

    @property
    def _variant_tensor(self) -> Any:
        (dataset,) = self._inputs()
        return dataset._variant_tensor  # noqa: SLF001  # there is no other way to derive a dataset

    def _inputs(self) -> list[Any]:
        return [self._whole if self._epochs.is_whole else self._rest]

    @property
    def element_spec(self) -> Any:
        """The nest of tf.TensorSpec of a batch."""
        return self._rest.element_spec

    def cardinality(self) -> Any:
        """Return how many batches a whole epoch has, as tf.data says it; Keras holds every epoch to that."""
        if is_multi_worker(strategy_of_fit()):
            raise ValueError(
                "Keras 3 can't use a tf.data.Dataset under MultiWorkerMirroredStrategy; give it a feed for Keras:\n"
                "  wrong: model.fit(ds.batch(60).to_tf())\n"
                '  right: model.fit(ds.batch(60).distribute(uneven="pad").to_keras())'
            )
        if self.source.node.share is not None:
            keep_to_this_worker(self.source.node.share)
        return self._whole.cardinality()

    def _standing(self) -> str:
        text = standing(self._epochs.next, num_batches(self.source.node))
        last = self._epochs.last
        if last is None or last.is_closed:
            return text
        # How many batches were used of what TensorFlow reads ahead, only its consumer knows.
        return f"reading epoch {last.epoch}, next {text}"

    def state(self, count: int | None = None) -> StateDict:
        """Return the state after the first `count` batches of the iteration that was started last.

        Before the first iteration, and after `resume`, it is where the next one begins, and needs no count.
        """
        last = self._epochs.current
        if last is None and not count:
            return self._epochs.next.to_dict()
        if last is None:
            raise ValueError(
                f"there is no state after {count} batches before the dataset was iterated (or iterated again, after "
                "resume); iterate first, or leave the count out."
            )
        if count is None:
            raise ValueError(
                "TensorFlow reads ahead, so that only you know how many batches of this iteration were used: "
                "give their number, state(count)."
            )
        return last.state_after(count).to_dict()

    def resume(self, state: StateDict) -> None:
        """Let the next iteration go on from a state of this dataset.

        Call it before other datasets are made of this one: those fix how many batches it has. Keras' `fit`
        warns of the first epoch, which is shorter; on a feed of `to_keras()` it does not.
        """
        self._epochs.resume(self._state_to_resume(state))

    def skip_batches(self, count: int) -> None:
        """Let the next iteration begin `count` batches after where it would: what `skip` of other feeds does.

        `skip` is that of tf.data: a dataset without its first batches, in every iteration. To go past batches after the
        `n` that were used of an iteration, call `resume(state(n))` first. With random access it costs the same for any
        count; else the batches are read, and dropped.
        """
        self._epochs.resume(self._past(self._epochs.next, count))

    def _latest(self) -> Epoch | None:
        last = self._epochs.last
        return None if last is None else last.latest

    def close(self) -> None:
        """End what is still being read, and processes that wait for more; let go of what is on the device."""
        self._epochs.close()
        self.residency.close()
        self.source.close()


def tf_feed(source: Outlets, *, device: str | None, device_memory: int | str | None) -> TfFeed:
    """Return a tf.data.Dataset of the batches; it is streamed, or gathered on the device."""
    node = source.node
    check_batched(node, "to_tf()")
    check_dtypes(node, "TensorFlow", lambda dtype: has_dtype(dtype, tf), has_text=True)
    _check_device(device)
    target = TfDevice(device)
    put = chained(byte_orders(node), target.put)
    assert put is not None
    epochs = _Epochs(source, choose(source, target, put, device_memory))
    data = epochs.residency.data
    is_shared = node.share is None
    if data is None:
        dataset = streamed_dataset(
            node, node.spec, epochs.open, tf, is_shared=is_shared, blanks=epochs.blanks
        )
    else:
        where = None if target.is_cpu else target.name
        dataset = resident_dataset(node, data, epochs.open, tf, device=where, is_shared=is_shared)
    if device is not None and data is None:
        dataset = dataset.apply(tf.data.experimental.copy_to_device(device))
    rest = dataset.prefetch(2)
    total = tf.data.INFINITE_CARDINALITY if node.is_endless else num_batches(node)
    if total is None:
        return TfFeed(source, epochs, rest, rest)
    known = dataset.apply(tf.data.experimental.assert_cardinality(total))
    return TfFeed(source, epochs, known.prefetch(2), rest)


def _check_device(device: str | None) -> None:
    """Raise if TensorFlow has no device of that name: it would put batches on the CPU without a word."""
    if device is None:
        return
    try:
        kind = tf.DeviceSpec.from_string(device).device_type
    except (ValueError, AttributeError) as error:
        raise ValueError(
            f"device must be a name such as '/GPU:0' or '/CPU:0', got {device!r}."
        ) from error
    found = [each.name for each in tf.config.list_logical_devices()]
    number = tf.DeviceSpec.from_string(device).device_index or 0
    if kind and not any(name.endswith(f":{kind}:{number}") for name in found):
        raise ValueError(
            f"TensorFlow {tf.__version__} has no device {device!r}; it has {', '.join(found)}. Leave device out to get "
            "batches on the CPU, or install a TensorFlow that finds the GPU."
        )
