"""examples/jax_multi_process.py: by its command, and with ranks that are killed."""

import numpy as np
import pytest
from tests.examples.runs import by_start, check_kills

pytest.importorskip("jax")
SCRIPT = "jax_multi_process.py"


def load(folder):
    with np.load(folder / "checkpoint.npz") as saved:
        return {"rows": int(saved["rows"]), "w": saved["w"], "b": saved["b"]}


@pytest.mark.slow
def test_a_run_with_a_killed_rank_goes_on_with_fewer_and_ends_as_a_whole_one(tmp_path):
    check_kills(by_start, load, SCRIPT, tmp_path, [3, 2], seed=2)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(5))
def test_ten_kills_at_random_moments(tmp_path, number):
    worlds = [[2, 2, 2], [3, 3, 2], [4, 2, 3], [2, 3, 4], [4, 3, 2]][number]
    check_kills(by_start, load, SCRIPT, tmp_path, worlds, seed=number)
