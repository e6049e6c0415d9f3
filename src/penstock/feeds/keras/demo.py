"""The training half of `penstock demo`: a Keras model on files, in a process of its own."""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

BATCH_SIZE = 512
NUM_CLASSES = 10


def choose_backend() -> str:
    """Return Keras' backend: the one that is set, or the first that is installed."""
    chosen = os.environ.get("KERAS_BACKEND")
    if chosen:
        return chosen
    for name in ("jax", "torch", "tensorflow"):
        if importlib.util.find_spec(name) is not None:
            return name
    raise ImportError(
        "the demo trains with Keras, which needs a backend: pip install 'penstock[keras,jax]'"
    )


def train(folder: Path, memory: int) -> dict[str, object]:
    """Train one epoch on `x.npy` and `y.npy` of a folder; return what happened."""
    import keras
    import numpy as np

    from penstock.makers import from_arrays

    arrays = [np.load(folder / name, mmap_mode="r") for name in ("x.npy", "y.npy")]
    held_out = arrays[0].shape[0] // 50
    rows = from_arrays(tuple(arrays)).with_options(memory=memory)
    keras.utils.set_random_seed(0)
    model = keras.Sequential([keras.Input((arrays[0].shape[1],)), keras.layers.Dense(NUM_CLASSES)])
    model.compile(
        optimizer=keras.optimizers.Adam(0.01),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    feed = rows.skip(held_out).shuffle(seed=0).batch(BATCH_SIZE).to_keras()
    started = time.perf_counter()
    model.fit(feed, verbose=0)
    seconds = time.perf_counter() - started
    report = feed.report()
    assert report is not None, "an epoch was read"
    accuracy = model.evaluate(rows.take(held_out).batch(BATCH_SIZE).to_keras(), verbose=0)[1]
    return {
        "backend": keras.backend.backend(),
        "seconds": seconds,
        "num_rows": arrays[0].shape[0] - held_out,
        "waited_seconds": report.waited_seconds,
        "peak_nbytes": report.peak_nbytes,
        "accuracy": float(accuracy),
        "peak_rss": _peak_rss(),
    }


def _peak_rss() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def main() -> None:
    """Join a cgroup if one is named, train, and write what happened as JSON to standard output."""
    group = os.environ.pop("PENSTOCK_DEMO_CGROUP", "")
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    os.environ["KERAS_BACKEND"] = choose_backend()
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    result = train(Path(sys.argv[1]), int(sys.argv[2]))
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
