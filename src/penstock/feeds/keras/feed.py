"""to_keras(): what `fit`, `evaluate` and `predict` read from, on each of Keras' backends."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

from penstock.feeds.keras.release import missing_keras, warn_of_unknown_release

try:
    import keras
    from keras.src.trainers.data_adapters import get_data_adapter
    from keras.src.trainers.data_adapters.data_adapter import DataAdapter
except ImportError as error:
    raise missing_keras(error) from error

from penstock.core.askers import asking_keras
from penstock.core.fingerprint import fingerprint
from penstock.core.nest import flatten
from penstock.core.rows import Node
from penstock.core.state import StateDict
from penstock.feeds.base import Feed, standing
from penstock.feeds.facts import batch_size, check_batched, num_batches
from penstock.feeds.keras import calls as keras_calls
from penstock.feeds.keras.backend_dtypes import check_backend_dtypes
from penstock.feeds.keras.balancing import balanced_weights
from penstock.feeds.keras.blank import blank_batch, blank_batches
from penstock.feeds.keras.calls import Role
from penstock.feeds.keras.checkpoint import Checkpoint
from penstock.feeds.keras.class_weight import (
    ClassesSeen,
    ClassWeight,
    check_class_weight,
    check_classes_of_model,
    check_same_weights,
)
from penstock.feeds.keras.device_choice import KerasResidency
from penstock.feeds.keras.epochs import Begun, Epochs, Resume
from penstock.feeds.keras.mistakes import (
    check_labels,
    not_for_tf_keras,
    warn_of_shuffled_outputs,
)
from penstock.feeds.keras.predict import Predictions, normalization, predict_to
from penstock.feeds.keras.preparing import See, check_parts, parts_spec, preparation, prepared_spec
from penstock.feeds.keras.pydataset import PyDatasetFeed
from penstock.feeds.keras.ranks_apart import (
    all_rows,
    even_batches,
    is_apart,
    shared_in_fit,
    take_own_outputs,
    warn_of_training_apart,
)
from penstock.feeds.keras.tensorboard import TensorBoardFigures
from penstock.feeds.leafwise import Convert, chained, leafwise
from penstock.feeds.on_device.choice import Residency
from penstock.feeds.on_device.resident import Resident
from penstock.feeds.on_device.traffic import counting
from penstock.feeds.passes import NO_BATCHES, Epoch, Pass
from penstock.io.paths import PathLike
from penstock.outlets import Outlets


class KerasFeed(Feed, DataAdapter):  # type: ignore[misc]  # Keras has no types
    """A dataset as Keras reads it. Each epoch of `fit` reads the dataset's next; `evaluate` reads epoch 0."""

    def __init__(
        self,
        source: Outlets,
        *,
        class_weight: ClassWeight = None,
        device_memory: int | str | None = None,
    ) -> None:
        self._node = source.node
        check_batched(self._node, "to_keras()")
        check_parts(self._node)
        check_backend_dtypes(self._node)
        self.source = source
        self._total = num_batches(self._node)
        if self._total == 0:
            raise ValueError(NO_BATCHES)
        self._balanced: dict[int, float] | None = None
        self.class_weight = self._weights_of(class_weight)
        # Called only for its checks: errors come here rather than in `fit`.
        preparation(self._node, self.class_weight, keras.backend.floatx(), is_trained=False)
        self._classes = ClassesSeen()
        self._home = KerasResidency(
            source, self.class_weight, device_memory, see=self._classes.update
        )
        self._epochs = Epochs(fingerprint(self._node), self._total)
        self._is_recorded = False
        self._ranks = shared_in_fit(self._node)
        self._last: Pass | None = None

    # -- what Keras asks ----------------------------------------------------------------------

    @property
    def num_batches(self) -> int | None:
        """How many batches an epoch has; None where that is unknown, or given by the user."""
        found = keras_calls.new_epoch_iterator()
        if found is not None:
            owner, role = found
            self.check(role)
            if role.call != "fit" and is_apart(self._node):
                # Whatever this call of Keras asks from now on, it asks the feed of all rows.
                owner.data_adapter = KerasFeed(all_rows(self.source))
                return owner.data_adapter.num_batches  # type: ignore[no-any-return]  # Keras has no types
            if role.call == "predict":
                warn_of_shuffled_outputs(self._node, "predict")
            if role.call in ("fit", "evaluate"):
                check_labels(self._node)
            if role.call == "fit":
                _check_validation()
                warn_of_training_apart(self._node)
            reader = self._epochs.add(owner, role)
        else:
            asking = self._epochs.reader()
            if asking is None:
                return self._total
            reader = asking
            if keras_calls.is_reset():
                self._epochs.start_over(reader)
        return None if reader.role.is_continued else self._total

    @property
    def batch_size(self) -> int | None:
        """The rows of a whole batch."""
        return batch_size(self._node)

    @property
    def has_partial_batch(self) -> bool | None:
        """Whether the last batch may be shorter than the rest."""
        return not all(field.spec.is_fixed for field in self._node.fields)

    @property
    def partial_batch_size(self) -> int | None:
        """The rows of the last batch; not known here."""
        return None

    def on_epoch_begin(self) -> None:
        """Note which call of Keras is about to read, and correct the number of steps that it will take."""
        self._epochs.begin()
        model = None if self._ranks is None else keras_calls.model_of("fit")
        if model is not None:
            self._ranks.begin_epoch(model, keras_calls.epoch_iterator(), keras_calls.life_of_call())

    def on_epoch_end(self) -> None:
        """Close what was read in the epoch, unless the next one goes on with it."""
        reader = self._epochs.reader()
        if reader is not None and reader.role.call == "fit":
            self._warn_of_classes(reader.role)
        self._epochs.end()
        if self._ranks is not None and keras_calls.model_of("fit") is not None:
            self._ranks.end_epoch()

    def get_numpy_iterator(self) -> Iterator[Any]:
        """Return an iterator over batches of NumPy arrays."""
        return self._batches(None, is_streamed=True)

    def get_jax_iterator(self, super_batch: int | None = None) -> Iterator[Any]:
        """Return an iterator over batches, `super_batch` of them at a time; JAX takes aligned memory without a copy."""
        take_own_outputs(self._epochs.reader())
        batches = even_batches(self._batches(None), self._node.share)
        if not super_batch:
            return batches
        import jax.numpy as jnp
        from keras.src.trainers.data_adapters.data_adapter_utils import super_batch_iterator

        stacked: Iterator[Any] = super_batch_iterator(batches, super_batch, stack_fn=jnp.stack)
        return stacked

    def get_torch_dataloader(self) -> Any:
        """Return an iterable of batches of torch tensors, which share the memory of ours."""
        import torch

        from penstock.feeds.torch.arrays import keras_converter

        def iterate() -> Iterator[Any]:
            # A DataLoader draws a random number whenever it is iterated. This draws it, too: only then does
            # Keras draw the same numbers from that generator afterwards (dropout) as in fit(ndarray).
            torch.empty((), dtype=torch.int64).random_()
            return self._batches(keras_converter)

        return _Iterable(iterate)

    def get_tf_dataset(self) -> Any:
        """Return batches of tensors: a plain iterable where that is faster, else a tf.data.Dataset."""
        import tensorflow as tf

        from penstock.feeds.keras.on_tensorflow import (
            check_strategy,
            for_strategy,
            is_on_one_device,
            is_plain,
        )
        from penstock.feeds.tf.tf_data import resident_dataset, streamed_dataset

        reader, owner = self._epochs.reader(), keras_calls.epoch_iterator()
        if is_plain(owner, parts_spec(self._node)):
            return _Iterable(lambda: self._tf_batches(tf))
        role = None if reader is None else reader.role
        if not is_on_one_device(owner):
            check_strategy(owner, role, self._node)
            if self._home.chosen.data is not None:
                why = "a strategy of tf.distribute spreads each batch over devices"
                self._home.stream_because(why)
        is_continued = role is not None and role.is_continued
        weights = self._weights(role)
        data = self._home.data(weights)
        if data is None:
            streamed = streamed_dataset(
                self._node,
                self._spec(role),
                self.open,
                tf,
                is_continued=is_continued,
                is_cut=not _is_trained(role),
                blanks=lambda: self._blanks(self._epochs.now()),
            )
            return for_strategy(streamed, owner, reader, self.example)
        return resident_dataset(
            self._node,
            data,
            lambda: self.open(numbers_of=data),
            tf,
            device="/GPU:0" if tf.config.list_logical_devices("GPU") else None,
            finish=self._home.trim(weights),
            is_continued=is_continued,
        )

    # -- what a user asks ---------------------------------------------------------------------

    def checkpoint(self, folder: str, *, every_batches: int = 500) -> Checkpoint:
        """Return a callback that saves all of the training, so that the same script goes on after a kill.

        It saves weights, optimizer, metrics, random state and the place in the data together, at the
        batch last trained on.

        Args:
            folder: Where it saves to, and goes on from.
            every_batches: How often, besides the end of each epoch.
        """
        return Checkpoint(self, folder, every_batches=every_batches)

    def tensorboard(self, log_dir: str, *, every_seconds: float = 5.0) -> TensorBoardFigures:
        """Return a callback that writes rows a second, waiting, memory and the bottleneck to TensorBoard.

        Args:
            log_dir: Where `tensorboard --logdir` looks; files are written to the folder `penstock` in it.
            every_seconds: How often, besides the end of each epoch.
        """
        return TensorBoardFigures(self, log_dir, every_seconds=every_seconds)

    def predict_to(self, path: PathLike, model: Any) -> Predictions:
        """Write the model's outputs to disk as they come; return the paths and counts. Takes a batch of outputs.

        Args:
            path: The `.npy` file to make, on this machine; for a model with several outputs, a folder of such files.
                Any other ending (`.csv`, `.npz`) is refused.
            model: The Keras model that predicts.
        """
        warn_of_shuffled_outputs(self._node, "predict_to")
        source = all_rows(self.source)
        return predict_to(source, model, path, self._converter(source.node))

    def normalization(self, *, field: str | int | None = None, axis: int | None = -1) -> Any:
        """Return a `keras.layers.Normalization` set from one pass over the data, without a copy.

        Where x is a dict or a tuple of several fields, it returns a nest like x with a layer for each of them:
        `{name: layer(inputs[name]) for name, layer in feed.normalization().items()}`.

        Args:
            field: One field of x, by its name or number, to get its layer alone.
            axis: As the layer takes it: the axis that has a mean and a variance for each index.
        """
        return normalization(self.source, field, axis)

    @property
    def residency(self) -> Residency:  # type: ignore[override]  # It may change while it is used.
        """Where the data lives, and why."""
        return self._home.chosen

    def resume(self, state: StateDict) -> None:
        """Let the next epoch of `fit` go on from a state of this dataset.

        That epoch is read from there to its end. Weights, and whatever else a run consists of, are not part
        of a state: `checkpoint` saves and resumes all of it together.
        """
        self._epochs.resume = Resume(self._state_to_resume(state))
        self._epochs.num_skipped = 0

    def skip(self, count: int) -> None:
        """Go past the next `count` batches: the next epoch of `fit` begins so much later, and ends with its data.

        They are counted from where that epoch would begin. With `checkpoint`, that is the place that it goes on from.
        With random access it costs the same for any count; else the batches are read, and dropped. While `fit` is in
        an epoch, Keras has batches ahead of it: skip between two epochs, or stop, skip, and fit again.
        """
        if self._epochs.is_in_epoch:
            raise RuntimeError(
                "skip can't be called in the middle of an epoch of fit, which reads ahead: call it in on_epoch_end of "
                "a callback, or set model.stop_training = True, and call feed.skip(n) before the next fit."
            )
        self._epochs.resume = Resume(self._past(self._epochs.next(), count))
        self._epochs.num_skipped += count

    def _standing(self) -> str:
        reading, position = self.training, self._epochs.next()
        if self._epochs.resume is None and reading is not None and reading.stream is not None:
            position = reading.latest.position
        return standing(position, self._total)

    def _latest(self) -> Epoch | None:
        return None if self._last is None else self._last.latest

    def close(self) -> None:
        """End what is still being read, and processes that wait for more; let go of what is on the device."""
        self._epochs.close()
        if self._last is not None:
            self._last.close()
        self.residency.close()
        self.source.close()

    def __getattr__(self, name: str) -> NoReturn:
        """Refuse `validation_split` with the cure: Keras looks for `__array__` to see whether it can split the data."""
        if name == "__array__" and keras_calls.is_splitting():
            raise ValueError(
                "validation_split takes rows from arrays, and a penstock feed has batches; split the dataset:\n"
                "  wrong: model.fit(ds.batch(32).to_keras(), validation_split=0.1)\n"
                "  right: train, valid = ds.split(0.9, seed=0)\n"
                "         model.fit(train.batch(32).to_keras(), validation_data=valid.batch(32).to_keras())"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property  # type: ignore[misc]  # It can't be set, and nobody does.
    def __class__(self) -> type:
        """Its class. Keras asks for it when `fit` is called with validation data: the moment to refuse that."""
        if asking_keras() == "tf_keras":
            raise not_for_tf_keras()
        if keras_calls.is_unpacking():
            _check_validation()
        return type(self)

    # -- for the checkpoint -------------------------------------------------------------------

    @property
    def training(self) -> Pass | None:
        """What `fit` reads from at the moment, or read from last."""
        return self._epochs.training

    def record(self) -> None:
        """Record the states after the batches that are handed out to `fit` from now on."""
        resume = self._epochs.resume
        if resume is not None and resume.steps_done is not None:
            # It came from the checkpoint of a run that ended before it was used.
            self._epochs.resume = None
        self._is_recorded = True

    def resume_at(self, state: StateDict, steps_done: int) -> None:
        """Start the next epoch of `fit` at a state, or past what is skipped, `steps_done` steps into one of Keras."""
        there = self._past(self._state_to_resume(state), self._epochs.num_skipped)
        self._epochs.resume = Resume(there, steps_done)

    @property
    def is_first_rank(self) -> bool:
        """Whether this process is to do what only one of several should: it has rank 0, or is the only one."""
        return self._node.share is None or self._node.share.rank == 0

    def example(self) -> Any:
        """Return a batch of zeros, which takes no memory, for the model to be built with."""
        return blank_batch(self._node, self._prepared(self._epochs.now().role))

    # -- reading ------------------------------------------------------------------------------

    def check(self, role: Role) -> None:
        """Raise, before training starts, if the arguments of the call can't work."""
        keras_calls.check_role(role, self._node)
        if role.call == "fit":
            check_same_weights(self.class_weight, self._weights_of(role.class_weight))
            check_classes_of_model(keras_calls.model_of("fit"), self._weights(role))
        self._prepared(role)

    def _warn_of_classes(self, role: Role) -> None:
        """Warn of weights for classes that no label has, once all were read; a rank reads its part of them."""
        reading = self._epochs.training
        if reading is not None and reading.has_read_all and self._node.share is None:
            self._classes.warn_of_others(self._weights(role))

    def _prepared(self, role: Role | None, see: See | None = None) -> Convert | None:
        """Return the function that makes a batch what Keras needs for this call; `see` is told of its classes."""
        is_trained = _is_trained(role)
        floatx = keras.backend.floatx()
        return preparation(self._node, self._weights(role), floatx, is_trained=is_trained, see=see)

    def _weights(self, role: Role | None) -> dict[int, float] | None:
        if role is not None and role.call != "fit":
            return None
        given = None if role is None else self._weights_of(role.class_weight)
        return self.class_weight if given is None else given

    def _weights_of(self, class_weight: ClassWeight) -> dict[int, float] | None:
        """Return the weights that were given, or those that one pass over the labels finds; it is made once."""
        check_class_weight(self._node, class_weight)
        if not isinstance(class_weight, str):
            return class_weight
        if self._balanced is None:
            self._balanced = balanced_weights(self.source)
        return self._balanced

    def _spec(self, role: Role | None) -> Any:
        is_trained = _is_trained(role)
        floatx = keras.backend.floatx()
        return prepared_spec(self._node, self._weights(role), floatx, is_trained=is_trained)

    def _converter(self, node: Node) -> Convert | None:
        return preparation(node, None, keras.backend.floatx(), is_trained=False)

    def _tf_batches(self, tf: Any) -> Iterator[Any]:
        from penstock.feeds.tf.arrays import converter

        yield from self._batches(lambda spec: converter(spec, tf))
        # Keras' training loop does not notice when a plain iterator ends: it goes on as if a batch had come.
        raise tf.errors.OutOfRangeError(None, None, "the last batch was read")

    def _batches(
        self, converter: Callable[[Any], Convert | None] | None, *, is_streamed: bool = False
    ) -> Iterator[Any]:
        """Return an iterator over one pass; nothing is opened before the first batch is asked for."""
        self._epochs.begin_build()
        return self._reading(converter, is_streamed=is_streamed)

    def _reading(
        self, converter: Callable[[Any], Convert | None] | None, *, is_streamed: bool
    ) -> Iterator[Any]:
        begun = self._epochs.now()
        if begun.call != "build":
            yield from self._open(begun, converter, is_streamed=is_streamed)
            return
        blanks = self._blanks(begun, converter)
        if blanks is not None:
            if self._home.chosen.data is None and not is_streamed:
                self._epochs.start_early(self.source)
            yield from blanks
            return
        # A pass is closed before its batch is handed out: nobody would tell if the build of the model failed. One batch
        # is all that a build needs; Keras 3.7 reads two ahead on JAX.
        for number in itertools.count():
            with contextlib.closing(self._open(begun, converter)) as reading:
                # Not closed by the end of this iterator: Python drops a Ctrl-C that strikes while it collects one.
                batches = iter(reading)
                batch = list(itertools.islice(batches, number, number + 1))
            del batches
            if not batch:
                return
            yield from batch

    def _blanks(
        self, begun: Begun, converter: Callable[[Any], Convert | None] | None = None
    ) -> Iterator[Any] | None:
        """Return batches of zeros, if a model is built: nothing is read for that. None if a batch must be read."""
        if begun.call != "build":
            return None
        leaves, structure = flatten(self._spec(begun.role))
        convert = None if converter is None else leafwise(structure, [converter(f) for f in leaves])
        return blank_batches(self._node, self._prepared(begun.role), convert)

    def open(
        self,
        converter: Callable[[Any], Convert | None] | None = None,
        *,
        numbers_of: Resident | None = None,
    ) -> Pass:
        """Return the pass for the epoch that Keras has begun, or for whatever else it reads.

        With `numbers_of`, which is data on the device, the pass gives out row numbers instead of batches.
        """
        return self._open(self._epochs.now(), converter, numbers_of=numbers_of)

    def _open(
        self,
        begun: Begun,
        converter: Callable[[Any], Convert | None] | None = None,
        *,
        is_streamed: bool = False,
        numbers_of: Resident | None = None,
    ) -> Pass:
        role = begun.role
        weights = self._weights(role)
        data = numbers_of
        if data is None and begun.call != "build" and not is_streamed:
            data = self._home.data(weights)
        if data is None:
            prepare = self._preparation(role, converter, is_counted=begun.call != "build")
        else:
            prepare = None if numbers_of is not None else self._home.trim(weights)
        make = partial(
            Pass,
            self.source,
            prepare,
            data=data,
            by_number=numbers_of is not None,
            traffic=None if begun.call == "build" else self.traffic,
        )
        reading = self._epochs.open(make, begun, is_recorded=self._is_recorded)
        if begun.call != "build":
            self._last = reading
        return reading

    def _preparation(
        self,
        role: Role | None,
        converter: Callable[[Any], Convert | None] | None,
        *,
        is_counted: bool,
    ) -> Convert | None:
        """Return the function that makes a streamed batch one for Keras: cast, weighted, counted, converted."""
        leaves, structure = flatten(self._spec(role))
        return chained(
            self._prepared(role, self._classes.update if is_counted else None),
            counting(self.traffic, structure) if is_counted else None,
            None if converter is None else leafwise(structure, [converter(f) for f in leaves]),
        )


class _Iterable:
    """An iterable whose every `iter` is a new pass. Keras makes iterators that it never reads from."""

    def __init__(self, iterate: Callable[[], Iterator[Any]]) -> None:
        self._iterate = iterate

    def __iter__(self) -> Iterator[Any]:
        return self._iterate()


def _is_trained(role: Role | None) -> bool:
    """Whether the rows that a batch was filled up with are kept, without weight: training needs equal batches."""
    return role is None or role.call == "fit"


def _check_validation() -> None:
    """Raise when `fit` is called, and not an epoch later, if it can't validate on a feed that it was given."""
    found = keras_calls.validation_of_fit()
    if found is not None and isinstance(found[0], KerasFeed):
        found[0].check(found[1])


def keras_feed(
    source: Outlets,
    *,
    class_weight: ClassWeight = None,
    device_memory: int | str | None = None,
) -> KerasFeed | PyDatasetFeed:
    """Return the feed for this Keras: an adapter (since 3.7), or a PyDataset, which always streams."""
    warn_of_unknown_release(keras.__version__)
    feed = KerasFeed(source, class_weight=class_weight, device_memory=device_memory)
    try:
        is_taken = get_data_adapter(feed) is feed
    except ValueError:
        is_taken = False
    if is_taken:
        return feed
    return PyDatasetFeed(source, class_weight=feed.class_weight)
