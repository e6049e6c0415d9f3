"""A run that is killed at any moment and started again ends with the weights of one that was not."""

import random
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from feeds.keras.test_feed import BACKENDS, environment

SCRIPT = Path(__file__).with_name("training.py")
KINDS = {
    backend: ["rows", "filter", "steps", *([] if backend == "torch" else ["several"])]
    for backend in BACKENDS
}
NUM_STEPS = {"rows": 36, "filter": 36, "steps": 21, "several": 12}


def start(folder, backend, kind):
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), str(folder), kind],
        env=environment(backend),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(folder, backend, kind):
    process = start(folder, backend, kind)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-4000:]
    with np.load(folder / "final.npz") as saved:
        return {name: saved[name] for name in saved.files}


def kill_after(folder, backend, kind, steps):
    """Start a run and kill it once it has done so many steps; say whether it was still running."""
    process = start(folder, backend, kind)
    for _ in range(steps):
        if not process.stdout.readline():
            break
    process.kill()
    process.communicate(timeout=60)
    return process.returncode == -9


@cache
def uninterrupted(backend, kind, parent):
    folder = parent / f"whole-{backend}-{kind}"
    folder.mkdir(parents=True)
    return finish(folder, backend, kind)


def check(folder, parent, backend, kind, kills):
    expected = uninterrupted(backend, kind, parent)
    for steps in kills:
        kill_after(folder, backend, kind, steps)
    found = finish(folder, backend, kind)
    assert set(found) == set(expected)
    for name in expected.keys() - {"losses"}:
        assert np.array_equal(found[name], expected[name]), (name, kind, kills)
    # The epochs that the last process finished report what they would have without the kill.
    ours, theirs = found["losses"].reshape(2, -1), expected["losses"].reshape(2, -1)
    assert np.array_equal(ours, theirs[:, theirs.shape[1] - ours.shape[1] :])
    if kind != "steps":
        last = len(found["seen"]) - (7 if kind == "filter" else 0)
        assert (found["seen"][:last] == 3).all()
        assert (found["seen"][last:] == 0).all()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_run_killed_three_times_ends_with_the_same_weights(tmp_path, backend):
    pytest.importorskip("keras")
    kind = {"tensorflow": "several", "jax": "filter", "torch": "rows"}[backend]
    moments = random.Random(backend)
    kills = [moments.randrange(1, NUM_STEPS[kind] // 2) for _ in range(3)]
    folder = tmp_path / "run"
    folder.mkdir()
    check(folder, tmp_path, backend, kind, kills)


@pytest.mark.soak
@pytest.mark.parametrize("kind_number", range(4))
@pytest.mark.parametrize("backend", BACKENDS)
def test_twenty_kills_at_random_moments(tmp_path, backend, kind_number):
    if kind_number >= len(KINDS[backend]):
        pytest.skip("torch has no steps_per_execution: Keras refuses it")
    kind = KINDS[backend][kind_number]
    moments = random.Random(f"{backend}{kind}")
    for number in range(20 // len(KINDS[backend])):  # The first of them is killed twice.
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        kills = [moments.randrange(1, NUM_STEPS[kind]) for _ in range(2 if number == 0 else 1)]
        check(folder, tmp_path, backend, kind, kills)
