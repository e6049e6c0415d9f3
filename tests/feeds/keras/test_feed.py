"""The Keras suite on each backend, each in a process of its own: Keras fixes its backend when imported."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SUITE = Path(__file__).parent / "suite"
BACKENDS = ("tensorflow", "jax", "torch")
LONG = ("keras_checkpoint.py", "keras_feed.py")
# Keras and its backend take seconds to import: what is short shares a process.
PARTS = {name: [name] for name in LONG} | {
    "the rest": sorted({path.name for path in SUITE.glob("keras_*.py")} - set(LONG))
}


def environment(backend):
    # One thread: frameworks that share few cores with other tests spend their time waiting for each other.
    return os.environ | {
        "KERAS_BACKEND": backend,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_keras(backend, part):
    pytest.importorskip("keras")
    # Frameworks warn of much when imported; conftest.py there turns Keras' own warnings into errors.
    options = [
        "-q",
        "-p",
        "no:cacheprovider",
        "-o",
        "filterwarnings=",
        "-o",
        "python_files=keras_*.py",
    ]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(str(SUITE / name) for name in PARTS[part])],
        env=environment(backend),
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
