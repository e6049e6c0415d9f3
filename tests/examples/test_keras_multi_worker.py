"""examples/keras_multi_worker.py: by its one command, and through the death of a worker."""

import re
import signal
import time

import pytest
from tests.feeds.tf.tf_workers import LIMIT, ROOT, alone, results, start

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

SCRIPT = ROOT / "examples" / "keras_multi_worker.py"
EPOCHS = 8
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(folder, workers):
    """Return the figures that the first worker prints."""
    given = ("--workers", workers, "--folder", folder, "--epochs", EPOCHS)
    return results(alone(SCRIPT, *given))[0]


def test_the_others_end_soon_after_one_is_killed_and_fewer_go_on_from_the_checkpoint(tmp_path):
    one = run(tmp_path / "one", 1)
    killed = tmp_path / "killed"
    killed.mkdir()
    (killed / "rows.npz").symlink_to(tmp_path / "one" / "rows.npz")
    saved, end = killed / "checkpoint" / "checkpoint.npz", time.monotonic() + LIMIT
    with start(SCRIPT, 3, "--folder", killed, "--epochs", 1000) as group:
        while not saved.exists() and all(worker.poll() is None for worker in group.processes):
            assert time.monotonic() < end
            time.sleep(0.01)  # Nothing but the file tells from outside that an epoch is under way.
        group.processes[1].kill()
        for rank, ended in enumerate(group.wait(60)):
            assert ended.returncode == (-signal.SIGKILL if rank == 1 else 1), group.shown()
            if rank != 1:
                assert "Collective ops is aborted by" in ended.errors
                # The one that was killed, or the other one, if that ended first.
                assert re.search(r"/job:worker/replica:0/task:\d", ended.errors), group.shown()
    # Two workers, by the one command of the example.
    assert run(killed, 2) == pytest.approx(one, rel=1e-3)
