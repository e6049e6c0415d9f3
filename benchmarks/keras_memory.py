"""How much memory `model.fit` takes besides the arrays it is given: as arrays, and as a feed.

    python benchmarks/keras_memory.py            # every backend: about two minutes
    python benchmarks/keras_memory.py --megabytes 1000 jax

Each figure is the peak of resident memory of a process of its own, while `fit` runs, over what the process had before.
The model is one layer, the batch size 32, and the first fit, of a few rows, is not counted.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

BACKENDS = ("tensorflow", "jax", "torch")
COLUMNS = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("backends", nargs="*", metavar="BACKEND", help=", ".join(BACKENDS))
    parser.add_argument("--megabytes", type=int, default=400, help="of the array x (%(default)s)")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # The process of one figure.
    chosen = parser.parse_args()
    if chosen.one:
        print(measure(chosen.megabytes, *chosen.one))
        return
    print(f"| x of {chosen.megabytes} MB | `fit(x, y)` takes | `fit(feed)` takes |\n|---|---|---|")
    for backend in chosen.backends or BACKENDS:
        for dtype in ("float32", "float64"):
            figures = [start(chosen.megabytes, backend, dtype, how) for how in ("arrays", "feed")]
            print(f"| {backend}, {dtype} | " + " | ".join(f"{one} MB" for one in figures) + " |")


def start(megabytes: int, backend: str, dtype: str, how: str) -> int:
    """Measure in a process of its own; return MB."""
    command = [sys.executable, __file__, "--megabytes", str(megabytes), "--one", dtype, how]
    quiet = {"KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(command, env=os.environ | quiet, check=True, capture_output=True)
    return int(done.stdout.split()[-1])


def measure(megabytes: int, dtype: str, how: str) -> int:
    """Return by how many MB the peak during `fit` is above what there was before."""
    import keras

    import penstock as ps

    x = np.ones((megabytes * 10**6 // COLUMNS // np.dtype(dtype).itemsize, COLUMNS), dtype)
    y = np.zeros(len(x), "float32")
    model = keras.Sequential([keras.Input((COLUMNS,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")

    def fit(x: np.ndarray, y: np.ndarray) -> None:
        if how == "arrays":
            model.fit(x, y, batch_size=32, verbose=0)
        else:
            ds = ps.from_arrays((x, y)).shuffle(seed=0).batch(32)
            model.fit(ds.with_options(memory="64MB").to_keras(), verbose=0)

    fit(x[:3200], y[:3200])
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # The peak is counted anew from here.
    fit(x, y)
    return round((memory("VmHWM") - before) / 1e6)


def memory(field: str) -> int:
    """Return one of the figures that Linux has of this process, in bytes."""
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) * 1024


if __name__ == "__main__":
    main()
