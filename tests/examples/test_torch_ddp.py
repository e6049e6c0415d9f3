"""examples/torch_ddp.py: by its command, and with ranks that are killed."""

import pytest
from tests.examples.runs import by_torchrun, check_kills

torch = pytest.importorskip("torch")
SCRIPT = "torch_ddp.py"


def load(folder):
    saved = torch.load(folder / "checkpoint.pt")
    return {"rows": int(saved["rows"])} | {k: v.numpy() for k, v in saved["model"].items()}


@pytest.mark.slow
def test_a_run_with_a_killed_rank_goes_on_with_fewer_and_ends_as_a_whole_one(tmp_path):
    check_kills(by_torchrun, load, SCRIPT, tmp_path, [3, 2], seed=1)


@pytest.mark.soak
@pytest.mark.parametrize("number", range(5))
def test_ten_kills_at_random_moments(tmp_path, number):
    worlds = [[2, 2, 2], [3, 3, 2], [4, 2, 3], [2, 3, 4], [4, 3, 2]][number]
    check_kills(by_torchrun, load, SCRIPT, tmp_path, worlds, seed=number)
