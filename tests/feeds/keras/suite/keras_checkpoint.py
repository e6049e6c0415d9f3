"""The checkpoint goes on exactly where it saved, whatever feeds the model. ../test_checkpoint.py kills for real."""

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import BACKEND, Stop, StopAt, resumable_model, same_weights
from feeds.keras.training import NUM_ROWS, dataset

KINDS = ["rows", "filter", "steps"] + ([] if BACKEND == "torch" else ["several"])


def run(kind, folder, stop_at=None, epochs=2):
    model, counter = resumable_model(kind)
    feed = dataset(kind).to_keras()
    saving = [feed.checkpoint(str(folder), every_batches=2)]
    history = model.fit(
        feed,
        epochs=epochs,
        verbose=0,
        steps_per_epoch=7 if kind == "steps" else None,
        callbacks=saving if stop_at is None else [*saving, StopAt(stop_at)],
    )
    return model, keras.ops.convert_to_numpy(counter.seen.value), history.history


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_cut_short_anywhere_ends_with_the_same_weights(tmp_path, kind):
    expected, seen, history = run(kind, tmp_path / "whole")
    for stops in ([1], [5, 3], [7], [11, 2]):
        if kind == "several":
            stops = [1 + stop // 3 for stop in stops]
        folder = tmp_path / f"cut{stops}"
        for stop in stops:
            with pytest.raises(Stop):
                run(kind, folder, stop)
        found, found_seen, found_history = run(kind, folder)
        assert same_weights(found, expected), (kind, stops)
        assert np.array_equal(found_seen, seen)
        assert found_history["mae"][-1] == history["mae"][-1], (kind, stops)
        assert found_history["loss"][-1] == history["loss"][-1], (kind, stops)
    if kind == "rows":
        assert (seen == 2).all()
        assert len(seen) == NUM_ROWS


def test_a_finished_run_is_not_trained_again(tmp_path):
    first, seen, _ = run("rows", tmp_path)
    again, seen_again, _ = run("rows", tmp_path)
    assert same_weights(first, again)
    _, seen_more, _ = run("rows", tmp_path, epochs=3)
    assert np.array_equal(seen, seen_again)
    assert (seen_more == 3).all()


def test_a_checkpoint_of_another_model_or_pipeline_is_refused(tmp_path):
    run("rows", tmp_path)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    feed = dataset("rows").to_keras()
    with pytest.raises(ps.StateError, match=r"another model or backend.*Remove"):
        model.fit(feed, verbose=0, callbacks=[feed.checkpoint(str(tmp_path))])
    model, _ = resumable_model("rows")
    feed = dataset("filter").to_keras()
    with pytest.raises(ps.StateError, match="another pipeline"):
        model.fit(feed, epochs=3, verbose=0, callbacks=[feed.checkpoint(str(tmp_path))])
