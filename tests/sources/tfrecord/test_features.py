"""ImageFeature: images in records, decoded on the way as those of folders are."""

import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance
from tests.sources.tar.tars import image

import penstock as ps

COUNT = 12


def pixels(number, height=12, width=20):
    base = np.random.default_rng(number).integers(0, 255, (3, 4, 3)).astype(np.uint8)
    return np.array(Image.fromarray(base).resize((width, height)))


def write(path, files, labels=None):
    """Write records as TensorFlow does."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, data in enumerate(files):
            label = number if labels is None else labels[number]
            feature = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=data)),
                "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=feature))
            writer.write(example.SerializeToString())


def features(*arguments, **more):
    return (
        ps.ImageFeature(*arguments, name="image/encoded", **more),
        ps.FixedFeature((), "int64", name="label"),
    )


FORMATS = {"jpg": "JPEG", "png": "PNG", "bmp": "BMP", "webp": "WEBP", "gif": "GIF", "tif": "TIFF"}


class TestImageFeature(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path):
        found = [pixels(number) for number in range(COUNT)]
        write(tmp_path / "a.tfrecord", [[image(one)] for one in found])
        rows = [(one, np.int64(number)) for number, one in enumerate(found)]
        return Case(lambda: ps.from_tfrecord(tmp_path / "a.tfrecord", features((12, 20))), rows)


@pytest.mark.parametrize("size", [None, (7, 9), (30, 30)])
@pytest.mark.parametrize("suffix", FORMATS)
def test_pixels_are_those_of_the_same_file_in_a_folder(tmp_path, suffix, size):
    files = [image(pixels(number), FORMATS[suffix]) for number in range(COUNT)]
    for number, data in enumerate(files):
        (tmp_path / f"{number:03d}.{suffix}").write_bytes(data)
    write(tmp_path / "a.tfrecord", [[data] for data in files])
    ds = ps.from_tfrecord(tmp_path / "a.tfrecord", features(size))
    folder = ps.from_files(f"{tmp_path}/*.{suffix}", "image", size=size)
    assert ds.spec[0].shape == ((None, None, 3) if size is None else (*size, 3))
    mine = run(ds)
    assert_same([one for one, _ in mine], run(folder))
    assert [int(label) for _, label in mine] == list(range(COUNT))
    assert_same(run(ds.shuffle(seed=2)), [mine[int(i)] for i in order(2)])
    forward = ps.from_tfrecord(tmp_path / "a.tfrecord", features(size), index=False)
    assert_same(run(forward.with_options(threads=2)), mine)
    if size is not None:
        (batch, _) = next(iter(ds.batch(5)))
        assert batch.shape == (5, *size, 3)


def order(seed):
    return run(ps.from_arrays(np.arange(COUNT)).shuffle(seed=seed))


def test_tensorflow_decodes_the_same_pixels(tmp_path):
    files = [image(pixels(number)) for number in range(3)]
    write(tmp_path / "a.tfrecord", [[data] for data in files])
    found = run(ps.from_tfrecord(tmp_path / "a.tfrecord", features()))
    for (mine, _), data in zip(found, files, strict=True):
        assert np.array_equal(mine, tf.io.decode_image(data, channels=3).numpy())


def test_grey_is_one_channel(tmp_path):
    grey = np.random.default_rng(0).integers(0, 255, (8, 8)).astype(np.uint8)
    write(tmp_path / "a.tfrecord", [[image(grey)], [image(pixels(1, 8, 8))]])
    (first, _), (second, _) = run(ps.from_tfrecord(tmp_path / "a.tfrecord", features(channels=1)))
    assert np.array_equal(first[..., 0], grey)
    expected = np.array(Image.fromarray(pixels(1, 8, 8)).convert("L"))
    assert np.array_equal(second[..., 0], expected)
    ds = ps.from_tfrecord(tmp_path / "a.tfrecord", features((4, 4), channels=1))
    assert next(iter(ds.batch(2)))[0].shape == (2, 4, 4, 1)
    record = next(iter(ps.from_tfrecord(tmp_path / "a.tfrecord", raw=True)))
    nest = {"image/encoded": ps.ImageFeature(channels=1)}
    assert np.array_equal(ps.tfrecord.decode_example(record, nest)["image/encoded"], first)


def test_sizes_that_differ_come_as_they_are(tmp_path):
    sizes = [(4 + number, 30 - number) for number in range(COUNT)]
    write(tmp_path / "a.tfrecord", [[image(pixels(0, *size))] for size in sizes])
    ds = ps.from_tfrecord(tmp_path / "a.tfrecord", features())
    assert [one.shape[:2] for one, _ in run(ds)] == sizes
    assert [one.shape[:2] for one, _ in run(ds.shuffle(seed=2))] == [
        sizes[int(i)] for i in order(2)
    ]
    small = ds.with_options(memory="12MB", threads=1)
    assert_same(run(small), run(ds))


@pytest.mark.parametrize("index", [True, False])
def test_bad_images_are_named_or_skipped(tmp_path, index):
    files = [[image(pixels(number), "JPEG")] for number in range(COUNT)]
    files[3] = [b"no image"]
    files[5] = [files[5][0][:-150]]
    files[7] = [files[7][0], files[7][0]]
    files[9] = []
    write(tmp_path / "a.tfrecord", files)
    ds = ps.from_tfrecord(tmp_path / "a.tfrecord", features((8, 8)), index=index)
    with pytest.raises(
        ps.DataError, match=r"a\.tfrecord.*row 3.*feature 'image/encoded' holds a bad image"
    ):
        run(ds.batch(2))
    skipping = ds.with_options(on_error="skip")
    good = [number for number in range(COUNT) if number not in (3, 5, 7, 9)]
    for threads in (0, 3):
        with skipping.with_options(threads=threads).stream() as stream:
            assert [int(label) for _, label in stream] == good
            told = stream.report().skipped
        assert [f"row {row}" in text for row, text in zip((3, 5, 7, 9), told, strict=True)] == [
            True
        ] * 4
        assert "must be one image as bytes, got 2 values" in told[2]
        assert "must be one image as bytes, got 0 values" in told[3]
    with skipping.stream() as stream:
        next(stream)
        states = [json.loads(json.dumps(stream.state())) for _ in stream]
    for done, state in enumerate(states, start=2):
        # After the last one, the state is that of the next epoch.
        assert [int(label) for _, label in run(skipping, state=state)] == (good[done:] or good)


def spoiled_png():
    """Return a PNG whose pixels are what they were, and whose checksum of them is not."""
    data = bytearray(image(pixels(0)))
    end = data.index(b"IEND") - 4  # Before its length: the checksum of the pixels.
    data[end - 4] ^= 255
    return bytes(data)


def spoiled_jpeg():
    data = bytearray(image(pixels(0, 64, 64), "JPEG"))
    data[-60:-10] = bytes(50)
    return bytes(data)


@pytest.mark.parametrize("spoiled", [spoiled_png, spoiled_jpeg])
def test_an_image_of_a_wrong_checksum_is_refused_in_the_words_of_records(tmp_path, spoiled):
    write(tmp_path / "a.tfrecord", [[spoiled()]])
    with pytest.raises(ps.DataError, match=r"holds a bad image: (a checksum|can't be)") as caught:
        run(ps.from_tfrecord(tmp_path / "a.tfrecord", features()))
    assert "from_tfrecord(..., verify=False) reads it as it is" in str(caught.value)
    assert "on_error='skip' leaves such records out" in str(caught.value)
    assert "from_files" not in str(caught.value)
    # The cure works.
    assert len(run(ps.from_tfrecord(tmp_path / "a.tfrecord", features(), verify=False))) == 1


def test_what_is_no_image_in_a_record_is_told_nothing_of_endings(tmp_path):
    write(tmp_path / "a.tfrecord", [[b"no image"]])
    with pytest.raises(ps.DataError, match="bad image: can't be decoded: it is not BMP") as caught:
        run(ps.from_tfrecord(tmp_path / "a.tfrecord", features()))
    assert "ending" not in str(caught.value)
    assert "on_error='skip'" in str(caught.value)
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(ps.DataError, match="give it the ending of what it is"):
        run(ps.from_files(tmp_path / "a.png"))


def test_an_image_that_claims_too_much_is_refused_by_name(tmp_path):
    large = bytearray(image(pixels(0)))
    large[16:24] = (60_000).to_bytes(4, "big") * 2  # The width and height of a PNG.
    write(tmp_path / "a.tfrecord", [[bytes(large)]])
    with pytest.raises(ps.PenstockError, match=r"a\.tfrecord.*row 0"):
        run(ps.from_tfrecord(tmp_path / "a.tfrecord", features((8, 8))))


@pytest.mark.parametrize(
    ("arguments", "more", "message"),
    [
        (((0, 4),), {}, "each at least 1, got"),
        (((4, 4, 3),), {}, "channels=1 or channels=3 says"),
        (((4.0, 4),), {}, "must be .height, width."),
        ((), {"channels": 4}, "3 .RGB. or 1 .grey., got 4"),
    ],
)
def test_wrong_arguments_are_refused(arguments, more, message):
    with pytest.raises(ValueError, match=message):
        ps.ImageFeature(*arguments, **more)


def test_it_only_decodes():
    assert ps.ImageFeature(8).size == (8, 8)
    with pytest.raises(TypeError, match="only decodes; encode the image yourself"):
        ps.tfrecord.encode_example({"x": b""}, {"x": ps.ImageFeature()})
