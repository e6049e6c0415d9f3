"""The first epoch that is trained on is epoch 0, in whichever order a release of Keras calls a feed."""

import contextlib

import keras
import numpy as np
import pytest
from keras.src.trainers.epoch_iterator import EpochIterator

import penstock as ps
from feeds.keras.suite.models import BACKEND, Stop, StopAt, spying_model

NUM_BATCHES = 5


def dataset(kind="rows"):
    x = np.zeros((40, 2), "float32")
    x[:, 0] = np.arange(40)
    rows = ps.from_arrays((x, np.zeros(40, "float32"))).shuffle(seed=0)
    return (rows if kind == "rows" else rows.filter(lambda x, y: True)).batch(8)


def epochs_of(ds, count):
    return [[batch[0][:, 0].tolist() for batch in ds.stream(epoch=epoch)] for epoch in range(count)]


class Fake(EpochIterator):
    """An epoch iterator that reads as no release does."""

    def _get_iterator(self):
        return self.data_adapter.get_numpy_iterator()

    def rows(self, count):
        """Read so many batches of a new iterator."""
        batches = iter(self._get_iterator())
        return [next(batches)[0][:, 0].tolist() for _ in range(count)]


def read_alone(fake, feed):
    fake.rows(1)


def begin_and_read(fake, feed):
    feed.on_epoch_begin()
    fake.rows(1)


def read_all_without_a_begin(fake, feed):
    fake.rows(NUM_BATCHES)


def make_iterators_and_leave_them(fake, feed):
    for _ in range(3):
        iter(fake._get_iterator())


def read_after_the_reset(fake, feed):
    fake.reset()
    fake.rows(2)


def read_as_keras_does(fake, feed):
    for _ in fake:
        break


PROBES = [
    read_alone,
    begin_and_read,
    read_all_without_a_begin,
    make_iterators_and_leave_them,
    read_after_the_reset,
    read_as_keras_does,
]


@pytest.mark.parametrize("kind", ["rows", "flow"])
@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.__name__)
def test_a_probe_of_any_kind_is_no_epoch(probe, kind):
    ds = dataset(kind)
    feed = ds.to_keras()
    fake = Fake(feed)
    probe(fake, feed)
    if probe is not read_after_the_reset:
        fake.reset()
    for wanted in epochs_of(ds, 3):
        found = [batches[0][0][:, 0].tolist() for _, _, batches in _steps(fake)]
        assert found == wanted


def _steps(fake):
    """Yield what a release yields: first and last step, and the batches."""
    for step in fake:
        yield step if len(step) == 3 else (step[0], step[0], step[1])


def test_epochs_follow_each_other_where_keras_never_says_that_one_begins():
    ds = dataset()
    feed = ds.to_keras()
    for wanted in epochs_of(ds, 3):
        assert [x[:, 0].tolist() for x, _ in feed.get_numpy_iterator()] == wanted


def test_an_unbuilt_model_trains_on_epoch_0_first_and_goes_on_where_it_was_told_to():
    ds = dataset()
    first, second = epochs_of(ds, 2)
    model, seen = spying_model()
    feed = ds.to_keras()
    # Evaluated and read by hand before: neither is an epoch of fit.
    model.evaluate(feed, verbose=0)
    next(iter(feed.get_numpy_iterator()))
    seen.clear()
    model.fit(feed, epochs=2, verbose=0)
    assert seen == first + second
    with ds.stream(epoch=1) as stream:
        next(stream)
        state = stream.state()
    fresh, seen = spying_model()
    feed = ds.to_keras()
    feed.resume(state)
    fresh.fit(feed, verbose=0)
    assert seen == second[1:]


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX reads several batches at a time")
def test_several_batches_at_a_time_are_those_of_the_epoch():
    utils = keras.src.trainers.data_adapters.data_adapter_utils
    if not hasattr(utils, "super_batch_iterator"):
        pytest.skip("Keras has it since 3.16")
    ds = dataset()
    wanted = epochs_of(ds, 1)[0]
    found = [batch[0] for batch in ds.to_keras().get_jax_iterator(super_batch=2) if len(batch) == 2]
    assert np.asarray(found[0])[:, :, 0].tolist() == wanted[:2]


# -- skip ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["rows", "filter"])
@pytest.mark.parametrize("count", [0, 2, 5, 7])
def test_fit_begins_past_what_is_skipped_and_goes_on_as_ever(kind, count):
    ds = dataset(kind)
    wanted = [batch for epoch in epochs_of(ds, 4) for batch in epoch]
    feed = ds.to_keras()
    feed.skip(count)
    model, seen = spying_model()
    model.fit(feed, epochs=2, verbose=0)
    epochs = 2 + count // NUM_BATCHES
    assert seen == wanted[count : epochs * NUM_BATCHES]
    feed.skip(1)
    model.fit(feed, epochs=1, verbose=0)
    assert seen == wanted[count : epochs * NUM_BATCHES] + wanted[epochs * NUM_BATCHES + 1 :][:4]


def test_batches_are_skipped_between_two_epochs_and_not_within_one():
    ds = dataset()
    wanted = epochs_of(ds, 3)
    feed = ds.to_keras()

    class Between(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            feed.skip(2)

    class Within(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            feed.skip(2)

    model, seen = spying_model()
    model.fit(feed, epochs=2, verbose=0, callbacks=[Between()])
    assert seen == wanted[0] + wanted[1][2:]
    with pytest.raises(RuntimeError, match=r"in the middle of an epoch.*on_epoch_end"):
        model.fit(feed, verbose=0, callbacks=[Within()])


def test_with_steps_per_epoch_the_pass_begins_past_what_is_skipped():
    ds = dataset()
    feed = ds.to_keras()
    feed.skip(3)
    model, seen = spying_model()
    model.fit(feed, epochs=2, steps_per_epoch=4, verbose=0)
    wanted = [batch for epoch in epochs_of(ds, 3) for batch in epoch]
    assert seen == wanted[3:11]


@pytest.mark.parametrize("steps_per_epoch", [None, 4])
def test_a_checkpointed_run_goes_on_past_a_bad_stretch(tmp_path, steps_per_epoch):
    ds = dataset()
    wanted = [batch for epoch in epochs_of(ds, 4) for batch in epoch]

    def run(skip, die_at=None):
        feed = ds.to_keras()
        feed.skip(skip)
        model, seen = spying_model()
        callbacks = [feed.checkpoint(str(tmp_path), every_batches=1)]
        if die_at is not None:
            callbacks.append(StopAt(die_at))
        with contextlib.suppress(Stop):
            model.fit(
                feed, epochs=3, verbose=0, callbacks=callbacks, steps_per_epoch=steps_per_epoch
            )
        return seen

    assert run(0, die_at=1) == wanted[:1]
    assert run(2, die_at=1) == wanted[3:4]  # Batches 1 and 2 are left out.
    # With steps, two of the first epoch are done by now, and the others are taken after what was left out.
    assert run(0) == wanted[4 : 15 if steps_per_epoch is None else 4 + 2 + 8]
