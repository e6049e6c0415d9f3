"""What a training writes to TensorBoard, read back by TensorBoard."""

import copy

import keras
import numpy as np
import pytest

import penstock as ps
from feeds.keras.suite.models import Stop, StopAt
from reports.test_event_file import read_events

ROWS, BATCHES = 256, 8


def dataset():
    x = np.random.default_rng(0).random((ROWS, 4), np.float32)
    return (
        ps.from_arrays((x, x[:, 0]))
        .shuffle(seed=0)
        .map(lambda x, y: (x * 2, y))
        .batch(ROWS // BATCHES)
    )


def trained(feed, figures, **arguments):
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(feed, verbose=0, callbacks=figures, **arguments)
    return model


def test_the_figures_of_the_data_come_by_step_while_it_trains(tmp_path):
    feed = dataset().to_keras(device_memory=1)
    trained(feed, [feed.tensorboard(str(tmp_path), every_seconds=1e-9)], epochs=2)
    scalars, texts = read_events(tmp_path / "penstock")
    steps = [step for step, _ in scalars["penstock/rows_per_second"]]
    # After each batch, and once more at the end of each epoch.
    assert steps == [*range(1, 9), 8, *range(9, 17), 16]
    assert all(value > 0 for _, value in scalars["penstock/rows_per_second"][1:8])
    assert all(0 <= value <= 1 for _, value in scalars["penstock/waited_share"])
    assert 0 < max(value for _, value in scalars["penstock/memory_share_of_budget"]) < 1
    assert [value for _, value in scalars["penstock/epoch"]] == [0] * 9 + [1] * 9
    assert {tag for tag in scalars if tag.startswith("penstock_stages/")} == {
        "penstock_stages/0 from_arrays((256, 4) float32, (256) float32)",
        "penstock_stages/1 shuffle(seed=0)",
        "penstock_stages/2 map(<lambda>)",
        "penstock_stages/3 batch(32)",
    }
    assert [step for step, _ in texts["penstock/bottleneck"]] == [8, 16]
    assert texts["penstock/bottleneck"][-1][1] == feed.report().advice
    assert "map(<lambda>)" in texts["penstock/decisions"][0][1]


def test_a_pause_between_two_writes_leaves_only_the_ends_of_epochs(tmp_path):
    feed = dataset().to_keras()
    valid = dataset().take(2).to_keras()
    figures = copy.deepcopy(feed.tensorboard(str(tmp_path), every_seconds=1e9))
    trained(feed, [figures], epochs=2, validation_data=valid)
    scalars, _ = read_events(tmp_path / "penstock")
    # What was read for validation in between is not in them.
    assert [step for step, _ in scalars["penstock/epoch"]] == [8, 16]
    assert [value for _, value in scalars["penstock/epoch"]] == [0, 1]


def test_steps_go_on_after_a_checkpoint_as_those_of_the_optimizer_do(tmp_path):
    for number, stop in enumerate([[StopAt(11)], []]):
        feed = dataset().to_keras()
        saving = feed.checkpoint(str(tmp_path / "saved"), every_batches=2)
        figures = feed.tensorboard(str(tmp_path / f"log{number}"), every_seconds=1e-9)
        if stop:
            with pytest.raises(Stop):
                trained(feed, [figures, saving, *stop], epochs=2)
        else:
            trained(feed, [figures, saving], epochs=2)
    scalars, _ = read_events(tmp_path / "log1" / "penstock")
    assert [step for step, _ in scalars["penstock/epoch"]] == [*range(11, 17), 16]


@pytest.mark.skipif(
    keras.backend.backend() == "torch", reason="Keras has one step an execution there"
)
def test_steps_are_those_of_the_optimizer_with_several_an_execution(tmp_path):
    feed = dataset().to_keras(device_memory=1)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=5)
    figures = feed.tensorboard(str(tmp_path), every_seconds=600)
    model.fit(feed, epochs=3, verbose=0, callbacks=[figures])
    scalars, _ = read_events(tmp_path / "penstock")
    assert [step for step, _ in scalars["penstock/epoch"]] == [8, 16, 24]


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan")])
def test_a_pause_of_no_time_is_refused(seconds):
    with pytest.raises(ValueError, match="every_seconds must be more than 0, got"):
        dataset().to_keras().tensorboard("log", every_seconds=seconds)
