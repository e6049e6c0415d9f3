"""examples/flax_nnx.py: by its command, and killed between two epochs."""

import pickle

import pytest
from tests.examples.runs import check_kills_alone, run

jax = pytest.importorskip("jax")
pytest.importorskip("flax")
pytest.importorskip("optax")

SCRIPT = "flax_nnx.py"


def load(folder):
    state, place = pickle.loads((folder / "checkpoint.pkl").read_bytes())
    assert (place["epoch"], place["element"]) == (3, 0)
    return jax.tree.leaves(state)


@pytest.mark.slow
def test_it_trains_and_has_nothing_left_to_do_afterwards(tmp_path):
    assert run(f"examples/{SCRIPT}", tmp_path).count("loss") == 3
    assert load(tmp_path)


@pytest.mark.soak
def test_killed_runs_end_with_the_weights_of_a_whole_one(tmp_path):
    check_kills_alone(load, SCRIPT, tmp_path, [1, 1])
