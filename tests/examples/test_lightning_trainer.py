"""examples/lightning_trainer.py: by its command, and killed in mid-epoch."""

import pytest
from tests.examples.runs import check_kills_alone, run

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

SCRIPT = "lightning_trainer.py"


def load(folder):
    return [value.numpy() for value in torch.load(folder / "weights.pt").values()]


@pytest.mark.slow
def test_it_trains_as_its_docstring_says(tmp_path):
    assert "trained for 63 steps" in run(f"examples/{SCRIPT}", tmp_path)
    assert load(tmp_path)


@pytest.mark.soak
def test_killed_runs_end_with_the_weights_of_a_whole_one(tmp_path):
    check_kills_alone(load, SCRIPT, tmp_path, [7, 12, 21])
