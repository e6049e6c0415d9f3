"""examples/keras_multi_worker.py: by its one command, and through the death of a worker."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from tests.feeds.tf.tf_workers import LIMIT, ROOT, environment, finish, start

pytest.importorskip("tensorflow")
pytest.importorskip("keras")

SCRIPT = ROOT / "examples" / "keras_multi_worker.py"
EPOCHS = 8
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def run(folder, workers):
    """Return the figures that the first worker prints."""
    command = [sys.executable, str(SCRIPT), "--workers", str(workers), "--folder", str(folder)]
    ended = subprocess.run(
        [*command, "--epochs", str(EPOCHS)],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr[-5000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def one(folder):
    return run(folder / "one", 1)


def test_two_workers_come_to_the_figures_of_one(folder, one):
    assert run(folder / "two", 2) == pytest.approx(one, rel=1e-3)


def test_the_others_end_soon_after_one_is_killed_and_fewer_go_on_from_the_checkpoint(folder, one):
    killed = folder / "killed"
    killed.mkdir()
    (killed / "rows.npz").symlink_to(folder / "one" / "rows.npz")
    workers = start(SCRIPT, 3, "--folder", killed, "--epochs", 1000)
    saved, end = killed / "checkpoint" / "checkpoint.npz", time.monotonic() + LIMIT
    while not saved.exists() and all(one.poll() is None for one in workers):
        assert time.monotonic() < end
        time.sleep(0.01)  # Nothing but the file tells from outside that an epoch is under way.
    workers[1].send_signal(signal.SIGKILL)
    begun = time.monotonic()
    ended = finish(workers, limit=60)
    assert time.monotonic() - begun < 60
    for rank, (code, output, errors) in enumerate(ended):
        assert code == (-signal.SIGKILL if rank == 1 else 1), (rank, output, errors[-5000:])
        if rank != 1:
            assert "Collective ops is aborted by" in errors
            # The one that was killed, or the other one, if that ended first.
            assert re.search(r"/job:worker/replica:0/task:\d", errors), errors[-5000:]
    assert run(killed, 2) == pytest.approx(one, rel=1e-3)
