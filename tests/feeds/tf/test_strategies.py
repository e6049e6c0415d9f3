"""MirroredStrategy with 2 and 4 devices: losses, weights, figures and outputs of one device."""

from pathlib import Path

import numpy as np
import pytest
from tests.feeds.tf.loop_of_one import trained_by_one
from tests.feeds.tf.tf_workers import alone, remembered, results

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

CHECKS = Path(__file__).parent / "mirrored_checks.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a function that gives what a process with so many devices has found: their number is fixed once."""

    def run(count):
        return results(alone(CHECKS, count, tmp_path_factory.mktemp("mirrored")))[0]

    return remembered(run)


@pytest.fixture(params=[2, 4])
def mirrored(request, runs):
    return runs(request.param)


def close(found, wanted, within=1e-5):
    flat = [np.concatenate([np.ravel(each) for each in nest]) for nest in (found, wanted)]
    return np.allclose(*flat, rtol=within, atol=within)


@pytest.mark.parametrize(("devices", "case"), [(2, "plain"), (2, "pad"), (4, "pad"), (4, "static")])
def test_keras_trains_evaluates_and_predicts_as_on_one_device(runs, devices, case):
    found, one = runs(devices)[case], runs(devices)[f"{case} by one"]
    assert close(found["weights"], one["weights"])
    assert close(found["evaluate"], one["evaluate"])
    assert np.shape(found["predict"]) == np.shape(one["predict"])
    assert close(found["predict"], one["predict"])
    for name in [name for name in one["history"] if name.startswith("val_")]:
        assert close(found["history"][name], one["history"][name])


def test_the_losses_of_epochs_are_those_of_one_device(runs):
    losses = {case: each["history"]["loss"] for case, each in runs(2).items() if "history" in each}
    assert close(losses["plain"], losses["plain by one"])
    # The last batch of 41 rows counts as 42 in the mean of an epoch.
    assert close(losses["pad"], losses["pad by one"], 5e-3)


@pytest.mark.parametrize(("case", "num_rows"), [("plain loop", 240), ("pad loop", 221)])
def test_a_loop_of_ones_own_trains_as_one_process_does(mirrored, case, num_rows):
    wanted = trained_by_one(num_rows)
    assert close(mirrored[case]["losses"], wanted["losses"])
    assert close(mirrored[case]["weights"], wanted["weights"])


def test_predict_to_writes_every_row_once(runs):
    num_rows, difference = runs(2)["predict_to"]
    assert num_rows == 100
    assert difference < 1e-6


def test_a_run_that_was_stopped_goes_on_from_its_checkpoint(runs):
    assert close(runs(2)["resumed"], runs(2)["pad"]["weights"], 1e-6)


def test_what_can_not_be_right_is_refused_with_the_cure(mirrored):
    refused = mirrored["refused"]
    assert (
        "can't run several steps at once under MirroredStrategy" in refused["steps_per_execution"]
    )
    for name in ("outside", "outside, to_tf"):
        assert (
            "was distributed for 1 device of this process, and MirroredStrategy has"
            in refused[name]
        )
        assert "with strategy.scope():" in refused[name]
