"""Keras on JAX in several processes trains as one process does."""

from pathlib import Path

import numpy as np
import pytest
from tests.processes import run_ranks

SCRIPT = Path(__file__).with_name("jax_rank.py")


def check(found, alone, *, is_padded):
    for mine, wanted in zip(found["weights"], alone["weights"], strict=True):
        np.testing.assert_allclose(mine, wanted, atol=1e-4)
    np.testing.assert_allclose(found["figures"], alone["figures"], rtol=1e-4)
    assert len(found["predicted"]) == len(alone["predicted"])
    for name in ("predicted", "written") if found["written"] else ("predicted",):
        np.testing.assert_allclose(found[name], alone["predicted"], atol=1e-4)
    for name, values in alone["history"].items():
        # Metrics of an epoch weigh the batch that was filled up as if it were whole.
        np.testing.assert_allclose(found["history"][name], values, rtol=0.05 if is_padded else 1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("world", "devices"), [(2, 2), (3, 1)])
def test_ranks_of_data_parallel_have_the_losses_of_one_process(world, devices):
    pytest.importorskip("keras")
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = {"KERAS_BACKEND": "jax", "PYTHONPATH": SCRIPT.parents[3], "XLA_FLAGS": flags}
    ranks = run_ranks(SCRIPT, world, **environment)
    assert ranks[-1]["ranks"]["written"]
    for told in ranks:
        for found, alone in (("ranks", "alone"), ("padded", "alone, padded")):
            check(told[found], told[alone], is_padded=found == "padded")
        if devices > 1:
            errors = told["errors"]
            assert f"has 2 rows, and each of {world} ranks gives {24 // world}" in errors["fewer"]
            assert "has 1 rows, and keras.distribution spreads them over 2" in errors["evaluated"]
            assert "fill it up to a whole one: static=True" in errors["short"]
            assert "the global batch must divide by 4: batch(8)" in errors["odd"]
