"""A rank of a distributed dataset evaluates and predicts for all rows, as one process would."""

import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, make_model
from penstock.feeds.keras.ranks_apart import all_rows


def part_of(ds, **options):
    return ds.distribute(rank=1, world=3, **options)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_all_rows_are_those_before_distribute(data, is_mapped):
    ds = ps.from_arrays(data[0]).shuffle(seed=1).batch(24)
    dropped, padded = part_of(ds, uneven="drop"), part_of(ds, uneven="pad", static=True)
    if is_mapped:
        dropped = dropped.map(lambda x: x + 1)
        padded = padded.map(lambda x, weight: (x + 1, weight))
    batches = [batch + is_mapped for batch in ds.stream()]
    found = list(all_rows(dropped).stream())
    assert all(map(np.array_equal, found, batches[:-1]))
    assert len(found) == len(batches) - 1
    for (batch, weight), wanted in zip(all_rows(padded).stream(), batches, strict=True):
        assert np.array_equal(batch, wanted)
        assert (weight == 1).all()


@pytest.mark.skipif(
    BACKEND == "tensorflow", reason="strategies of tf.distribute add figures up over ranks"
)
def test_evaluate_and_predict_read_all_rows_and_fit_its_own(data):
    ds = ps.from_arrays(data).take(192).batch(24)
    model, feed = make_model(), part_of(ds).to_keras()
    whole = ds.to_keras()
    for _ in range(2):
        assert model.evaluate(feed, verbose=0) == model.evaluate(whole, verbose=0)
        assert np.array_equal(model.predict(feed, verbose=0), model.predict(whole, verbose=0))
    with pytest.warns(ps.PenstockWarning, match="one of 3 ranks"):
        history = model.fit(feed, validation_data=feed, verbose=0, epochs=2)
    assert feed.report().num_elements == 8
    assert model.evaluate(whole, verbose=0, return_dict=True)["loss"] == pytest.approx(
        history.history["val_loss"][-1]
    )
