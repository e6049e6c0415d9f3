"""fit_arrays is fit, with the memory that it is given."""

from pathlib import Path

import keras
import pandas as pd
import pytest

import penstock as ps
from feeds.keras.suite.models import light_model, make_model


def test_fit_arrays_is_fit(data):
    x, y = data
    expected = make_model().fit(
        x, y, batch_size=32, shuffle=False, validation_split=0.25, epochs=2, verbose=0
    )
    found = ps.fit_arrays(
        make_model(), x, y, batch_size=32, shuffle=False, validation_split=0.25, epochs=2, verbose=0
    )
    assert found.history == expected.history
    ps.fit_arrays(light_model(), x, y, validation_data=(x, y), verbose=0, memory="64MB")


def test_fit_arrays_shares_the_declared_memory(data):
    x, y = data
    options = {"batch_size": 32, "validation_split": 0.25, "epochs": 2, "verbose": 0}
    expected = ps.fit_arrays(light_model(), x, y, **options)
    # Room for the training data, and not for what is held out as well.
    found = ps.fit_arrays(light_model(), x, y, device_memory=150 * 36 + 10, **options)
    assert found.history == expected.history


def test_fit_arrays_validates_on_random_rows_by_choice(data):
    x, y = data
    train, valid = ps.from_arrays((x, y)).split(0.75, seed=3)
    expected = make_model().fit(
        train.batch(32).to_keras(), validation_data=valid.batch(32).to_keras(), epochs=2, verbose=0
    )
    options = {"shuffle": False, "validation_split": 0.25, "epochs": 2, "verbose": 0}
    found = ps.fit_arrays(make_model(), x, y, validation_seed=3, **options)
    assert found.history == expected.history
    last = ps.fit_arrays(make_model(), x, y, **options)
    assert last.history["val_loss"] != found.history["val_loss"]
    with pytest.raises(ValueError, match=r"write validation_split=0\.1"):
        ps.fit_arrays(make_model(), x, y, validation_seed=3)
    with pytest.raises(ValueError, match="leaves nothing to train or to validate on"):
        ps.fit_arrays(make_model(), x[:1], y[:1], validation_split=0.25, validation_seed=3)


@pytest.mark.parametrize("held_out", [{"validation_split": 0.25}, {"validation_data": True}])
def test_fit_arrays_validates_in_batches_of_their_own_size(data, held_out):
    x, y = data
    if "validation_data" in held_out:
        held_out = {"validation_data": (x, y)}
    sizes = []

    class Sizes(keras.callbacks.Callback):
        def on_test_batch_end(self, batch, logs=None):
            sizes.append(batch)

    options = {"shuffle": False, "verbose": 0, "validation_batch_size": 25, **held_out}
    expected = light_model().fit(x, y, **options)
    found = ps.fit_arrays(light_model(), x, y, callbacks=[Sizes()], **options)
    assert found.history == expected.history
    assert len(sizes) == len(held_out.get("validation_data", ([0] * 50,))[0]) // 25


def test_fit_arrays_takes_a_list_of_numbers(data):
    x, y = data
    options = {"shuffle": False, "epochs": 1, "verbose": 0}
    expected = ps.fit_arrays(make_model(), x, y, **options)
    assert ps.fit_arrays(make_model(), x, list(y), **options).history == expected.history


def dataset(x, y):
    return ps.from_arrays((x, y))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda x, y: ("x.npy", "y.npy"),
            r"path 'x.npy'; .*(.|\n)*ps.zip\(ps.from_files\('x.npy'\), ",
        ),
        (
            lambda x, y: (x, Path("y.npy")),
            r"path 'y.npy'; .*(.|\n)*fit\(ds.shuffle\(seed=0\).batch",
        ),
        (lambda x, y: ("x.npz",), r"  right: ds = ps.(from_files\('x.npz'\)\n|zip)"),
        (lambda x, y: (dataset(x, y),), r"write model.fit\(ds.batch\(32\).to_keras\(\)\)\.$"),
        (lambda x, y: (dataset(x, y).batch(2),), r"write model.fit\(ds.to_keras\(\)\)\.$"),
        (lambda x, y: (dataset(x, y).batch(2).to_keras(),), r"a feed; write model.fit\(feed\)"),
        (lambda x, y: (pd.DataFrame(x), y), r"one tensor for x; write x.to_numpy\(\)\.$"),
        (lambda x, y: (x, pd.DataFrame({"y": y})), r"one tensor for y; write y.to_numpy\(\)\.$"),
    ],
)
@pytest.mark.parametrize("is_validation", [False, True])
def test_what_is_no_array_is_told_with_what_takes_it(data, change, message, is_validation):
    x, y = data
    given = change(x, y)
    with pytest.raises(TypeError, match=message):
        if not is_validation:
            ps.fit_arrays(light_model(), *given, verbose=0)
        else:
            ps.fit_arrays(light_model(), x, y, validation_data=(*given, y)[:2], verbose=0)


def test_tables_are_columns_for_a_model_that_takes_them(data):
    x, y = data
    table = pd.DataFrame({"a": x[:, 0], "b": x[:, 1]})
    inputs = {name: keras.Input((), name=name) for name in table}
    columns = [keras.layers.Reshape((1,))(one) for one in inputs.values()]
    outputs = keras.layers.Dense(4, "softmax")(keras.layers.concatenate(columns))
    model = keras.Model(inputs, outputs)
    model.compile("sgd", "sparse_categorical_crossentropy")
    assert ps.fit_arrays(model, table, y, verbose=0).epoch == [0]


def test_validation_data_that_is_no_pair_is_told(data):
    x, y = data
    for wrong in (dataset(x, y), dataset(x, y).batch(2).to_keras(), (x,)):
        with pytest.raises(
            TypeError, match=r"must be \(x, y\) or .* write model.fit\(train, valid"
        ):
            ps.fit_arrays(light_model(), x, y, validation_data=wrong, verbose=0)
