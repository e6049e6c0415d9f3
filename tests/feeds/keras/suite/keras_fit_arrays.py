"""fit_arrays is fit, with the memory that it is given."""

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
