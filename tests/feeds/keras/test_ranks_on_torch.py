"""Keras on PyTorch in several processes trains as one process does."""

from pathlib import Path

import numpy as np
import pytest
from tests.processes import run_ranks

SCRIPT = Path(__file__).with_name("torch_rank.py")


@pytest.fixture(scope="module", params=[2, 3])
def ranks(request):
    pytest.importorskip("keras")
    return run_ranks(SCRIPT, request.param, KERAS_BACKEND="torch", PYTHONPATH=SCRIPT.parents[3])


def assert_close(found, wanted):
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=1e-4, err_msg=name)


@pytest.mark.slow
def test_losses_and_weights_are_those_of_one_process_in_two_fits(ranks):
    for told in ranks:
        alone, found = told["alone"], told["ranks"]
        assert_close(found["first"], alone["first"])
        assert_close(found["again"], alone["again"])
        for mine, wanted in zip(found["weights"], alone["weights"], strict=True):
            np.testing.assert_allclose(mine, wanted, atol=1e-4)
        assert found == ranks[0]["ranks"]  # To the last bit.


@pytest.mark.slow
def test_weights_are_those_of_one_process_with_a_short_batch_too(ranks):
    for told in ranks:
        alone, found = told["alone, padded"], told["padded"]
        for mine, wanted in zip(found["weights"], alone["weights"], strict=True):
            np.testing.assert_allclose(mine, wanted, atol=1e-4)
        # Metrics of an epoch weigh the batch that was filled up as one of so many rows: 6 for 5.
        np.testing.assert_allclose(found["again"]["loss"], alone["again"]["loss"], rtol=0.02)
        assert found == ranks[0]["padded"]


@pytest.mark.slow
def test_a_training_step_of_the_users_is_synchronised_too(ranks):
    for told in ranks:
        for mine, wanted in zip(*told["own step"], strict=True):
            np.testing.assert_allclose(mine, wanted, atol=1e-4)


@pytest.mark.slow
def test_epochs_of_so_many_steps_have_the_losses_of_one_process(ranks):
    for told in ranks:
        alone, found = told["in steps"]
        np.testing.assert_allclose(found, alone, rtol=1e-4)


@pytest.mark.slow
def test_a_gradient_that_some_ranks_lack_counts_as_zeros_there(ranks):
    world = len(ranks)
    mean = (world - 1) / 2
    wanted = [[mean] * 2, None, [1 / world], [[mean]] * 3]
    for told in ranks:
        for found, one in zip(told["gradients"], wanted, strict=True):
            assert found == (one if one is None else pytest.approx(np.array(one)))


@pytest.mark.slow
def test_callbacks_stop_all_ranks_after_the_same_epoch(ranks):
    assert 1 < ranks[0]["stopped"] < 40
    assert {told["stopped"] for told in ranks} == {ranks[0]["stopped"]}


@pytest.mark.slow
def test_other_fits_of_the_model_are_let_alone(ranks):
    assert all(told["ranks"]["plain"] for told in ranks)
    # Each rank fits arrays of its own afterwards, one rank longer than another: shared, that would never end.
    assert all(told["failed"] == "as planned" for told in ranks)


@pytest.mark.slow
def test_a_dataset_of_other_ranks_than_those_of_torch_is_refused(ranks):
    world = len(ranks)
    for told in ranks:
        assert (
            f"there are {world}, and the dataset is distributed over {world + 1} ranks"
            in (told["other world"])
        )


@pytest.mark.slow
def test_one_rank_may_evaluate_and_predict_alone_and_does_so_for_all_rows(ranks):
    for found in (ranks[0]["evaluated"], ranks[0]["predicted"]):
        assert found["part"] == found["mapped"] == found["whole"]
    assert len(ranks[0]["predicted"]["part"]) == 96
    assert not any("evaluated" in told for told in ranks[1:])
