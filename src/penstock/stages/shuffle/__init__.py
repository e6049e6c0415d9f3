"""shuffle: the rows in a seeded random order, new each epoch."""

from penstock.stages.shuffle.stage import Shuffle

__all__ = ["Shuffle"]
