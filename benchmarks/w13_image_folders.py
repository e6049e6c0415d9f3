"""W13: folders of images, decoded, resized to 224 x 224, shuffled, batch 32."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import throughput

NUM_IMAGES = 1_600
NUM_CLASSES = 4
SIZE = 224
BATCH_SIZE = 32


def photograph(height: int, width: int, rng: np.random.Generator) -> np.ndarray:
    """Return what packs like a photograph: power falls with frequency, colours go together, things have edges."""
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)[None]
    power = 1 / np.maximum(np.hypot(down, across), 1 / max(height, width)) ** 1.3

    def texture() -> np.ndarray:
        phases = np.exp(2j * np.pi * rng.random(power.shape))
        made = np.fft.irfft2(power * phases, (height, width))
        return made / made.std()

    light = texture()
    image = np.stack([110 + 50 * light + 18 * texture() for _ in range(3)], axis=-1)
    for _ in range(6):
        top, left = rng.integers(0, height), rng.integers(0, width)
        part = image[top : top + rng.integers(10, 90), left : left + rng.integers(10, 90)]
        part[:] = 0.3 * part + rng.integers(0, 180, 3)
    return np.clip(image, 0, 255).astype(np.uint8)


def _prepare(directory: Path, *, kind: str, mode: str, sides: tuple[int, int]) -> None:
    from PIL import Image

    rng = np.random.default_rng(0)
    mean = 0.0
    for number in range(NUM_IMAGES):
        height, width = rng.integers(sides[0], sides[1] + 1, 2)
        folder = directory / "images" / f"class-{number % NUM_CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        image = Image.fromarray(photograph(height, width, rng)).convert(mode)
        image.save(folder / f"{number:05}.{kind}", **({"quality": 90} if kind == "jpg" else {}))
        mean += np.asarray(image.convert("RGB")).mean() / NUM_IMAGES
    np.save(directory / "mean.npy", mean)


prepare_jpeg = partial(_prepare, kind="jpg", mode="RGB", sides=(320, 320))
prepare_varying = partial(_prepare, kind="jpg", mode="RGB", sides=(200, 640))
prepare_grey = partial(_prepare, kind="jpg", mode="L", sides=(320, 320))
prepare_png = partial(_prepare, kind="png", mode="RGB", sides=(320, 320))


def _is_every_image(batches: Iterable, *, directory: Path) -> None:
    """Raise unless the batches hold as many images of each class as there are, of the size, and as bright."""
    labels, means = [], []
    for images, numbers in batches:
        images = np.asarray(images)
        if images.shape[1:] != (SIZE, SIZE, 3):
            raise AssertionError(f"images of {images.shape}")
        means.extend(images.mean(axis=(1, 2, 3)))
        labels.append(np.asarray(numbers).copy())
    counts = np.bincount(np.concatenate(labels)).tolist()
    if counts != [NUM_IMAGES // NUM_CLASSES] * NUM_CLASSES:
        raise AssertionError(f"{counts} images of each class")
    if len(set(np.round(means, 6))) < 0.95 * NUM_IMAGES:
        raise AssertionError("some images came more than once")
    if abs(np.mean(means) - np.load(directory / "mean.npy")) > 1:
        raise AssertionError("the images are not those that were written")


def _files(directory: Path) -> tuple[list[str], np.ndarray]:
    paths = sorted((directory / "images").rglob("*.*"))
    return [str(path) for path in paths], np.array([int(path.parent.name[-1]) for path in paths])


def _round(start: Callable[[], Iterable], directory: Path) -> Round:
    check = partial(_is_every_image, directory=directory)
    return throughput(start, num_rows=NUM_IMAGES, check=check)


def penstock(directory: Path) -> Round:
    import penstock as ps

    ds = ps.from_files(directory / "images", fields=("image", "label"), size=(SIZE, SIZE))
    return _round(ds.shuffle(seed=0).batch(BATCH_SIZE).__iter__, directory)


def tf_data(directory: Path) -> Round:
    import tensorflow as tf

    def load(path, label):
        image = tf.io.decode_image(tf.io.read_file(path), channels=3, expand_animations=False)
        return tf.image.resize(image, (SIZE, SIZE)), label

    def load_jpeg(path, label):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, (SIZE, SIZE)), label

    files = _files(directory)
    loaded = load_jpeg if files[0][0].endswith("jpg") else load
    dataset = tf.data.Dataset.from_tensor_slices(files).shuffle(NUM_IMAGES)
    dataset = dataset.map(loaded, num_parallel_calls=tf.data.AUTOTUNE)
    return _round(dataset.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE).__iter__, directory)


def keras(directory: Path) -> Round:
    import keras
    import tensorflow as tf

    dataset = keras.utils.image_dataset_from_directory(
        directory / "images", image_size=(SIZE, SIZE), batch_size=BATCH_SIZE, verbose=False
    )
    return _round(dataset.prefetch(tf.data.AUTOTUNE).__iter__, directory)


class _Images:
    """A dataset of torch, for its workers."""

    def __init__(self, directory: Path) -> None:
        self.paths, self.labels = _files(directory)

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, row: int):
        import torch
        from PIL import Image

        with Image.open(self.paths[row]) as image:
            small = image.convert("RGB").resize((SIZE, SIZE), Image.Resampling.BILINEAR)
        return torch.from_numpy(np.array(small)), int(self.labels[row])


def torch_workers(directory: Path) -> Round:
    import torch

    loader = torch.utils.data.DataLoader(
        _Images(directory),
        batch_size=BATCH_SIZE,
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
    )
    return _round(loader.__iter__, directory)


def decoding_alone(directory: Path) -> Round:
    import simplejpeg

    files = [Path(path).read_bytes() for path in _files(directory)[0]]
    pool = ThreadPoolExecutor(os.cpu_count())
    return throughput(lambda: pool.map(simplejpeg.decode_jpeg, files), num_rows=NUM_IMAGES)


_OURS = Contender(
    "penstock", "from_files(folder, size=(224, 224)).shuffle(seed=0).batch(32)", penstock
)
_PEERS = (
    Contender(
        "tf.data",
        "shuffle(n).map(decode, resize, AUTOTUNE).batch(32).prefetch(AUTOTUNE), not antialiased",
        tf_data,
    ),
    Contender("Keras", "image_dataset_from_directory, prefetch(AUTOTUNE), not antialiased", keras),
    Contender("torch, 2 workers", "DataLoader(num_workers=2, persistent) of Pillow", torch_workers),
)
_LIMIT = Contender(
    "decoding alone",
    "the bare limit: simplejpeg on a thread a core, from memory, not resized",
    decoding_alone,
)


def _case(name: str, what: str, prepare: Callable[[Path], None], *, has_limit: bool = True) -> Case:
    return Case(
        name=name,
        title=f"{NUM_IMAGES} {what} in folders, resized to {SIZE} x {SIZE}, shuffled, batch 32",
        unit="images/s",
        prepare=prepare,
        contenders=(_OURS, *((_LIMIT,) if has_limit else ()), *_PEERS),
        bars=(times_as_fast(1.2, "tf.data"), times_as_fast(1.2, "torch, 2 workers")),
    )


CASES = (
    _case("w13", "JPEGs of 320 x 320", prepare_jpeg),
    _case("w13-varying", "JPEGs of sides from 200 to 640", prepare_varying),
    _case("w13-grey", "grey JPEGs of 320 x 320", prepare_grey),
    _case("w13-png", "PNGs of 320 x 320", prepare_png, has_limit=False),
)
