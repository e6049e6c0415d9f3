"""examples/tf_custom_loop.py: on the devices of one process, and on workers."""

import json
import subprocess
import sys

import pytest
from tests.feeds.tf.tf_workers import LIMIT, ROOT, environment, finish, start

pytest.importorskip("tensorflow")

SCRIPT = ROOT / "examples" / "tf_custom_loop.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def losses(output):
    return [json.loads(line)["loss"] for line in output.splitlines() if line.startswith("{")]


def test_two_devices_and_two_workers_have_the_losses_of_one_device():
    found = []
    for devices in (1, 2):
        command = [sys.executable, str(SCRIPT), "--devices", str(devices)]
        ended = subprocess.run(
            command,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        assert ended.returncode == 0, ended.stderr[-5000:]
        found.append(losses(ended.stdout))
    for code, output, errors in finish(start(SCRIPT, 2)):
        assert code == 0, errors[-5000:]
        found.append(losses(output))
    assert len(found[0]) == 3
    for each in found[1:]:
        assert each == pytest.approx(found[0], rel=1e-4)
