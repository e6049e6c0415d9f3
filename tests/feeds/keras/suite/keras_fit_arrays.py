"""fit_arrays is fit, with the memory that it is given."""

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
