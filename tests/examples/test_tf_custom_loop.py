"""examples/tf_custom_loop.py: on the devices of one process, and on workers."""

import json

import pytest
from tests.feeds.tf.tf_workers import ROOT, alone, outputs, start

pytest.importorskip("tensorflow")

SCRIPT = ROOT / "examples" / "tf_custom_loop.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def losses(output):
    return [json.loads(line)["loss"] for line in output.splitlines() if line.startswith("{")]


def test_two_devices_and_two_workers_have_the_losses_of_one_device():
    found = [losses(outputs(alone(SCRIPT, "--devices", devices))[0]) for devices in (1, 2)]
    found += map(losses, outputs(start(SCRIPT, 2)))
    assert len(found[0]) == 3
    for each in found[1:]:
        assert each == pytest.approx(found[0], rel=1e-4)
