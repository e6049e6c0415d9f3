"""shuffle: the rows in a seeded random order, new each epoch."""
