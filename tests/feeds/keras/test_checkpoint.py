"""A run that is killed at any moment and started again ends with the weights of one that was not."""

import random
import subprocess
import sys
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


def start(backend, kind, *folders):
    for folder in folders:
        folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, str(SCRIPT), kind, *map(str, folders)],
        env=environment(backend),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def final(folder):
    with np.load(folder / "final.npz") as saved:
        return {name: saved[name] for name in saved.files}


def finish(backend, kind, folder):
    process = start(backend, kind, folder)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors[-4000:]
    return final(folder)


def kill_after(backend, kind, steps, *folders):
    """Start a process that trains in each of the folders; kill it after so many steps in the last, if there are."""
    process = start(backend, kind, *folders)
    for line in process.stdout:
        steps -= line.strip() == folders[-1].name
        if not steps:
            break
    process.kill()
    _, errors = process.communicate(timeout=60)
    assert process.returncode in (0, -9), errors[-4000:]


def check(folder, backend, kind, kills):
    """Compare a run that is killed so often with one that is not, which the first of the processes does before."""
    whole = folder.with_name(f"{folder.name}-whole")
    for number, steps in enumerate(kills):
        kill_after(backend, kind, steps, *([] if number else [whole]), folder)
    found, expected = finish(backend, kind, folder), final(whole)
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
    check(tmp_path / "run", backend, kind, kills)


@pytest.mark.soak
@pytest.mark.parametrize("kind_number", range(4))
@pytest.mark.parametrize("backend", BACKENDS)
def test_twenty_kills_at_random_moments(tmp_path, backend, kind_number):
    if kind_number >= len(KINDS[backend]):
        pytest.skip("torch has no steps_per_execution: Keras refuses it")
    kind = KINDS[backend][kind_number]
    moments = random.Random(f"{backend}{kind}")
    for number in range(20 // len(KINDS[backend])):  # The first of them is killed twice.
        kills = [moments.randrange(1, NUM_STEPS[kind]) for _ in range(2 if number == 0 else 1)]
        check(tmp_path / f"run{number}", backend, kind, kills)
