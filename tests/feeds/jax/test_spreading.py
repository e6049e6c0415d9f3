"""Batches spread by a sharding: over devices of one process, and over processes that train as one would."""

from pathlib import Path

import numpy as np
import pytest
from tests.processes import run_ranks

pytest.importorskip("jax")

SCRIPT = Path(__file__).with_name("one_rank.py")
ROOT = SCRIPT.parents[3]


def run(world, devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return run_ranks(SCRIPT, world, XLA_FLAGS=flags, PYTHONPATH=ROOT)


@pytest.fixture(scope="module")
def one_process():
    return run(1, 8)[0]


@pytest.mark.slow
def test_batches_are_the_same_however_they_are_spread(one_process):
    found = one_process["shardings_of_one_process"]
    places = {
        "data": ["(6, 8)", "(6,)", "(6,)"],
        "both": ["(3, 8)", "(3,)", "(3,)"],
        "all over": ["(24, 8)", "(24,)", "(24,)"],
        "each": ["(6, 4)", "(6,)", "(24,)"],
    }
    for name, (rows, shapes) in found["spread"].items():
        assert rows == found["plain"]
        assert shapes == places.pop(name)
    assert not places


@pytest.mark.slow
def test_what_can_not_be_spread_is_refused_with_the_cure(one_process):
    errors = one_process["errors_of_one_process"]
    whole = "cuts field 'n' into 8 parts, so that batches must divide by"
    assert f"{whole} 8, got 30 rows: batch(24) or batch(32) would do" in errors["30 rows"]
    assert f"{whole} 8, got 5 rows: batch(8) would do" in errors["5 rows"]
    assert f"{whole} 16, got 24 rows: batch(16) or batch(32)" in errors["its part"]
    short = "a batch has 5 rows, and the sharding cuts field 'n' into 8 parts"
    assert errors["short"].startswith(f"ValueError: {short}")
    assert (
        'drop_remainder=True), or fill it up, weighed: .distribute(uneven="pad"' in errors["short"]
    )
    assert errors["short, known by a map"] == errors["short"]
    assert "SpecMismatchError: a batch has 18 rows" in errors["short, unknown"]
    assert "fill it up to a whole one: static=True in distribute" in errors["padded"]
    assert "'value' is ArraySpec((24, 7), float32), and can't be spread" in errors["7 columns"]
    assert "it has fewer axes" in errors["one axis"]
    assert "must be a jax.Device, a jax.sharding.Sharding, or a nest" in errors["a name"]
    assert "or a nest of them like a batch, got {'x'" in errors["a nest"]
    fine = ["its part fits", "static", "short but left out", "short but not taken"]
    assert [errors[name] for name in fine] == ["no error"] * 4


@pytest.mark.slow
def test_a_batch_that_is_spread_stays_what_it_was(one_process):
    assert one_process["reused_memory"]


@pytest.fixture(scope="module", params=[(2, 2), (3, 1)], ids=["2 of 2 devices", "3 of 1 device"])
def ranks(request):
    return run(*request.param)


@pytest.mark.slow
def test_ranks_train_as_one_process_does_with_a_short_batch_too(ranks):
    for told in ranks:
        losses = told["losses"]
        alone = losses.pop("alone")
        assert "static True" in losses
        for name, found in losses.items():
            assert len(found["losses"]) == len(alone["losses"]) == 15
            np.testing.assert_allclose(found["losses"], alone["losses"], rtol=1e-4, err_msg=name)
            np.testing.assert_allclose(found["w"], alone["w"], rtol=1e-4)
        assert losses["static True"]["compiled"] == 1
    assert all(told["losses"] == ranks[0]["losses"] for told in ranks)


@pytest.mark.slow
def test_a_global_batch_has_the_rows_of_one_process_rank_after_rank(ranks):
    world = len(ranks)
    for told in ranks:
        found = told["rows_of_global_batches"]
        for rows, batch in zip(found["found"], found["batches"], strict=True):
            assert rows == [row for rank in range(world) for row in batch[rank::world]]


@pytest.mark.slow
def test_processes_may_share_a_rank(ranks):
    batches = ranks[0]["rows_of_global_batches"]["batches"]
    for told in ranks:
        found = told["a_rank_of_several_processes"]
        assert found["rows"] == found["spread"] == batches
        assert found["same"]


@pytest.mark.slow
def test_ranks_that_do_not_fit_the_sharding_are_refused(ranks):
    world = len(ranks)
    for rank, told in enumerate(ranks):
        errors = told["errors"]
        assert "right: ds.batch(64).distribute().to_jax(" in errors["not distributed"]
        assert f"write .distribute(rank={rank}, world={world})" in errors["other rank"]
        assert "this process is rank 0 of 1" in errors["replicated"]
        assert "field 'n' does not have the" in errors["mixed"]
        if rank:
            assert "field 'n' does not have the" in errors["fewer"]
        assert errors["constants"] == errors["local"] == "no error"
    is_cut = world == 2  # 5 rows are filled up to 6, and 4 devices can't share them.
    assert ("static=True in distribute" in ranks[0]["errors"]["padded"]) == is_cut
