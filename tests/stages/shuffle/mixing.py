"""How well rows are mixed: for the tests of shuffles in windows."""

import numpy as np


def spread(labels: np.ndarray) -> float:
    """Return how far the shares of ten labels differ between batches of 128."""
    batches = labels[: len(labels) // 128 * 128].reshape(-1, 128)
    shares = np.stack([(batches == label).mean(axis=1) for label in range(10)])
    return float(shares.std())
