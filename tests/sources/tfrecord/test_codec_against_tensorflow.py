"""TensorFlow as the oracle: what it writes is read here as it reads it, and the other way round."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from native.messages import damaged, messy_examples, tensor_bytes
from native.tensor_twins import QUANTIZED
from native.tfrecord_twins import read_entries
from native.wire_twins import BYTES, Fault, read_fields
from penstock import _native
from penstock.errors import RecordError
from penstock.sources.tfrecord.codec import (
    ExampleCodec,
    FixedFeature,
    TensorFeature,
    VarFeature,
    decode_example,
    encode_example,
)
from penstock.sources.tfrecord.features import TYPE_NAMES

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what importing it warns of is not ours
    tf = pytest.importorskip("tensorflow")
    from google.protobuf.message import DecodeError
    from tensorflow.core.framework import tensor_pb2

pytestmark = pytest.mark.slow

NAMES = st.text(max_size=6)
FLOATS = st.lists(st.floats(width=32), max_size=6)
INTS = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=6)
STRINGS = st.lists(st.binary(max_size=20), max_size=4)
CONTENTS = st.one_of(
    st.tuples(st.just("floats"), FLOATS),
    st.tuples(st.just("ints"), INTS),
    st.tuples(st.just("bytes"), STRINGS),
)
LISTS = {"floats": "float_list", "ints": "int64_list", "bytes": "bytes_list"}


def to_tensorflow(content):
    made = tf.train.Example()
    made.features.SetInParent()
    for name, (kind, values) in content.items():
        target = getattr(made.features.feature[name], LISTS[kind])
        target.SetInParent()
        target.value.extend(values)
    return made


def as_row(made):
    """A tf.train.Example as decode_example gives it."""
    row = {}
    for name, feature in made.features.feature.items():
        which = feature.WhichOneof("kind")
        if which is None:
            row[name] = None
        elif which == "bytes_list":
            row[name] = list(feature.bytes_list.value)
        else:
            dtype = "float32" if which == "float_list" else "int64"
            row[name] = np.array(getattr(feature, which).value, dtype)
    return row


def assert_same_row(ours, theirs):
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if isinstance(value, np.ndarray):
            assert ours[name].dtype == value.dtype
            np.testing.assert_array_equal(ours[name], value)
        else:
            assert ours[name] == value


def protobuf_reads(data):
    """The record as protobuf reads it, or None if it refuses."""
    try:
        return tf.train.Example.FromString(data)
    except DecodeError:
        return None


def reads(data, features=None):
    """The record as penstock reads it, or None if it refuses."""
    try:
        return decode_example(data, features)
    except RecordError:
        return None


@given(st.dictionaries(NAMES, CONTENTS, max_size=5), st.booleans())
def test_what_tensorflow_writes_is_read(content, deterministic):
    made = to_tensorflow(content)
    assert_same_row(
        decode_example(made.SerializeToString(deterministic=deterministic)), as_row(made)
    )


@given(st.dictionaries(NAMES, CONTENTS, max_size=5))
def test_what_is_written_is_byte_for_byte_what_tensorflow_writes(content):
    # Keys are sorted; protobuf's Python, unlike its C++, puts a key before those it starts with.
    keys = [name.encode() for name in content]
    assume(not any(a != b and a.startswith(b) for a in keys for b in keys))
    made = to_tensorflow(content)
    dtypes = {"floats": "float32", "ints": "int64", "bytes": bytes}
    features = {name: VarFeature(dtypes[kind]) for name, (kind, _) in content.items()}
    row = {name: values for name, (_, values) in content.items()}
    assert encode_example(row, features) == made.SerializeToString(deterministic=True)


def has_unknown_fields_in_entries(data):
    """Of such an entry protobuf's Python drops all; its C++ keeps what it knows, as penstock does."""
    try:
        entries = read_entries(data).values()
        return any(
            (n, w) not in ((1, BYTES), (2, BYTES)) for e in entries for n, w, _ in read_fields(e)
        )
    except Fault:
        return False


@settings(max_examples=300)
@given(st.data())
def test_whatever_protobuf_reads_is_read_and_whatever_it_refuses_is_refused(data):
    pairs = data.draw(
        st.lists(st.tuples(st.sampled_from(["x", "y", "é", ""]), CONTENTS), max_size=4)
    )
    message = data.draw(messy_examples(pairs))
    if data.draw(st.booleans()):
        message = data.draw(damaged(message))
    theirs, ours = protobuf_reads(message), reads(message)
    assert (theirs is None) == (ours is None)
    if theirs is not None and not has_unknown_fields_in_entries(message):
        assert_same_row(ours, as_row(theirs))


@given(st.binary(max_size=200))
@example(b"\x0a\x00" + b"\x1b" * 90 + b"\x1c" * 90)
def test_noise_is_refused_where_protobuf_refuses_it(message):
    assert (protobuf_reads(message) is None) == (reads(message) is None)


# What tf.io.parse_example makes of features.


@st.composite
def features(draw):
    """(TensorFlow's, ours) of one feature."""
    dtype = draw(st.sampled_from(["float32", "int64", "bytes"]))
    tf_dtype = tf.string if dtype == "bytes" else tf.as_dtype(dtype)
    if draw(st.booleans()):
        return tf.io.VarLenFeature(tf_dtype), VarFeature(dtype)
    shape = draw(st.sampled_from([(), (1,), (2,), (2, 2)]))
    default = None
    if draw(st.booleans()):
        default = {"float32": 1.5, "int64": 7, "bytes": b"none"}[dtype]
        filled = np.full(shape, default, object if dtype == "bytes" else dtype)
        return tf.io.FixedLenFeature(shape, tf_dtype, filled.tolist()), FixedFeature(
            shape, dtype, default
        )
    return tf.io.FixedLenFeature(shape, tf_dtype), FixedFeature(shape, dtype)


def parse_example(data, wanted):
    try:
        parsed = tf.io.parse_single_example(data, wanted)
    except (tf.errors.InvalidArgumentError, ValueError):
        return None
    return {
        name: (value.values if isinstance(value, tf.SparseTensor) else value).numpy()
        for name, value in parsed.items()
    }


@given(st.data())
def test_features_are_what_parse_example_makes_of_them(data):
    wanted = data.draw(st.dictionaries(st.sampled_from(["x", "y", "z"]), features(), min_size=1))
    content = data.draw(st.dictionaries(st.sampled_from(["x", "y", "z", "other"]), CONTENTS))
    for name, (_, feature) in wanted.items():
        if data.draw(st.integers(0, 9)):  # mostly what was asked for
            kind = {"float32": "floats", "int64": "ints"}.get(str(feature.dtype), "bytes")
            size = (
                int(np.prod(feature.shape))
                if None not in feature.shape
                else data.draw(st.integers(0, 3))
            )
            item = {
                "floats": st.floats(width=32),
                "ints": st.integers(-5, 5),
                "bytes": st.binary(max_size=3),
            }
            content[name] = (kind, data.draw(st.lists(item[kind], min_size=size, max_size=size)))
    message = to_tensorflow(content).SerializeToString()
    theirs = parse_example(message, {name: pair[0] for name, pair in wanted.items()})
    ours = reads(message, {name: pair[1] for name, pair in wanted.items()})
    assert (theirs is None) == (ours is None)
    for name, value in (theirs or {}).items():
        if isinstance(value, bytes):
            assert ours[name] == value
        else:
            assert ours[name].dtype == value.dtype
            np.testing.assert_array_equal(ours[name], value)


# Tensors.

WRITABLE = sorted({n for n in TYPE_NAMES if n not in QUANTIZED and n < 24})


@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 3), (1, 128), (2, 3, 4)])
@pytest.mark.parametrize("number", WRITABLE)
def test_tensors_are_byte_for_byte_those_of_serialize_tensor(number, shape):
    generator = np.random.default_rng(number)
    name = TYPE_NAMES[number]
    if name == "bytes":
        value = np.array([b"x" * k for k in range(int(np.prod(shape)))], object).reshape(shape)
        tensor = tf.constant(value, tf.string)
    else:
        feature = TensorFeature(shape, name)
        raw = generator.integers(
            0, 2 if name == "bool" else 256, (*shape, feature.dtype.itemsize), np.uint8
        )
        value = raw.view(feature.dtype).reshape(shape)
        tensor = tf.constant(value)
    serialised = tf.io.serialize_tensor(tensor).numpy()
    features = {"t": TensorFeature(shape, name)}
    record = encode_example({"t": value}, features)
    assert (
        tf.train.Example.FromString(record).features.feature["t"].bytes_list.value[0] == serialised
    )
    for asked in (features["t"], TensorFeature((None,) * len(shape), name)):
        decoded = decode_example(record, {"t": asked})["t"]
        if name == "bytes":
            assert np.array_equal(decoded, value)
        else:
            assert decoded.dtype == value.dtype
            assert decoded.tobytes() == value.tobytes()


def tensorflow_has(number):
    """Return whether this TensorFlow has the type: 2.18 lacks the float8 types from 26 on."""
    try:
        tf.as_dtype(number)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("number", [n for n in sorted(TYPE_NAMES) if n != 7])
def test_tensors_of_make_tensor_proto_are_read(number):
    if number >= 26 and not tensorflow_has(number):
        pytest.skip("this TensorFlow has no such type")
    dtype = TensorFeature((), TYPE_NAMES[number]).dtype
    for value in (np.array([0, 1, 1], "int8").astype(dtype), np.ones((2, 3), "int8").astype(dtype)):
        proto = tf.make_tensor_proto(value, shape=value.shape)
        record = encode_example({"t": proto.SerializeToString()})
        decoded = decode_example(record, {"t": TensorFeature(value.shape, dtype)})["t"]
        assert decoded.tobytes() == value.tobytes()
    if number < 24:  # TensorFlow makes no float8 of a number
        one = True if number == 10 else 1
        splat = tf.make_tensor_proto(one, tf.as_dtype(number), (3, 4))
        record = encode_example({"t": splat.SerializeToString()})
        decoded = decode_example(record, {"t": TensorFeature((3, 4), dtype)})["t"]
        assert (decoded == np.ones((), "int8").astype(dtype)).all()


@settings(max_examples=300)
@given(st.data())
def test_a_tensor_is_what_parse_tensor_makes_of_it(data):
    message = data.draw(tensor_bytes())
    if data.draw(st.booleans()):
        message = data.draw(damaged(message))
    try:
        proto = tensor_pb2.TensorProto.FromString(message)
    except DecodeError:
        proto = None
    if proto is None or proto.dtype not in (*TYPE_NAMES, *QUANTIZED):
        for number in (1, 7, 9):
            asked = TensorFeature((None,), TYPE_NAMES[number])
            assert reads(encode_example({"t": message}), {"t": asked}) is None
        return
    assume(proto.dtype < 26 or tensorflow_has(proto.dtype))
    rank = len(proto.tensor_shape.dim)
    assume(rank <= 64)  # NumPy's limit
    number = QUANTIZED.get(proto.dtype, proto.dtype)
    feature = TensorFeature((None,) * rank, TYPE_NAMES[number])
    ours = None
    try:
        ours = decode_example(encode_example({"t": message}), {"t": feature})["t"]
    except RecordError as error:
        assume(error.kind != "tensor_expands")  # a promise of ours, not of TensorFlow's
    try:
        theirs = tf.io.parse_tensor(message, tf.as_dtype(proto.dtype))
    except tf.errors.InvalidArgumentError:
        theirs = None
    assert (theirs is None) == (ours is None)
    if theirs is None:
        return
    if number == 7:
        assert np.array_equal(ours, theirs.numpy())
    else:
        assert ours.shape == tuple(theirs.shape)
        assert ours.tobytes() == theirs.numpy().tobytes()


# Files.


def tensorflow_reads_file(path):
    """(records, whether all of the file could be read)."""
    records = []
    try:
        for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
            records.append(record)  # those before an error count
    except tf.errors.DataLossError:
        return records, False
    return records, True


def penstock_reads_file(path):
    content = path.read_bytes()
    records, at = [], 0
    codec = ExampleCodec((), ())
    try:
        while at < len(content):
            starts, lengths, _ = _native.tfrecord_scan(
                content[at:], at, remaining=len(content) - at
            )
            for start, length in zip(starts.tolist(), lengths.tolist(), strict=True):
                spot = np.array([start]), np.array([length])
                _, _, errors = _native.tfrecord_decode(content, *spot, codec.plan, [], skip=True)
                if len(errors) and _native.RECORD_FAULTS[errors[0, 3]] == "data_checksum":
                    return records, False
                records.append(content[start + 12 : start + 12 + length])
                at = start + 16 + length
    except _native.RecordError:
        return records, False
    return records, True


@given(st.lists(st.binary(max_size=40), max_size=5))
def test_files_that_tensorflow_writes_are_read(tmp_path_factory, payloads):
    path = tmp_path_factory.mktemp("files") / "a.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for payload in payloads:
            writer.write(payload)
    assert penstock_reads_file(path) == (payloads, True)
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    framed = _native.tfrecord_frame(b"".join(payloads), offsets).tobytes()
    assert framed == path.read_bytes()
    assert tensorflow_reads_file(path) == (payloads, True)


@given(st.data())
def test_a_damaged_file_is_refused_by_both_at_the_same_record(tmp_path_factory, data):
    payloads = data.draw(st.lists(st.binary(max_size=40), min_size=1, max_size=5))
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    content = _native.tfrecord_frame(b"".join(payloads), offsets).tobytes()
    path = tmp_path_factory.mktemp("files") / "a.tfrecord"
    path.write_bytes(data.draw(damaged(content)))
    ours, theirs = penstock_reads_file(path), tensorflow_reads_file(path)
    size = sum(len(record) + 16 for record in ours[0])
    if 0 < path.stat().st_size - size < 12:
        # TensorFlow takes less than a header at the end of a file for nothing; it is a record that was lost.
        assert (theirs, ours) == ((ours[0], True), (theirs[0], False))
    else:
        assert ours == theirs
