"""The public way into Keras trains as the adapter does, and goes on between epochs."""

import keras
import pytest

import penstock as ps
from feeds.keras.suite.models import StepLosses, light_model, resumable_model
from feeds.keras.training import dataset


def test_the_public_fall_back_trains_on_the_same_batches(data):
    from penstock.feeds.keras.pydataset import PyDatasetFeed

    x, y = data
    ds = ps.from_arrays((x.astype("float64"), y)).shuffle(seed=0).batch(32)
    expected, found = StepLosses(), StepLosses()
    light_model().fit(ds.to_keras(), epochs=2, verbose=0, callbacks=[expected])
    feed = PyDatasetFeed(ds)
    light_model().fit(feed, epochs=2, verbose=0, shuffle=False, callbacks=[found])
    assert [s["loss"] for s in found.steps] == [s["loss"] for s in expected.steps]


def test_the_public_fall_back_goes_on_between_epochs_only():
    from penstock.feeds.keras.pydataset import PyDatasetFeed

    ds = dataset("rows")
    feed = PyDatasetFeed(ds)
    assert len(feed) == 12
    assert repr(feed) == "<PyDatasetFeed of batch(8): epoch 0>"
    with ds.stream(epoch=3) as stream:
        start = stream.state()
        next(stream)
        with pytest.raises(ps.StateError, match="can only go on between two epochs"):
            feed.resume(stream.state())
    feed.resume(start)
    expected, found = [], []
    for target, data in ((expected, ds.to_keras()), (found, feed)):
        data.resume(start)
        model, _ = resumable_model("rows")
        noted = keras.callbacks.LambdaCallback(
            on_train_batch_end=lambda batch, logs, target=target: target.append(logs["loss"])
        )
        model.fit(data, epochs=2, verbose=0, shuffle=False, callbacks=[noted])
    assert found == expected


def test_the_public_fall_back_skips_whole_epochs():
    from penstock.feeds.keras.pydataset import PyDatasetFeed

    feed = PyDatasetFeed(dataset("rows"))
    feed.skip(24)
    feed.on_epoch_end()
    assert repr(feed) == "<PyDatasetFeed of batch(8): epoch 2>"
    with pytest.raises(ps.StateError, match="can only go on between two epochs"):
        feed.skip(5)
