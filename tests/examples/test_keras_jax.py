"""examples/keras_jax.py: by its command, and with ranks that are killed."""

import pytest
from tests.examples.runs import by_start, check_keras

pytest.importorskip("jax")
pytest.importorskip("keras")


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_with_a_killed_rank_goes_on_with_more_and_ends_as_one_process_does(tmp_path):
    check_keras(by_start, "keras_jax.py", tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(3))
def test_six_kills_at_random_moments(tmp_path, number):
    worlds = [(3, 2, 2), (2, 2, 3), (4, 3, 1)][number]
    check_keras(by_start, "keras_jax.py", tmp_path, seed=number, worlds=worlds)
