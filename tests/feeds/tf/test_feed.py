"""to_tf is a true tf.data.Dataset: specs, cardinality, epochs, states, and memory that stays as it was."""

import threading

import numpy as np
import pytest
from tests.reused_results import NUMERIC, batches_of

import penstock as ps
from penstock.core.nest import flatten

tf = pytest.importorskip("tensorflow")

NUM_ROWS = 300


def dataset(batch_size=32, *, drop_remainder=False, width=16):
    rng = np.random.default_rng(0)
    x = rng.random((NUM_ROWS, width), np.float32)
    rows = ps.from_arrays((x, np.arange(NUM_ROWS))).shuffle(seed=0)
    return rows.batch(batch_size, drop_remainder=drop_remainder)


def expected(ds, epoch):
    with ds.stream(epoch=epoch) as stream:
        return [tuple(map(np.array, batch)) for batch in stream]


def same(batches, wanted):
    found = [tuple(np.asarray(leaf) for leaf in batch) for batch in batches]
    return len(found) == len(wanted) and all(
        all(map(np.array_equal, mine, theirs)) for mine, theirs in zip(found, wanted, strict=True)
    )


# 5 floats a row: batches of 32 are not a multiple of 64 bytes, so that there is a gap between them.
@pytest.mark.parametrize("width", [16, 5])
@pytest.mark.parametrize("kind", ["plain", "map", "batches", "filter", "small"])
def test_each_iteration_is_the_next_epoch(kind, width):
    ds = dataset(32, width=width)
    if kind == "map":
        ds = ds.map(lambda x, n: (x + 1, n))
    if kind == "batches":
        ds = ds.shuffle(seed=1)  # Puts the short batch anywhere.
    if kind == "filter":
        ds = ds.filter(lambda x, n: n[0] % 2 == 0)
    if kind == "small":
        ds = ds.with_options(memory=ds.explain().need_nbytes)
    feed = ds.to_tf()
    for epoch in range(3):
        assert same(feed, expected(ds, epoch))


def test_spec_and_cardinality_are_complete():
    feed = dataset().to_tf()
    assert feed.element_spec == (
        tf.TensorSpec((None, 16), tf.float32),
        tf.TensorSpec((None,), tf.int64),
    )
    assert feed.cardinality() == 10
    whole = dataset(drop_remainder=True).to_tf()
    assert whole.element_spec[0].shape == (32, 16)
    assert whole.cardinality() == 9
    assert dataset().repeat().to_tf().cardinality() == tf.data.INFINITE_CARDINALITY


def test_it_is_a_tf_data_dataset():
    feed = dataset().to_tf()
    assert isinstance(feed, tf.data.Dataset)
    doubled = feed.map(lambda x, n: (x * 2, n)).take(3)
    with dataset().stream() as stream:
        assert np.array_equal(next(iter(doubled))[0], next(stream)[0] * 2)


def test_it_goes_on_from_a_state():
    ds = dataset()
    feed = ds.to_tf()
    for done, _ in enumerate(feed, start=1):
        if done == 4:
            break
    state = feed.state(4)
    feed.close()
    rest = expected(ds, 0)[4:]
    resumed = ds.to_tf()
    resumed.resume(state)
    assert same(resumed, rest)
    assert same(resumed, expected(ds, 1))
    with ds.stream(state=state) as stream:
        assert same(stream, rest)


def test_text_becomes_strings():
    feed = ps.from_arrays((["a", "bc", "d"], np.arange(3))).batch(2).to_tf()
    assert [batch[0].numpy().tolist() for batch in feed] == [[b"a", b"bc"], [b"d"]]


@pytest.mark.filterwarnings("ignore:.*still referred to:penstock.PenstockWarning")
def test_all_batches_can_be_kept_on_the_smallest_budget():
    ds = dataset(16)
    feed = ds.with_options(memory=ds.explain().need_nbytes).to_tf()
    kept = [list(feed) for _ in range(3)]
    assert all(same(batches, expected(ds, epoch)) for epoch, batches in enumerate(kept))


def test_mirrored_strategy_splits_each_batch():
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    spread = strategy.experimental_distribute_dataset(dataset().to_tf())
    rows = [strategy.experimental_local_results(batch[1])[0].numpy() for batch in spread]
    assert sorted(np.concatenate(rows)) == list(range(NUM_ROWS))


def test_single_rows_are_refused_with_the_cure():
    with pytest.raises(ValueError, match=r"right: ds\.batch\(32\)\.to_tf\(\)"):
        ps.from_arrays(np.arange(3)).to_tf()


def test_it_tells_what_it_is_how_long_and_where_it_stands():
    feed = dataset().to_tf()
    assert repr(feed) == "<TfFeed of batch(32): epoch 0, after batch 0 of 10>"
    assert len(feed) == int(feed.cardinality()) == 10
    batches = iter(feed)
    next(batches)
    assert repr(feed).startswith("<TfFeed of batch(32): reading epoch 0, next epoch 1,")
    del batches
    list(feed.take(0))
    feed = dataset().to_tf()
    list(feed)
    assert repr(feed) == "<TfFeed of batch(32): epoch 1, after batch 0 of 10>"
    unknown = ps.from_arrays(np.arange(9)).filter(lambda x: True).batch(2).to_tf()
    assert unknown
    with pytest.raises(TypeError, match="number of batches is unknown"):
        len(unknown)


@pytest.mark.parametrize("device_memory", [None, "1GB"])
def test_what_is_made_of_it_after_a_resume_goes_on_too(device_memory):
    ds = dataset()
    with ds.stream(epoch=2) as stream:
        for _ in range(3):
            next(stream)
        state = stream.state()
    feed = ds.to_tf(device_memory=device_memory)
    feed.resume(state)
    derived = feed.map(lambda x, n: (x, n)).prefetch(2)
    assert same(derived, expected(ds, 2)[3:])
    assert same(derived, expected(ds, 3))
    assert same(feed, expected(ds, 4))
    assert int(feed.cardinality()) == 10


def test_a_state_of_another_dataset_is_refused_when_it_is_given():
    with dataset(64).stream() as stream:
        state = stream.state()
    with pytest.raises(ps.StateError, match="another pipeline"):
        dataset(32).to_tf().resume(state)


@pytest.mark.parametrize("name", NUMERIC)
def test_a_batch_stays_what_the_function_returned_whatever_it_does_later(name):
    ds, wanted = batches_of(name)
    batches = list(ds.to_tf())
    assert [[leaf.tolist() for leaf in map(np.asarray, flatten(b)[0])] for b in batches] == wanted


def test_a_dataset_stands_where_it_was_told_to_until_it_is_iterated():
    ds = dataset()
    feed = ds.to_tf()
    assert (feed.state()["epoch"], feed.state()["element"]) == (0, 0)
    list(feed)
    with pytest.raises(ValueError, match=r"TensorFlow reads ahead.*state\(count\)"):
        feed.state()
    with ds.stream(epoch=3) as stream:
        next(stream)
        state = stream.state()
    feed.resume(state)
    assert feed.state() == feed.state(0) == state
    with pytest.raises(
        ValueError, match="no state after 2 batches before the dataset was iterated"
    ):
        feed.state(2)
    assert same(feed, expected(ds, 3)[1:])
    assert feed.state(1)["element"] == 2


@pytest.mark.parametrize("is_filtered", [False, True])
def test_iterators_left_half_way_end_their_threads(is_filtered):
    ds = dataset(1)
    feed = (ds.filter(lambda x, n: True) if is_filtered else ds).to_tf()
    first, second = iter(feed), iter(feed)
    next(first)
    next(second)
    feed.close()
    assert not [t for t in threading.enumerate() if t.name.lower().startswith("penstock")]


@pytest.mark.parametrize("kind", ["rows", "filter"])
@pytest.mark.parametrize("device_memory", [None, "1GB"])
def test_the_next_iteration_begins_past_what_is_skipped(kind, device_memory):
    ds = dataset() if kind == "rows" else dataset().filter(lambda x, n: True)
    feed = ds.to_tf(device_memory=device_memory)
    feed.skip_batches(3)
    assert feed.state()["element"] == 3
    assert same(feed, expected(ds, 0)[3:])
    assert same(feed, expected(ds, 1))
    feed.skip_batches(24)
    assert same(feed, expected(ds, 4)[4:])
    for _ in feed.take(2):
        pass
    feed.resume(feed.state(2))
    feed.skip_batches(5)
    assert same(feed, expected(ds, 5)[7:])
    # tf.data's own: without the first batches, each time.
    shorter = feed.skip(6)
    assert isinstance(shorter, tf.data.Dataset)
    assert same(shorter, expected(ds, 6)[6:])


# -- tf_keras (Keras 2) ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def tf_keras():
    return pytest.importorskip("tf_keras")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tf_keras_trains_validates_and_predicts_epoch_after_epoch(tf_keras):
    seen = []

    class Spy(tf_keras.layers.Layer):
        def call(self, x, training=False):
            if training:
                seen.append(x.numpy()[:, 0].tolist())
            return x

    def compiled():
        tf_keras.utils.set_random_seed(0)
        model = tf_keras.Sequential([Spy(), tf_keras.layers.Dense(1)])
        model.compile("sgd", "mse", run_eagerly=True)
        return model

    ds = dataset().map(lambda x, n: (x, n * np.float32(0.01)))
    wanted = [expected(ds, epoch) for epoch in range(3)]
    found = compiled().fit(ds.to_tf(), epochs=2, validation_data=ds.to_tf(), verbose=0)
    assert seen == [x[:, 0].tolist() for epoch in wanted[:2] for x, _ in epoch]
    assert len(found.history["val_loss"]) == 2
    by_hand = compiled()
    losses = [[by_hand.train_on_batch(*batch) for batch in epoch] for epoch in wanted[:2]]
    sizes = [len(y) for _, y in wanted[0]]
    means = [np.average(each, weights=sizes) for each in losses]
    assert found.history["loss"] == pytest.approx(means, rel=1e-4)
    # Steps across epochs, as Keras 2 wants them, and an epoch without a length.
    seen.clear()
    compiled().fit(ds.to_tf().repeat(), epochs=3, steps_per_epoch=4, verbose=0)
    assert seen == [x[:, 0].tolist() for x, _ in (*wanted[0], *wanted[1])][:12]
    filtered = ds.filter(lambda x, y: True).to_tf()
    assert len(compiled().fit(filtered, epochs=2, verbose=0).history["loss"]) == 2
    assert by_hand.predict(ds.to_tf(), verbose=0).shape == (NUM_ROWS, 1)
    by_hand.evaluate(ds.to_tf(), verbose=0)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_tf_keras_says_what_it_takes(tf_keras):
    model = tf_keras.Sequential([tf_keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    ds = dataset().map(lambda x, n: (x, n * np.float32(0.01)))
    with pytest.raises(
        TypeError, match=r"fit_arrays is for models of Keras 3.*\n  right: model\.fit\(.*to_tf"
    ):
        ps.fit_arrays(model, np.zeros((4, 2)), np.zeros(4))
    wrong = [ds, ds.to_keras()]
    for data in wrong:
        with pytest.raises(
            TypeError, match=r"tf_keras.*\n.*\n  right: model\.fit\(ds\.to_tf\(\)\)"
        ):
            model.fit(data, verbose=0)
        with pytest.raises(
            TypeError, match=r"tf_keras.*\n.*\n  right: model\.fit\(ds\.to_tf\(\)\)"
        ):
            model.fit(ds.to_tf(), validation_data=data, verbose=0)
        with pytest.raises(TypeError, match="tf_keras"):
            model.predict(data, verbose=0)
