"""Keras, tf_keras and loops of one's own under MultiWorkerMirroredStrategy: the rows and figures of one process."""

import importlib.metadata
from pathlib import Path

import numpy as np
import pytest
from tests.feeds.tf.tf_workers import remembered, results, start

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

CHECKS = Path(__file__).parent / "worker_checks.py"
IS_OLD = importlib.metadata.version("keras").startswith("3.7.")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
trains_as_one = pytest.mark.skipif(
    IS_OLD, reason="Keras 3.7 adds gradients of replicas up; a test of its own sees it refused"
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a function that gives what each of so many workers has found: all checks share these processes."""

    def run(count):
        folder = tmp_path_factory.mktemp("workers")
        found = results(start(CHECKS, count, folder))
        for rank, one in enumerate(found):
            if "pad" in one:
                one["predicted"] = np.load(folder / f"rank{rank}.npy")
        return found

    return remembered(run)


@pytest.fixture(params=[2, 3])
def workers(request, runs):
    return runs(request.param)


@pytest.fixture
def two(runs):
    return runs(2)


def close(found, wanted, within=1e-3):
    return np.allclose(
        np.concatenate([np.ravel(each) for each in found]),
        np.concatenate([np.ravel(each) for each in wanted]),
        rtol=within,
        atol=within,
    )


@pytest.mark.skipif(not IS_OLD, reason="Keras takes the mean of gradients since 3.8")
def test_keras_that_adds_gradients_up_is_refused(workers):
    for found in workers:
        assert "it adds up the gradients of replicas where their mean is due" in found["sums"]
        assert "Install keras>=3.8" in found["sums"]


@trains_as_one
def test_fit_ends_with_the_weights_of_one_process(workers):
    for found in workers:
        assert close(found["pad"]["weights"], found["pad by one"]["weights"], 1e-5)
        # The last batch of 41 rows counts as 42 in the mean of an epoch.
        padded, one = found["pad"]["history"]["loss"], found["pad by one"]["history"]["loss"]
        assert close([padded], [one], 5e-3)


@trains_as_one
def test_evaluate_gives_the_figures_of_one_process(workers):
    for found in workers:
        one = found["pad by one"]
        assert close([found["pad"]["evaluate"]], [one["evaluate"]], 1e-5)
        for name in ("val_loss", "val_mae", "val_mse"):
            assert close([found["pad"]["history"][name]], [one["history"][name]], 1e-5)


@trains_as_one
def test_predict_gives_every_row_once_in_the_order_of_the_dataset(workers):
    for found in workers:
        wanted = found["pad by one"]["predict"]
        assert len(found["pad"]["predict"]) == len(wanted)
        assert close(found["pad"]["predict"], wanted, 1e-5)


@trains_as_one
def test_batches_that_are_whole_give_the_losses_and_weights_of_one_process(two):
    for found in two:
        one = found["whole by one"]
        assert close(found["whole"]["weights"], one["weights"], 1e-5)
        assert close([found["whole"]["history"]["loss"]], [one["history"]["loss"]], 1e-5)


@trains_as_one
def test_a_rank_may_have_no_row_of_the_last_batch(two):
    for found in two:
        one = found["one row by one"]
        assert close(found["one row"]["weights"], one["weights"], 1e-5)
        assert close([found["one row"]["evaluate"]], [one["evaluate"]], 1e-5)
        assert len(found["one row"]["predict"]) == 181
        assert close(found["one row"]["predict"], one["predict"], 1e-5)


@trains_as_one
def test_predict_to_and_normalization_see_all_rows(workers):
    for found in workers:
        wanted = found["pad by one"]
        assert found["pad"]["predict_to"] == len(wanted["predict"])
        assert close(found["predicted"], wanted["predict"], 1e-5)
        assert close(found["pad"]["normalization"], wanted["mean"], 1e-5)


@trains_as_one
def test_a_run_that_was_stopped_goes_on_from_the_checkpoint_of_the_first_rank(two):
    for found in two:
        assert found["resumed"]["stopped"] == "RuntimeError: stopped"
        assert close(found["resumed"]["weights"], found["pad"]["weights"], 1e-6)


@trains_as_one
def test_ranks_that_would_go_on_from_something_else_than_the_first_say_so(two):
    ours, *others = [found["elsewhere"] for found in two]
    assert ours[0] == "RuntimeError: begun"
    assert "the checkpoint is damaged" in ours[1]
    for rank, found in enumerate(others, 1):
        assert f"StateError: rank {rank} would go on from nothing in" in found[0]
        assert "rank 0 goes on from epoch 3, step 0" in found[0]
        assert "StateError: rank 0 could not load" in found[1]


def test_a_loop_over_a_distributed_dataset_trains_as_one_process_does(workers, one_loop):
    for found in workers:
        assert close(found["loop"]["losses"], one_loop["losses"], 1e-5)
        assert close(found["loop"]["weights"], one_loop["weights"], 1e-5)


def test_tf_keras_trains_as_one_process_does(workers, one_loop):
    for found in workers:
        assert close(found["tf_keras"], one_loop["weights"], 1e-5)


@pytest.fixture(scope="module")
def one_loop():
    from tests.feeds.tf.loop_of_one import trained_by_one

    return trained_by_one(221)


@pytest.mark.parametrize("kind", ["plain", "mapped"])
def test_workers_share_the_rows_of_a_dataset_that_is_not_distributed(workers, kind):
    steps = [found["rows"][kind] for found in workers]
    for number, begin in enumerate(range(0, 130, 60)):
        rows = [row for found in steps for row in found[number]]
        assert sorted(rows) == list(range(begin, min(begin + 60, 130)))
    assert {len(found) for found in steps} == {3}


@pytest.mark.parametrize("kind", ["distributed", "by function"])
def test_the_batches_of_a_distributed_dataset_are_not_cut_again(workers, kind):
    world = len(workers)
    for rank, found in enumerate(workers):
        assert found["rows"][kind] == [
            list(range(begin + rank, begin + 60, world)) for begin in (0, 60)
        ]


@trains_as_one
def test_a_dataset_that_is_not_distributed_is_refused_with_the_cure(two):
    for found in two:
        refused = found["refused"]
        assert (
            "under MultiWorkerMirroredStrategy every worker would be given all rows"
            in refused["plain to_keras"]
        )
        assert (
            'right: ds.batch(60).distribute(uneven="pad").to_keras()' in refused["plain to_keras"]
        )
        assert (
            'right: model.fit(ds.batch(60).distribute(uneven="pad").to_keras())'
            in refused["plain to_tf"]
        )
        for name in ("another world", "another world of to_tf"):
            assert (
                "was distributed as rank 0 of 1, and for MultiWorkerMirroredStrategy this process is worker"
                in refused[name]
            )
        assert (
            "can't run several steps at once under MultiWorkerMirroredStrategy"
            in refused["steps_per_execution"]
        )


@trains_as_one
def test_keras_still_needs_to_be_mended(two):
    """If this fails, Keras is mended: lower LAST_BROKEN in multi_worker.py, or leave the mend out."""
    for found in two:
        assert "Attempt to convert a value (PerReplica" in found["upstream"]["build"]
        assert "Invalid reduction dimension 0" in found["upstream"]["reduce"]
