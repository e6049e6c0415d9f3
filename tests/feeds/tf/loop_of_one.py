"""Data, and the loop that one process trains with, in plain NumPy: what several workers must come to as well."""

import numpy as np

BATCH = 60
EPOCHS = 3


def arrays(num_rows):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(num_rows, 4)).astype("float32")
    y = (x @ np.arange(4, dtype="float32") + 0.1 * rng.normal(size=num_rows)).astype("float32")
    return x, y[:, None]


def trained_by_one(num_rows, batch_size=BATCH):
    """Return what `trained` gives in one process, without TensorFlow."""
    x, y = arrays(num_rows)
    kernel = np.ones((4, 1), "float64")
    losses = []
    for _ in range(EPOCHS):
        losses.append([])
        for begin in range(0, num_rows, batch_size):
            rows = slice(begin, begin + batch_size)
            error = x[rows] @ kernel - y[rows]
            losses[-1].append(float(np.mean(error**2)))
            kernel -= 0.02 * 2 * x[rows].T @ error / len(error)
    return {"losses": losses, "weights": kernel.ravel().tolist()}
