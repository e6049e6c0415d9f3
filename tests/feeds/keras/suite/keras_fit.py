"""fit, evaluate and predict on a feed give what they give on arrays, and refuse what can't work."""

import gc
import threading

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, StepLosses, make_model, same_weights


def both(x, y, *, batch_size=32, epochs=2, make=make_model, feed_data=None, **fit_options):
    """Train on arrays and on a feed; return both models and what each step reported."""
    results = []
    data = feed_data if feed_data is not None else ((x, y) if y is not None else (x,))
    feed = ps.from_arrays(data).batch(batch_size).to_keras()
    for arguments in ({"x": x, "y": y, "batch_size": batch_size, "shuffle": False}, {"x": feed}):
        model, log = make(), StepLosses()
        model.fit(**arguments, epochs=epochs, verbose=0, callbacks=[log], **fit_options)
        results.append((model, log.steps))
    return results


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "int64"])
def test_losses_equal_those_of_arrays_bit_for_bit(data, dtype):
    x, y = data
    (theirs, expected), (ours, found) = both((x * 100).astype(dtype), y)
    assert found == expected
    assert same_weights(ours, theirs)


@pytest.mark.parametrize("batch_size", [7, 500])
def test_batches_of_any_size_give_the_same_losses(data, batch_size):
    x, y = data
    (_, expected), (_, found) = both(x[:40], y[:40], batch_size=batch_size)
    assert found == expected


def test_class_weights_in_fit_and_in_the_feed_are_those_of_keras(data):
    x, y = data
    weights = {0: 3.0, 2: 0.5}
    (_, expected), (_, found) = both(x, y, class_weight=weights)
    assert found == expected
    model, log = make_model(), StepLosses()
    feed = ps.from_arrays((x, y)).batch(32).to_keras(class_weight=weights)
    model.fit(feed, epochs=2, verbose=0, callbacks=[log])
    assert log.steps == expected


def test_sample_weights_are_those_of_keras(data):
    x, y = data
    weights = np.linspace(0, 2, len(x))
    expected, found = StepLosses(), StepLosses()
    make_model().fit(
        x, y, sample_weight=weights, shuffle=False, verbose=0, batch_size=32, callbacks=[expected]
    )
    feed = ps.from_arrays((x, y, weights)).batch(32).to_keras()
    make_model().fit(feed, verbose=0, callbacks=[found])
    assert found.steps == expected.steps


def two_in_two_out():
    keras.utils.set_random_seed(0)
    a, b = keras.Input((8,), name="a"), keras.Input((3,), name="b")
    joined = keras.layers.Concatenate()([a, b])
    out = {
        "p": keras.layers.Dense(2, name="p")(joined),
        "q": keras.layers.Dense(1, name="q")(joined),
    }
    model = keras.Model({"a": a, "b": b}, out)
    model.compile(optimizer="sgd", loss={"p": "mse", "q": "mae"})
    return model


@pytest.mark.parametrize("has_weight", [False, True])
def test_dict_inputs_and_several_outputs(data, has_weight):
    x, _ = data
    inputs = {"a": x, "b": x[:, :3].astype("float64")}
    outputs = {"p": x[:, :2], "q": x[:, :1]}
    weight = np.linspace(0, 1, len(x)).astype("float32")
    nest = (inputs, outputs, weight) if has_weight else (inputs, outputs)
    expected, found = StepLosses(), StepLosses()
    two_in_two_out().fit(
        inputs,
        outputs,
        sample_weight=weight if has_weight else None,
        batch_size=32,
        shuffle=False,
        verbose=0,
        callbacks=[expected],
    )
    two_in_two_out().fit(ps.from_arrays(nest).batch(32).to_keras(), verbose=0, callbacks=[found])
    assert found.steps == expected.steps


def test_leaves_of_a_batch_share_no_memory(data):
    """TensorFlow writes into memory that it takes to be one tensor's own."""
    x, _ = data
    nest = ({"a": x}, {"p": x, "q": x}, np.ones(len(x), "float32"))
    feed = ps.from_arrays(nest).batch(32).to_keras()
    for inputs, outputs, weights in feed.get_numpy_iterator():
        leaves = [*inputs.values(), *outputs.values(), *weights.values()]
        for number, leaf in enumerate(leaves):
            assert not any(np.shares_memory(leaf, other) for other in leaves[:number])


def test_a_tuple_of_inputs(data):
    x, y = data
    keras.utils.set_random_seed(0)
    a, b = keras.Input((8,)), keras.Input((8,))
    model = keras.Model([a, b], keras.layers.Dense(1)(keras.layers.Add()([a, b])))
    model.compile("sgd", "mse")
    history = model.fit(ps.from_arrays(((x, x), y)).batch(32).to_keras(), epochs=2, verbose=0)
    assert history.history["loss"][1] < history.history["loss"][0]


def test_evaluate_and_predict_equal_those_of_arrays(data):
    x, y = data
    model = make_model()
    feed = ps.from_arrays((x, y)).batch(32).to_keras()
    assert model.evaluate(feed, verbose=0) == model.evaluate(x, y, batch_size=32, verbose=0)
    for nest in (x, (x,), (x, y)):
        found = model.predict(ps.from_arrays(nest).batch(32).to_keras(), verbose=0)
        assert np.array_equal(found, model.predict(x, batch_size=32, verbose=0))


def test_a_model_without_input_shape_is_built_by_the_feed(data):
    x, y = data

    def make():
        keras.utils.set_random_seed(0)
        model = keras.Sequential([keras.layers.Dense(4)])
        model.compile("sgd", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        return model

    (_, expected), (_, found) = both(x, y, make=make)
    assert found == expected


def test_validation_data_reads_the_same_rows_each_time(data):
    x, y = data
    train = ps.from_arrays((x, y)).batch(32).to_keras()
    valid = ps.from_arrays((x[:70], y[:70])).batch(32).to_keras()
    expected = make_model().fit(
        x, y, validation_data=(x[:70], y[:70]), batch_size=32, shuffle=False, epochs=3, verbose=0
    )
    found = make_model().fit(train, validation_data=valid, epochs=3, verbose=0)
    assert found.history == expected.history


def test_one_feed_can_be_training_and_validation_data(data):
    x, y = data
    feed = ps.from_arrays((x, y)).shuffle(seed=1).batch(32).to_keras()
    history = make_model().fit(feed, validation_data=feed, epochs=3, verbose=0)
    assert len(history.history["val_loss"]) == 3


class RowsSeen(keras.layers.Layer):
    """Counts how often each row was trained on, by the number in its first column."""

    def __init__(self, num_rows):
        super().__init__()
        self.num_rows = num_rows

    def build(self, shape):
        self.seen = self.add_weight(shape=(self.num_rows,), trainable=False, initializer="zeros")

    def call(self, x, training=False):
        if training:
            rows = keras.ops.cast(x[:, 0], "int32")
            self.seen.assign(self.seen + keras.ops.sum(keras.ops.one_hot(rows, self.num_rows), 0))
        return x


def counting_model(num_rows, **options):
    keras.utils.set_random_seed(0)
    layer = RowsSeen(num_rows)
    model = keras.Sequential([keras.Input((2,)), layer, keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1e-9), "mse", **options)
    return model, lambda: keras.ops.convert_to_numpy(layer.seen.value)


def numbered(num_rows):
    x = np.zeros((num_rows, 2), "float32")
    x[:, 0] = np.arange(num_rows)
    return x, np.zeros(num_rows, "float32")


STEPS = [1] if BACKEND == "torch" else [1, 4]


@pytest.mark.parametrize("steps_per_execution", STEPS)
def test_every_epoch_trains_on_every_row_once(steps_per_execution):
    model, seen = counting_model(50, steps_per_execution=steps_per_execution)
    feed = ps.from_arrays(numbered(50)).shuffle(seed=0).batch(8).to_keras()
    for epochs in (1, 2):
        model.fit(feed, epochs=epochs, verbose=0)
    assert (seen() == 3).all()


@pytest.mark.parametrize("steps_per_execution", STEPS)
@pytest.mark.parametrize("batch_size", [8, 10])
def test_a_dataset_of_unknown_length_trains_on_every_row_once(steps_per_execution, batch_size):
    model, seen = counting_model(50, steps_per_execution=steps_per_execution)
    feed = ps.from_arrays(numbered(50)).filter(lambda x, y: x[0] < 40).batch(batch_size).to_keras()
    model.fit(feed, epochs=3, verbose=0, validation_data=feed)
    assert seen().tolist() == [3.0] * 40 + [0.0] * 10
    assert model.predict(feed, verbose=0).shape == (40, 1)


def test_epochs_are_shuffled_anew_and_probe_reads_do_not_count():
    x, y = numbered(40)
    order = []

    def note(x, y):
        order.append(x[:, 0].astype(int).tolist())
        return x, y

    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.layers.Dense(1)])  # Unbuilt, so that Keras reads a batch first.
    model.compile("sgd", "mse")
    ds = ps.from_arrays((x, y)).shuffle(seed=3).batch(40)
    model.fit(ds.map(note, spec=ds.spec).to_keras(), epochs=2, verbose=0)
    expected = [next(ds.stream(epoch=epoch))[0][:, 0].astype(int).tolist() for epoch in (0, 1)]
    assert order[-2:] == expected


@pytest.mark.parametrize("steps_per_execution", STEPS[:2])
def test_steps_per_epoch_goes_on_through_the_data_across_epochs(steps_per_execution):
    model, seen = counting_model(48, steps_per_execution=steps_per_execution)
    feed = ps.from_arrays(numbered(48)).shuffle(seed=0).batch(8).to_keras()
    model.fit(feed, steps_per_epoch=4, epochs=3, verbose=0)  # Twice all rows.
    assert (seen() == 2).all()


def test_an_infinite_dataset_needs_steps_per_epoch():
    model, seen = counting_model(40)
    feed = ps.from_arrays(numbered(40)).shuffle(seed=0).repeat().batch(8).to_keras()
    with pytest.raises(ValueError, match=r"never ends.*steps_per_epoch"):
        model.fit(feed, verbose=0)
    model.fit(feed, steps_per_epoch=5, epochs=2, verbose=0)
    assert (seen() == 2).all()


def test_early_stopping_and_the_next_fit(data):
    x, y = data
    model = make_model()
    feed = ps.from_arrays((x, y)).shuffle(seed=0).batch(32).to_keras()
    stop = keras.callbacks.EarlyStopping("loss", patience=0, mode="min", min_delta=1e9)
    assert len(model.fit(feed, epochs=9, verbose=0, callbacks=[stop]).epoch) == 2
    assert len(model.fit(feed, epochs=2, verbose=0).epoch) == 2


def our_threads():
    return [t.name for t in threading.enumerate() if t.name.lower().startswith("penstock")]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("steps_per_execution", STEPS[:2])
def test_an_error_in_a_callback_ends_the_stream(error, steps_per_execution):
    model, _ = counting_model(40_000, steps_per_execution=steps_per_execution)
    feed = ps.from_arrays(numbered(40_000)).batch(8).to_keras()

    class Fails(keras.callbacks.Callback):
        def on_train_batch_end(self, batch, logs=None):
            if batch >= 3:
                raise error("enough")

    with pytest.raises(error, match="enough"):
        model.fit(feed, epochs=2, verbose=0, callbacks=[Fails()])
    feed.close()
    gc.collect()
    for thread in threading.enumerate():
        if thread.name.lower().startswith("penstock"):
            thread.join(5)
    assert not our_threads()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": np.zeros(200)}, "y can't be given beside a penstock feed"),
        ({"sample_weight": np.zeros(200)}, "sample_weight can't be given"),
        ({"batch_size": 64}, r"batch_size=64 contradicts .*\.batch\(64\)"),
        ({"validation_split": 0.1}, "validation_split"),
    ],
)
def test_arguments_that_keras_would_ignore_are_refused(data, arguments, message):
    feed = ps.from_arrays(data).batch(32).to_keras()
    with pytest.raises(ValueError, match=message):
        make_model().fit(feed, verbose=0, **arguments)


def test_what_cannot_work_is_refused_with_the_cure(data):
    x, y = data
    with pytest.raises(ValueError, match=r"right: ds\.batch\(32\)\.to_keras\(\)"):
        ps.from_arrays((x, y)).to_keras()
    with pytest.raises(ValueError, match=r"tuple of 4.*\n.*\n.*right"):
        ps.from_arrays((x, x, x, y)).batch(4).to_keras()
    with pytest.raises(ValueError, match="has no batches"):
        make_model().fit(ps.from_arrays((x, y)).take(0).batch(4).to_keras(), verbose=0)
    feed = ps.from_arrays((x, y)).batch(32).to_keras()
    with pytest.raises(ValueError, match="asked for 9 steps, and the data has 7 batches"):
        make_model().evaluate(feed, steps=9, verbose=0)
    with pytest.raises(ValueError, match="class_weight and sample_weight"):
        ps.from_arrays((x, y, y)).batch(4).to_keras(class_weight={0: 1.0})
    with pytest.raises(ValueError, match="class_weight needs labels"):
        ps.from_arrays((x,)).batch(4).to_keras(class_weight={0: 1.0})
    if BACKEND != "tensorflow":
        with pytest.raises(TypeError, match="has numbers only"):
            ps.from_arrays((["a"] * 200, y)).batch(4).to_keras()


def test_the_smallest_budget_trains_as_fresh_copies_do(data):
    rng = np.random.default_rng(1)
    x, y = rng.random((3000, 8), np.float32), rng.integers(0, 4, 3000).astype("int32")
    ds = ps.from_arrays((x, y)).shuffle(seed=0).batch(32)
    small = ds.with_options(memory=ds.explain().need_nbytes)
    found = make_model()
    found.fit(small.to_keras(), epochs=3, verbose=0)
    expected = make_model()
    expected.fit(
        ds.map(lambda *leaves: tuple(map(np.copy, leaves))).to_keras(), epochs=3, verbose=0
    )
    assert same_weights(found, expected)


def test_predictions_are_streamed_to_a_file(data, tmp_path):
    x, y = data
    model = make_model()
    feed = ps.from_arrays((x, y)).batch(32).to_keras()
    written = feed.predict_to(str(tmp_path / "out.npy"), model)
    assert np.array_equal(np.load(tmp_path / "out.npy"), model.predict(x, batch_size=32, verbose=0))
    assert (written.num_rows, written.to_device_nbytes) == (200, x.nbytes)
    assert written.to_host_nbytes == 200 * 4 * 4
    outputs = two_in_two_out()
    feed = ps.from_arrays({"a": x, "b": x[:, :3]}).batch(32).to_keras()
    assert len(feed.predict_to(str(tmp_path / "folder"), outputs).paths) == 2
    assert np.load(tmp_path / "folder" / "p.npy").shape == (200, 2)


def test_normalization_is_that_of_adapt(data):
    x, y = data
    layer = keras.layers.Normalization()
    layer.adapt(x)
    found = ps.from_arrays((x, y)).batch(32).to_keras().normalization()
    assert np.allclose(np.asarray(found(x)), np.asarray(layer(x)), atol=1e-5)
    images = np.random.default_rng(0).random((50, 4, 5, 3), np.float32)
    layer = keras.layers.Normalization()
    layer.adapt(images)
    found = ps.from_arrays((images,)).batch(32).to_keras().normalization()
    assert np.allclose(np.asarray(found(images)), np.asarray(layer(images)), atol=1e-4)


def test_fit_arrays_is_fit(data):
    x, y = data
    expected = make_model().fit(
        x, y, batch_size=32, shuffle=False, validation_split=0.25, epochs=2, verbose=0
    )
    found = ps.fit_arrays(
        make_model(), x, y, batch_size=32, shuffle=False, validation_split=0.25, epochs=2, verbose=0
    )
    assert found.history == expected.history
    ps.fit_arrays(make_model(), x, y, validation_data=(x, y), verbose=0, memory="64MB")


def test_the_public_fall_back_trains_on_the_same_batches(data):
    from penstock.feeds.keras.pydataset import PyDatasetFeed

    x, y = data
    ds = ps.from_arrays((x.astype("float64"), y)).shuffle(seed=0).batch(32)
    expected, found = StepLosses(), StepLosses()
    make_model().fit(ds.to_keras(), epochs=2, verbose=0, callbacks=[expected])
    feed = PyDatasetFeed(ds)
    make_model().fit(feed, epochs=2, verbose=0, shuffle=False, callbacks=[found])
    assert [s["loss"] for s in found.steps] == [s["loss"] for s in expected.steps]


def test_the_report_tells_of_the_last_epoch(data):
    feed = ps.from_arrays(data).batch(32).to_keras()
    assert feed.report() is None
    make_model().fit(feed, epochs=2, verbose=0)
    assert (feed.report().epoch, feed.report().num_elements) == (1, 7)
    assert "memory" in str(feed.explain())
