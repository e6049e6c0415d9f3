"""W4: TFRecords of Examples, checksums verified, batches of 32 and of 1,024."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import arrays
import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import throughput

NUM_ROWS = 400_000  # 180 MB: an epoch of 50 ms, of which starting it is little.
NUM_FEATURES = arrays.NUM_FEATURES


def prepare(directory: Path) -> None:
    """Write the same rows twice: as float lists, and as tensors serialised to bytes."""
    import tensorflow as tf

    def feature(**kind) -> tf.train.Feature:
        return tf.train.Feature(**kind)

    x, y = arrays.make(NUM_ROWS)
    with (
        tf.io.TFRecordWriter(str(directory / "floats.tfrecord")) as floats,
        tf.io.TFRecordWriter(str(directory / "tensors.tfrecord")) as tensors,
    ):
        for row, number in zip(x, y, strict=True):
            label = feature(int64_list=tf.train.Int64List(value=[number]))
            listed = feature(float_list=tf.train.FloatList(value=row))
            serialised = tf.io.serialize_tensor(row).numpy()
            as_bytes = feature(bytes_list=tf.train.BytesList(value=[serialised]))
            for writer, data in ((floats, listed), (tensors, as_bytes)):
                features = tf.train.Features(feature={"data": data, "label": label})
                writer.write(tf.train.Example(features=features).SerializeToString())


def _check(batches: Iterable) -> None:
    arrays.is_every_row(
        (
            (batch["data"], batch["label"]) if isinstance(batch, dict) else batch
            for batch in batches
        ),
        num_rows=NUM_ROWS,
    )


def _round(
    start: Callable[[], Iterable], batch_size: int, *, at_most: float | None = None
) -> Round:
    return throughput(
        start, num_rows=NUM_ROWS, batch_size=batch_size, check=_check, at_most=at_most
    )


def _penstock(directory: Path, *, kind: str, batch_size: int) -> Round:
    import penstock as ps

    os.environ["XDG_CACHE_HOME"] = str(directory)  # The index goes away with the data.
    data = ps.FixedFeature if kind == "floats" else ps.TensorFeature
    features = {
        "data": data((NUM_FEATURES,), "float32"),
        "label": ps.FixedFeature((), "int64"),
    }
    path = str(directory / f"{kind}.tfrecord")
    return _round(ps.from_tfrecord(path, features).batch(batch_size).__iter__, batch_size)


def _bytes_read(directory: Path, *, kind: str) -> Round:
    path = directory / f"{kind}.tfrecord"

    def epoch() -> Iterable:
        with path.open("rb", buffering=0) as file:
            while block := file.read(1 << 20):
                yield block

    return throughput(epoch, num_rows=NUM_ROWS)


def _index(directory: Path) -> Round:
    from penstock.io.paths import expand
    from penstock.sources.tfrecord.index import record_offsets

    saved = directory / "indexes"
    os.environ["XDG_CACHE_HOME"] = str(saved)
    (location,) = expand(directory / "floats.tfrecord")

    def epoch() -> Iterable:
        shutil.rmtree(saved, ignore_errors=True)  # Else it would be found there.
        (offsets,) = record_offsets([location], verify=True, direct=False)
        assert len(offsets) == NUM_ROWS + 1
        return ()

    return throughput(epoch, num_rows=location.size, scale=1e-9)


def _bytes_into_memory(directory: Path) -> Round:
    path = directory / "floats.tfrecord"
    buffer = bytearray(1 << 22)

    def epoch() -> Iterable:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
        return ()

    return throughput(epoch, num_rows=path.stat().st_size, scale=1e-9)


def _features(kind: str):
    import tensorflow as tf

    data = (
        tf.io.FixedLenFeature([NUM_FEATURES], tf.float32)
        if kind == "floats"
        else tf.io.FixedLenFeature([], tf.string)
    )
    return {"data": data, "label": tf.io.FixedLenFeature([], tf.int64)}


def _tf_single(directory: Path, *, kind: str, batch_size: int) -> Round:
    import tensorflow as tf

    features = _features(kind)

    def parse(record):
        parsed = tf.io.parse_single_example(record, features)
        if kind == "tensors":
            parsed["data"] = tf.ensure_shape(
                tf.io.parse_tensor(parsed["data"], tf.float32), (NUM_FEATURES,)
            )
        return parsed

    records = tf.data.TFRecordDataset(str(directory / f"{kind}.tfrecord"))
    parsed = records.map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    batches = parsed.batch(batch_size).prefetch(tf.data.AUTOTUNE)
    return _round(batches.__iter__, batch_size, at_most=5)


def _tf_batched(directory: Path, *, kind: str, batch_size: int) -> Round:
    import tensorflow as tf

    features = _features(kind)
    # A serialised tensor ends with its values; what comes before them is the same for each row.
    header = len(tf.io.serialize_tensor(np.zeros(NUM_FEATURES, np.float32)).numpy())
    header -= NUM_FEATURES * 4

    def parse(records):
        parsed = tf.io.parse_example(records, features)
        if kind == "tensors":
            # parse_tensor takes one at a time; this does the whole batch, and is far faster.
            values = tf.strings.substr(parsed["data"], header, NUM_FEATURES * 4)
            parsed["data"] = tf.reshape(tf.io.decode_raw(values, tf.float32), (-1, NUM_FEATURES))
        return parsed

    records = tf.data.TFRecordDataset(str(directory / f"{kind}.tfrecord"))
    parsed = records.batch(batch_size).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    return _round(parsed.prefetch(tf.data.AUTOTUNE).__iter__, batch_size)


def _case(kind: str, batch_size: int) -> Case:
    ways = {"kind": kind, "batch_size": batch_size}
    what = "a float list" if kind == "floats" else "a tensor serialised as bytes"
    unpack = "" if kind == "floats" else ", values by decode_raw"
    return Case(
        name=f"w4-{kind}-{batch_size}",
        title=f"TFRecord, {what} of 100 float32 + int64 label, checksums, batch {batch_size:,}",
        unit="rows/s",
        prepare=prepare,
        contenders=(
            Contender(
                "penstock",
                f"from_tfrecord(path, features).batch({batch_size})",
                partial(_penstock, **ways),
            ),
            Contender(
                "bytes alone",
                "the bare limit: read the file, decode nothing",
                partial(_bytes_read, kind=kind),
            ),
            Contender(
                "tf.data, one by one",
                "map(parse_single_example, AUTOTUNE).batch.prefetch(AUTOTUNE)",
                partial(_tf_single, **ways),
            ),
            Contender(
                "tf.data, batched",
                f"batch.map(parse_example, AUTOTUNE).prefetch(AUTOTUNE){unpack}",
                partial(_tf_batched, **ways),
            ),
        ),
        bars=(
            # The bar names the row-by-row peer at batch 32.
            *((times_as_fast(50, "tf.data, one by one"),) if batch_size == 32 else ()),
            times_as_fast(10 if batch_size == 32 else 12, "tf.data, batched"),
        ),
    )


INDEX = Case(
    name="w4-index",
    title="TFRecord, finding where 400,000 records begin, length checksums, one thread, from the page cache",
    unit="GB/s",
    prepare=prepare,
    contenders=(
        Contender("penstock", "the scan for the index, which is saved", _index),
        Contender("bytes alone", "readinto, 4 MB at a time", _bytes_into_memory),
    ),
    bars=(times_as_fast(0.5, "bytes alone"),),
)
CASES = (
    *(_case(kind, batch_size) for kind in ("floats", "tensors") for batch_size in (32, 1024)),
    INDEX,
)
