"""examples/equinox_loop.py: by its command, and killed between two epochs."""

import json

import numpy as np
import pytest
from tests.examples.runs import check_kills_alone, run

pytest.importorskip("equinox")
pytest.importorskip("optax")

SCRIPT = "equinox_loop.py"


def load(folder):
    place, values = (folder / "checkpoint.eqx").read_bytes().split(b"\n", 1)
    assert json.loads(place)["epoch"] == 3
    return [np.frombuffer(values, np.uint8)]


@pytest.mark.slow
def test_it_trains_as_its_docstring_says(tmp_path):
    assert run(f"examples/{SCRIPT}", tmp_path).count("loss") == 3
    assert load(tmp_path)[0].size


@pytest.mark.soak
def test_killed_runs_end_with_the_weights_of_a_whole_one(tmp_path):
    check_kills_alone(load, SCRIPT, tmp_path, [1, 1])
