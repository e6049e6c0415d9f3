"""Augment images with `map(seed=)`, a row at a time and a batch at a time.

    python examples/augmentation.py

With `seed`, the function gets a NumPy Generator as its last argument. What it draws depends on the seed, the epoch and
the row alone: another epoch augments anew, and the same epoch comes out the same with any number of threads and
processes, and after a resume.
"""

import numpy as np

import penstock as ps

images = np.random.default_rng(0).integers(0, 256, (200, 36, 36, 3), np.uint8)
labels = np.arange(200) % 10
ds = ps.from_arrays((images, labels)).shuffle(seed=0)


def augment_row(image, label, rng):
    """Return a crop of 32 x 32 from somewhere in the image, mirrored half of the time, a little brighter or darker."""
    top, left = rng.integers(0, 5, 2)
    crop = image[top : top + 32, left : left + 32]
    if rng.random() < 0.5:
        crop = crop[:, ::-1]
    brightness = rng.uniform(0.8, 1.2)
    return np.clip(crop * np.float32(brightness / 255), 0, 1), label


def augment_batch(images, labels, rng):
    """Do the same to all images of a batch at once: NumPy loops over them, and not Python."""
    count = len(images)
    tops, lefts = rng.integers(0, 5, (2, count, 1))
    rows, columns = tops + np.arange(32), lefts + np.arange(32)
    is_mirrored = rng.random((count, 1)) < 0.5
    columns = np.where(is_mirrored, columns[:, ::-1], columns)
    crops = images[np.arange(count)[:, None, None], rows[:, :, None], columns[:, None, :]]
    brightness = rng.uniform(0.8, 1.2, (count, 1, 1, 1)).astype(np.float32)
    return np.clip(crops * (brightness / 255), 0, 1), labels


by_row = ds.map(augment_row, seed=1).batch(32)  # map before batch: the function sees a row
by_batch = ds.batch(32).map(augment_batch, seed=1)  # map after batch: it sees a batch

for name, each in (("a row", by_row), ("a batch", by_batch)):
    means = [[float(x.mean()) for x, _ in each.stream(epoch=epoch)] for epoch in (0, 1, 0)]
    print(f"{name} at a time: {each.spec[0]}, {len(means[0])} batches")
    print(f"  each epoch is augmented anew: {means[0] != means[1]}")
    print(f"  the same epoch comes out the same: {means[0] == means[2]}")

# Then train on it: model.fit(by_batch.to_keras()), or: for x, y in by_batch.to_torch(): ...
