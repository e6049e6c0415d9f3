"""examples/ray_torch.py: by its command, with workers that are killed."""

import pytest
from tests.examples.ray_runs import batches, check_a_killed_worker, check_two_killed_workers

torch = pytest.importorskip("torch")
pytest.importorskip("ray.train")


def trained_alone(data):
    """Return the weights after a loop in plain PyTorch, without workers."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for x, y in batches(data):
        loss = ((model(torch.from_numpy(x))[:, 0] - torch.from_numpy(y)) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.state_dict()


def check_weights(data, checkpoint):
    found = torch.load(checkpoint / "saved.pt")["model"]
    for name, wanted in trained_alone(data).items():
        torch.testing.assert_close(found[name], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_with_a_killed_worker_goes_on_and_trains_on_each_row_once(tmp_path):
    check_weights(*check_a_killed_worker("ray_torch.py", tmp_path))


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_a_run_with_killed_workers_goes_on_with_fewer_and_trains_on_each_row_once(tmp_path):
    check_weights(*check_two_killed_workers("ray_torch.py", tmp_path))
