"""fit, evaluate and predict on a feed give what they give on arrays, go on from states, and refuse what can't work."""

import itertools
import warnings

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import (
    BACKEND,
    both,
    light_model,
    make_model,
    resumable_model,
    same_weights,
    spying_model,
)
from feeds.keras.training import NUM_ROWS, dataset


@pytest.mark.parametrize("batch_size", [7, 500])
def test_batches_of_any_size_give_the_same_losses(data, batch_size):
    x, y = data
    (_, expected), (_, found) = both(x[:40], y[:40], batch_size=batch_size, make=light_model)
    assert found == expected


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
    expected = light_model().fit(
        x, y, validation_data=(x[:70], y[:70]), batch_size=32, shuffle=False, epochs=3, verbose=0
    )
    found = light_model().fit(train, validation_data=valid, epochs=3, verbose=0)
    assert found.history == expected.history


def test_one_feed_can_be_training_and_validation_data(data):
    x, y = data
    feed = ps.from_arrays((x, y)).shuffle(seed=1).batch(32).to_keras()
    history = light_model().fit(feed, validation_data=feed, epochs=3, verbose=0)
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


@pytest.mark.parametrize("num_outputs", [1, 2])
def test_steps_per_epoch_never_joins_the_batches_of_two_epochs(num_outputs):
    x, y = numbered(40)
    rows = ps.from_arrays((x, (y,) * num_outputs if num_outputs > 1 else y)).shuffle(seed=0)
    model, seen = spying_model(num_outputs)  # One for all: it is compiled once.
    for drop_remainder, device_memory in itertools.product([False, True], [None, "1MB"]):
        ds = rows.batch(32, drop_remainder=drop_remainder)
        passes = [batch[0][:, 0].tolist() for epoch in range(6) for batch in ds.stream(epoch=epoch)]
        for steps, source in itertools.product([1, 2, 3], [ds, ds.repeat()]):
            seen.clear()
            feed = source.to_keras(device_memory=device_memory)
            model.fit(feed, steps_per_epoch=steps, epochs=2, verbose=0)
            assert seen == passes[: 2 * steps], (drop_remainder, device_memory, steps, source)


@pytest.mark.skipif(BACKEND == "torch", reason="Keras has one step an execution on PyTorch")
def test_steps_of_one_execution_may_lie_in_two_epochs():
    ds = ps.from_arrays(numbered(40)).shuffle(seed=0).batch(16)
    passes = [batch[0][:, 0].tolist() for epoch in range(4) for batch in ds.stream(epoch=epoch)]
    model, seen = spying_model(steps_per_execution=2)
    model.fit(ds.to_keras(), steps_per_epoch=4, epochs=2, verbose=0)
    assert seen == passes[:8]


@pytest.mark.skipif(BACKEND != "tensorflow", reason="strategies are TensorFlow's")
@pytest.mark.parametrize("is_filtered", [False, True])
def test_a_strategy_may_let_go_of_its_iterator_half_way(is_filtered):
    import tensorflow as tf

    ds = ps.from_arrays(numbered(40)).shuffle(seed=0)
    ds = (ds.filter(lambda x, y: True) if is_filtered else ds).batch(16)
    passes = [batch[0][:, 0].tolist() for epoch in range(3) for batch in ds.stream(epoch=epoch)]
    wanted = sorted(row for batch in passes[:8] for row in batch)
    with tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"]).scope():
        model, seen = spying_model()
    # In the middle of a read, or not: TensorFlow crashed in one of a few.
    for _ in range(12):
        seen.clear()
        model.fit(ds.to_keras(), steps_per_epoch=4, epochs=2, verbose=0, shuffle=False)
        assert sorted(row for batch in seen for row in batch) == wanted


@pytest.mark.skipif(BACKEND != "tensorflow", reason="strategies are TensorFlow's")
@pytest.mark.parametrize("kind", ["to_keras", "to_tf"])
@pytest.mark.parametrize("devices", [["CPU:0"], ["CPU:0", "CPU:1"]], ids=len)
def test_a_strategy_reads_the_epochs_that_are_read_without_one(kind, devices):
    import tensorflow as tf

    ds = ps.from_arrays(numbered(40)).shuffle(seed=0).batch(16)
    first, second = (
        [batch[0][:, 0].tolist() for batch in ds.stream(epoch=epoch)] for epoch in (0, 1)
    )
    with tf.distribute.MirroredStrategy(devices).scope():
        model, seen = spying_model()

    def read(call):
        seen.clear()
        call(getattr(ds, kind)())
        return sorted(row for batch in seen for row in batch), len(seen)

    def wanted(*epochs):
        batches = [batch for epoch in epochs for batch in epoch]
        return sorted(row for batch in batches for row in batch), len(devices) * len(batches)

    assert read(lambda feed: model.fit(feed, epochs=2, verbose=0, shuffle=False)) == wanted(
        first, second
    )
    if kind == "to_keras":
        steps = {"steps_per_epoch": 2, "epochs": 2, "verbose": 0, "shuffle": False}
        assert read(lambda feed: model.fit(feed, **steps)) == wanted(first, second[:1])
    assert read(lambda feed: model.evaluate(feed, verbose=0)) == wanted(first)
    assert read(
        lambda feed: model.fit(ds.to_keras(), validation_data=feed, verbose=0, shuffle=False)
    ) == wanted(first, first)
    rows = ps.from_arrays(numbered(40)[0]).shuffle(seed=0).batch(16)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "predict gives its outputs in the order")
        found = model.predict(getattr(rows, kind)(), verbose=0)
    by_arrays = model.predict(np.concatenate(list(rows.stream())), verbose=0)
    np.testing.assert_allclose(found, by_arrays, rtol=1e-5)


def test_an_infinite_dataset_needs_steps_per_epoch():
    model, seen = counting_model(40)
    feed = ps.from_arrays(numbered(40)).shuffle(seed=0).repeat().batch(8).to_keras()
    with pytest.raises(ValueError, match=r"never ends.*steps_per_epoch"):
        model.fit(feed, verbose=0)
    model.fit(feed, steps_per_epoch=5, epochs=2, verbose=0)
    assert (seen() == 2).all()


def test_early_stopping_and_the_next_fit(data):
    x, y = data
    model = light_model()
    feed = ps.from_arrays((x, y)).shuffle(seed=0).batch(32).to_keras()
    stop = keras.callbacks.EarlyStopping("loss", patience=0, mode="min", min_delta=1e9)
    assert len(model.fit(feed, epochs=9, verbose=0, callbacks=[stop]).epoch) == 2
    assert len(model.fit(feed, epochs=2, verbose=0, shuffle=False).epoch) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": np.zeros(200)}, "y can't be given beside a penstock feed"),
        ({"sample_weight": np.zeros(200)}, "sample_weight can't be given"),
        ({"batch_size": 64}, r"batch_size=64 contradicts .*\.batch\(64\)"),
        ({"validation_split": 0.1}, r"validation_split takes rows from arrays.*\n.*\n.*right"),
    ],
)
def test_arguments_that_keras_would_ignore_are_refused(data, arguments, message):
    feed = ps.from_arrays(data).batch(32).to_keras()
    with pytest.raises(ValueError, match=message):
        light_model().fit(feed, verbose=0, **arguments)


def test_validation_on_a_feed_works_beside_arrays_and_on_arrays_beside_a_feed(data):
    x, y = data
    feed = ps.from_arrays(data).batch(32).to_keras()
    expected = light_model().fit(
        x,
        y,
        batch_size=25,
        validation_data=data,
        validation_batch_size=32,
        shuffle=False,
        verbose=0,
    )
    found = light_model().fit(x, y, batch_size=25, validation_data=feed, shuffle=False, verbose=0)
    assert found.history == expected.history
    light_model().fit(feed, validation_data=data, validation_batch_size=25, verbose=0)
    endless = ps.from_arrays(data).repeat().batch(32).to_keras()
    for training in ({"x": x, "y": y, "batch_size": 25}, {"x": feed}):
        found = light_model().fit(
            **training, validation_data=endless, validation_steps=7, verbose=0
        )
        assert "val_loss" in found.history
    # Behind a tuple it is not seen when fit is called.
    with pytest.warns(ps.PenstockWarning, match="asked for 9 steps, and the data has 7"):
        light_model().fit(x, y, validation_data=(feed,), validation_steps=9, verbose=0)
    if BACKEND == "tensorflow":
        import tensorflow as tf

        batches = tf.data.Dataset.from_tensor_slices(data).batch(32)
        light_model().fit(feed, validation_data=batches, verbose=0)


class NoEpoch(keras.callbacks.Callback):
    def on_epoch_begin(self, epoch, logs=None):
        raise AssertionError("refused too late")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"validation_steps": 9}, "asked for 9 steps, and the data has 7"),
        ({"validation_batch_size": 25}, r"batch_size=25 contradicts .*\.batch\(25\)"),
        ({"is_endless": True}, "never ends.*validation_steps"),
        ({"beside": np.zeros(200)}, "y can't be given beside a penstock feed"),
    ],
)
def test_validation_data_that_cannot_work_is_refused_at_the_call(data, arguments, message):
    x, y = data
    ds = ps.from_arrays(data)
    if arguments.pop("is_endless", False):
        ds = ds.repeat()
    held_out = ds.batch(32).to_keras()
    beside = arguments.pop("beside", None)
    given = held_out if beside is None else (held_out, beside)
    feed = ps.from_arrays(data).batch(32).to_keras()
    model = light_model()
    arguments |= {"validation_data": given, "verbose": 0, "callbacks": [NoEpoch()]}
    with pytest.raises(ValueError, match=message):
        model.fit(feed, **arguments)
    if beside is None:
        with pytest.raises(ValueError, match=message):
            model.fit(x, y, **arguments)


def test_the_number_of_batches_can_be_asked_for_anywhere(data):
    class Holder:
        __slots__ = ("_num_batches", "_steps_seen")

        def __init__(self, feed, steps_per_execution=1):
            self._steps_seen = self._num_batches = feed.num_batches

    assert Holder(ps.from_arrays(data).batch(32).to_keras())._num_batches == 7


def test_what_cannot_work_is_refused_with_the_cure(data):
    x, y = data
    with pytest.raises(ValueError, match=r"right: ds\.batch\(32\)\.to_keras\(\)"):
        ps.from_arrays((x, y)).to_keras()
    with pytest.raises(ValueError, match=r"tuple of 4.*\n.*\n.*right"):
        ps.from_arrays((x, x, x, y)).batch(4).to_keras()
    with pytest.raises(ValueError, match="has no batches"):
        light_model().fit(ps.from_arrays((x, y)).take(0).batch(4).to_keras(), verbose=0)
    feed = ps.from_arrays((x, y)).batch(32).to_keras()
    with pytest.raises(ValueError, match="asked for 9 steps, and the data has 7 batches"):
        light_model().evaluate(feed, steps=9, verbose=0)
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
    found = light_model()
    found.fit(small.to_keras(), epochs=3, verbose=0)
    expected = light_model()
    expected.fit(
        ds.map(lambda *leaves: tuple(map(np.copy, leaves))).to_keras(), epochs=3, verbose=0
    )
    assert same_weights(found, expected)


def test_the_report_tells_of_the_last_epoch(data):
    feed = ps.from_arrays(data).batch(32).to_keras()
    assert feed.report() is None
    light_model().fit(feed, epochs=2, verbose=0)
    report = feed.report()
    assert (report.epoch, report.num_elements, report.state) == (1, 7, "ended")
    assert report.num_rows == len(data[0])
    assert report.device.is_shared
    assert "memory" in str(feed.explain())


@pytest.mark.parametrize("kind", ["rows", "filter", "several"])
def test_a_state_lets_fit_go_on_with_the_rest_of_its_epoch_and_then_with_whole_ones(kind):
    if BACKEND == "torch" and kind == "several":
        pytest.skip("torch has no steps_per_execution")
    ds = dataset(kind)
    with ds.stream(epoch=2) as stream:
        following = [int(row) for x, _ in stream for row in x[:, 0]]
    model, counter = resumable_model(kind)
    before = np.zeros(NUM_ROWS)
    for done in (0, 3, 6):
        with ds.stream(epoch=1) as stream:
            for _ in range(done):
                next(stream)
            state = stream.state()
            rest = [int(row) for x, _ in stream for row in x[:, 0]]
        feed = ds.to_keras()
        feed.resume(state)
        for wanted in (rest, following):
            model.fit(feed, epochs=1, verbose=0)
            seen = keras.ops.convert_to_numpy(counter.seen.value)
            assert sorted(np.flatnonzero(seen - before).tolist()) == sorted(wanted), done
            before = seen


def test_a_state_with_steps_per_epoch_starts_there_and_takes_all_steps():
    ds = dataset("rows")
    with ds.stream() as stream:
        for _ in range(4):
            next(stream)
        state = stream.state()
        rest = [int(row) for x, _ in stream for row in x[:, 0]]
    model, counter = resumable_model("steps")
    feed = ds.to_keras()
    feed.resume(state)
    model.fit(feed, epochs=1, steps_per_epoch=5, verbose=0)
    seen = np.flatnonzero(keras.ops.convert_to_numpy(counter.seen.value)).tolist()
    assert sorted(seen) == sorted(rest[: 5 * 8])


def test_a_feed_tells_what_it_is_how_long_and_where_it_stands():
    ds = dataset("rows")
    feed = ds.to_keras()
    assert len(feed) == len(ds) == feed.num_batches == 12
    assert repr(feed) == "<KerasFeed of batch(8): epoch 0, after batch 0 of 12>"
    model, _ = resumable_model("rows")
    model.fit(feed, epochs=2, verbose=0, shuffle=False)
    assert repr(feed) == "<KerasFeed of batch(8): epoch 2, after batch 0 of 12>"
    with ds.stream(epoch=4) as stream:
        next(stream)
        feed.resume(stream.state())
    assert repr(feed) == "<KerasFeed of batch(8): epoch 4, after batch 1 of 12>"
    unknown = dataset("filter").to_keras()
    assert unknown
    assert unknown.num_batches is None
    with pytest.raises(TypeError, match="number of batches is unknown"):
        len(unknown)


def test_a_state_of_another_dataset_is_refused_when_it_is_given():
    with dataset("filter").stream() as stream:
        state = stream.state()
    with pytest.raises(ps.StateError, match="another pipeline"):
        dataset("rows").to_keras().resume(state)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="tf.data is for TensorFlow")
def test_a_tf_dataset_that_goes_on_has_whole_epochs_after_the_first():
    ds = dataset("rows")
    with ds.stream() as stream:
        for _ in range(5):
            next(stream)
        state = stream.state()
    feed = ds.to_tf()
    feed.resume(state)
    model, counter = resumable_model("rows")
    steps = []
    noted = keras.callbacks.LambdaCallback(
        on_epoch_begin=lambda epoch, logs: steps.append(0),
        on_train_batch_end=lambda batch, logs: steps.append(steps.pop() + 1),
    )
    with warnings.catch_warnings():
        # Keras warns of an epoch that is shorter than the others, and of a shuffle that tf.data does.
        warnings.simplefilter("ignore", UserWarning)
        model.fit(feed, epochs=3, verbose=0, callbacks=[noted])
    assert steps == [7, 12, 12]
    seen = keras.ops.convert_to_numpy(counter.seen.value)
    assert seen.sum() == NUM_ROWS * 3 - 5 * 8


@pytest.mark.parametrize("call", ["fit", "evaluate", "predict", "validation"])
def test_an_epoch_without_batches_is_an_error_where_their_number_is_not_known(data, call):
    x, y = data
    rows = ps.from_arrays((x[:20], y[:20]))
    empty = rows.filter(lambda *_: False).batch(5).to_keras()
    model = make_model()
    calls = {
        "fit": lambda: model.fit(empty, verbose=0),
        "evaluate": lambda: model.evaluate(empty, verbose=0),
        "predict": lambda: model.predict(empty, verbose=0),
        "validation": lambda: model.fit(rows.batch(5).to_keras(), validation_data=empty, verbose=0),
    }
    with pytest.raises(ValueError, match="the dataset has no batches; check take, skip, filter"):
        calls[call]()
