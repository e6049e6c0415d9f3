"""W11: how long an import takes, and the first batch of W1."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import arrays
import numpy as np
import w01_arrays_in_ram as w01
from harness import Case, Contender, Round, value_at_most
from measure import Sample

# Nothing is imported before NumPy, so that what penstock shares with it counts for neither.
TIMED_IMPORT = """
import time
import numpy
began = time.perf_counter()
import {module}
{touch}
print(time.perf_counter() - began)
"""

NUMPY_ITSELF = """
import time
began = time.perf_counter()
import numpy
print(time.perf_counter() - began)
"""


def _import(script: str) -> Callable[[Path], Round]:
    def start(_: Path) -> Round:
        def one_round() -> Sample:
            finished = subprocess.run(
                [sys.executable, "-I", "-c", script], capture_output=True, text=True, check=False
            )
            if finished.returncode != 0:
                problem = finished.stderr.strip().splitlines()[-1]
                if "'penstock" in problem and problem.startswith(("ModuleNot", "AttributeE")):
                    raise NotImplementedError(problem)
                raise RuntimeError(problem)
            return Sample(float(finished.stdout))

        # Once before the rounds: what was never run has no bytecode yet.
        one_round()
        return one_round

    return start


def _first_batch(module: str, make: Callable[[], Iterable]) -> Callable[[Path], Round]:
    """Return a round that builds the pipeline and takes one batch; the import isn't counted."""

    def start(_: Path) -> Round:
        __import__(module)
        made = arrays.make()

        def one_round() -> Sample:
            arrays.make, kept = (lambda: made), arrays.make
            try:
                began = time.perf_counter()
                batches = iter(make())
                next(batches)
                return Sample(time.perf_counter() - began)
            finally:
                arrays.make = kept

        return one_round

    return start


def _numpy_batches() -> Iterable:
    x, y = arrays.make()
    order = np.random.default_rng(0).permutation(arrays.NUM_ROWS)
    for first in range(0, arrays.NUM_ROWS, arrays.BATCH_SIZE):
        rows = order[first : first + arrays.BATCH_SIZE]
        yield x.take(rows, axis=0), y.take(rows)


def _imported(name: str, module: str, touch: str = "") -> Contender:
    script = TIMED_IMPORT.format(module=module, touch=touch)
    return Contender(name, f"import {module}, NumPy already there", _import(script))


def _first(name: str, how: str, module: str, make: Callable[[], Iterable]) -> Contender:
    return Contender(name, how, _first_batch(module, make), fresh=True)


CASES = (
    Case(
        name="w11-import",
        title="import, over NumPy's own, in a new interpreter each time",
        unit="s",
        higher_is_better=False,
        contenders=(
            # Touched, so that an empty package, or one that puts its imports off, is not fast.
            _imported("penstock", "penstock", touch="penstock.from_arrays"),
            Contender("NumPy itself", "the bare limit: import numpy", _import(NUMPY_ITSELF)),
            _imported("TensorFlow", "tensorflow"),
            _imported("torch", "torch.utils.data"),
            _imported("JAX", "jax"),
            _imported("Grain", "grain"),
        ),
        bars=(value_at_most(0.1, "import penstock within 0.1 s over NumPy's", unit="s"),),
    ),
    Case(
        name="w11-first",
        title="first batch of W1: pipeline built and one batch taken, in a new process each time",
        unit="s",
        higher_is_better=False,
        contenders=(
            _first("penstock", "as in w1", "penstock", w01.penstock_dataset),
            _first("plain NumPy", "the bare limit: permutation, one take", "numpy", _numpy_batches),
            _first("tf.data", "as in w1", "tensorflow", w01.tf_data_dataset),
            _first("torch, default", "as in w1", "torch", w01.torch_default_loader),
            _first("torch, BatchSampler", "as in w1", "torch", w01.torch_batch_sampler_loader),
            _first("Grain", "as in w1", "grain", w01.grain_dataset),
        ),
        bars=(value_at_most(0.02, "first batch within 20 ms", unit="s"),),
    ),
)
