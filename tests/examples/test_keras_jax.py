"""examples/keras_jax.py: by its command, and with ranks that are killed."""

import pytest
from tests.examples.runs import by_start, check_keras, check_keras_kills

pytest.importorskip("jax")
pytest.importorskip("keras")


@pytest.mark.slow
def test_one_process_goes_on_from_what_two_have_saved(tmp_path):
    check_keras(by_start, "keras_jax.py", tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
def test_a_run_with_killed_ranks_ends_as_a_whole_one(tmp_path, seed):
    check_keras_kills(by_start, "keras_jax.py", tmp_path, seed)
