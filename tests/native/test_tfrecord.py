import struct
import threading
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from native import tfrecord_twins as twins
from native.messages import damaged, jobs, tensor_bytes
from native.tensor_twins import TENSORS, encode_tensor
from native.tfrecord_twins import Feature
from native.wire_twins import delimited
from penstock import _native

FAULTS = _native.RECORD_FAULTS


def positions(records, framed=True):
    """The records one after the other, and where each starts."""
    pieces = [twins.frame(record) if framed else record for record in records]
    ends = np.cumsum([0, *map(len, pieces)], dtype=np.int64)
    lengths = np.array([len(record) for record in records], np.int64)
    return b"".join(pieces), ends[:-1].copy(), lengths


def empty_outs(features, groups, group_rows, fill=0xEE):
    return [
        np.full((groups, group_rows, f.count * np.dtype(f.dtype).itemsize), fill, np.uint8)
        if f.is_fixed
        else None
        for f in features
    ]


def plan_of(features):
    return _native.ExamplePlan([feature.native for feature in features])


def decode(features, records, **options):
    """The rows as the twin gives them, and the faults; None for the row of a bad record."""
    buffer, starts, lengths = positions(records, options.get("framed", True))
    outs = empty_outs(features, 1, len(records))
    columns, bad, errors = _native.tfrecord_decode(
        buffer, starts, lengths, plan_of(features), outs, skip=True, **options
    )
    assert np.flatnonzero(bad).tolist() == errors[:, 0].tolist()
    taken = [
        rows_of(f, out, column, bad) for f, out, column in zip(features, outs, columns, strict=True)
    ]
    rows = [None if is_bad else [t[i] for t in taken] for i, is_bad in enumerate(bad)]
    return rows, [
        (record, feature, FAULTS[fault]) for record, _, feature, fault, _ in errors.tolist()
    ]


def rows_of(feature, out, column, bad):
    """(values, shape) of each row of one column."""
    num_rows = len(bad)
    if feature.is_fixed:
        shape = feature.shape if feature.form == "tensor" else [feature.count]
        assert not out[0, bad].any(), "a bad record leaves zeros"
        return [(out[0, i].tobytes(), shape) for i in range(num_rows)]
    parts = list(column)
    shapes = parts.pop().tolist() if feature.form == "tensor" and -1 in feature.shape else None
    counts = parts.pop()
    assert counts.shape == (num_rows,)
    assert not counts[bad].any()
    if shapes is None:
        shapes = [
            feature.shape if feature.form == "tensor" else [count] for count in counts.tolist()
        ]
    ends = np.cumsum([0, *counts])
    if feature.type == 7:
        data, offsets = parts
        assert len(offsets) == ends[-1] + 1
        assert offsets[0] == 0
        assert offsets[-1] == len(data)
        items = [data[a:b].tobytes() for a, b in pairwise(offsets)]
        return [(items[ends[i] : ends[i + 1]], shapes[i]) for i in range(num_rows)]
    width = np.dtype(feature.dtype).itemsize
    assert len(parts[0]) == ends[-1] * width
    return [
        (parts[0][ends[i] * width : ends[i + 1] * width].tobytes(), shapes[i])
        for i in range(num_rows)
    ]


def expected(features, records):
    rows, faults = [], []
    for index, record in enumerate(records):
        try:
            rows.append(twins.decode_row(record, features))
        except twins.Fault as fault:
            rows.append(None)
            faults.append((index, fault.feature, fault.kind))
    return rows, faults


def same_values(feature, ours, theirs):
    if feature.kind != "floats" or ours == theirs:
        return ours == theirs
    # NaNs may differ in the bits that nobody looks at.
    dtype = {14: "<u2"}.get(feature.type, feature.dtype)
    ours, theirs = np.frombuffer(ours, dtype), np.frombuffer(theirs, dtype)
    return np.array_equal(ours, theirs, equal_nan=feature.type != 14)


def assert_same_rows(features, ours, theirs):
    for mine, twin in zip(ours, theirs, strict=True):
        if mine is None or twin is None:
            assert mine is twin
            continue
        for feature, a, b in zip(features, mine, twin, strict=True):
            assert list(a[1]) == list(b[1])
            assert same_values(feature, a[0], b[0]), (feature, a, b)


@given(jobs())
def test_decoding_agrees_with_its_twin_on_both_paths(job):
    features, records = job
    theirs = expected(features, records)
    for fast in (True, False):
        for framed in (True, False):
            ours = decode(features, records, fast=fast, framed=framed)
            assert ours[1] == theirs[1]
            assert_same_rows(features, ours[0], theirs[0])


@given(jobs(), st.randoms(use_true_random=False))
def test_rows_go_to_the_slots_asked_for(job, random):
    features, records = job
    buffer, starts, lengths = positions(records)
    plan = plan_of(features)
    groups, group_rows = random.randint(1, 4), random.randint(1, 6)
    slots = list(range(groups * group_rows))
    random.shuffle(slots)
    at = np.array(slots[: len(records)], np.int64)
    count = len(at)
    starts, lengths = starts[:count], lengths[:count]
    plain = empty_outs(features, 1, count)
    _native.tfrecord_decode(buffer, starts, lengths, plan, plain, skip=True)
    # Every other group of memory with gaps, backward.
    whole = empty_outs(features, groups * 2, group_rows + 1)
    outs = [w if w is None else w[::-2, :group_rows] for w in whole]
    _native.tfrecord_decode(buffer, starts, lengths, plan, outs, skip=True, at=at)
    for out, want, memory in zip(outs, plain, whole, strict=True):
        if out is not None:
            assert np.array_equal(out[at // group_rows, at % group_rows], want[0])
            out[at // group_rows, at % group_rows] = 0xEE
            assert (memory == 0xEE).all()


@given(jobs(), st.integers(0, 5000), st.booleans(), st.randoms(use_true_random=False))
def test_a_job_reads_the_records_of_a_file_as_one_call_decodes_them(
    tmp_path_factory, job, gap, is_shuffled, random
):
    features, records = job
    features = [feature for feature in features if feature.is_fixed]
    if not features or not records:
        return
    faults = expected(features, records)[1]
    buffer, starts, lengths = positions(records)
    count = len(records)
    want = empty_outs(features, 1, count)
    _native.tfrecord_decode(buffer, starts, lengths, plan_of(features), want, skip=True)
    # With gaps between them, so that some are read together, and some are not.
    pieces = [
        buffer[a : a + n + 16] for a, n in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    data = b"".join(b"?" * gap + piece for piece in pieces)
    path = tmp_path_factory.getbasetemp() / "records"
    path.write_bytes(data)
    begins = starts + gap * np.arange(1, count + 1)
    ends = begins + lengths + 16
    outs = empty_outs(features, 2, (count + 1) // 2)
    at = None
    if is_shuffled:
        at = np.array(random.sample(range(2 * ((count + 1) // 2)), count), np.int64)
    with path.open("rb") as file:
        made = _native.record_job(file.fileno(), begins, ends, plan_of(features), outs, at=at)
    made.run()
    assert made.is_good == (not faults)
    assert made.num_rows == count
    if made.is_good:
        for out, wanted in zip(outs, want, strict=True):
            rows = out.reshape(out.shape[0] * out.shape[1], out.shape[2])
            assert np.array_equal(rows[:count] if at is None else rows[at], wanted[0])


def test_a_job_for_records_that_can_not_be_is_refused_or_not_good(tmp_path):
    path = tmp_path / "records"
    path.write_bytes(twins.frame(b"") * 2)
    edges = np.array([0, 16, 32], np.int64)
    none = _native.ExamplePlan([])
    varying = _native.ExamplePlan([("a", "variable", 1, [], False, None)])
    with path.open("rb") as file:
        fd = file.fileno()

        def is_good(begins, ends, descriptor=fd):
            job = _native.record_job(descriptor, begins, ends, none, [])
            job.run()
            return job.is_good

        assert is_good(edges[:-1], edges[1:])
        assert not is_good(edges[:-1], edges[1:] + 1)  # Past the end.
        assert is_good(edges[1::-1].copy(), edges[:0:-1].copy())
        assert not is_good(edges[1:], edges[:-1])
        assert not is_good(edges[:1], edges[:1] + (1 << 18) + 1)
        assert not is_good(edges[:-1], edges[1:], -1)
        with pytest.raises(ValueError, match="'a' has not"):
            _native.record_job(fd, edges[:-1], edges[1:], varying, [None])
        with pytest.raises(ValueError, match="ends must have the length of begins"):
            _native.record_job(fd, edges[:-1], edges, none, [])


@given(jobs())
def test_without_skip_the_first_bad_record_is_raised(job):
    features, records = job
    faults = expected(features, records)[1]
    buffer, starts, lengths = positions(records)
    outs = empty_outs(features, 1, len(records))
    arguments = (buffer, starts, lengths, plan_of(features), outs)
    if not faults:
        assert not _native.tfrecord_decode(*arguments)[1].any()
        return
    with pytest.raises(_native.RecordError) as raised:
        _native.tfrecord_decode(*arguments)
    error = raised.value
    assert (error.record, error.feature, error.kind) == faults[0]
    assert 0 <= error.offset <= 16 + lengths[error.record]


@given(st.binary(max_size=300), st.sampled_from(["encoded", "raw"]))
def test_any_bytes_decode_as_the_twin_has_them(data, how):
    features = [
        Feature("x", "fixed", 1, [2]),
        Feature("y", "variable", 7),
        Feature("t", "tensor", 3, [-1]),
    ]
    record = (
        data
        if how == "raw"
        else delimited(1, delimited(1, delimited(1, b"t") + delimited(2, data)))
    )
    assert decode(features, [record])[1] == expected(features, [record])[1]


@given(st.data())
def test_tensors_decode_as_the_twin_has_them(data):
    kind = data.draw(st.sampled_from(sorted(TENSORS)))
    message = data.draw(tensor_bytes())
    if data.draw(st.booleans()):
        message = data.draw(damaged(message))
    record = twins.encode_example({"t": ("bytes", [message])})
    for shape in ([], [-1], [2], [-1, -1], [2, 3]):
        features = [Feature("t", "tensor", kind, shape)]
        theirs = expected(features, [record])
        for fast in (True, False):
            ours = decode(features, [record], fast=fast)
            assert ours[1] == theirs[1]
            assert_same_rows(features, ours[0], theirs[0])


@given(jobs())
def test_encoding_what_was_decoded_gives_records_that_decode_to_the_same(job):
    features, records = job
    records = [
        r for r, row in zip(records, expected(features, records)[0], strict=True) if row is not None
    ]
    buffer, starts, lengths = positions(records)
    plan = plan_of(features)
    outs = empty_outs(features, 1, len(records))
    columns, _, _ = _native.tfrecord_decode(buffer, starts, lengths, plan, outs)
    filled = [out if column is None else column for out, column in zip(outs, columns, strict=True)]
    if any(
        f.type == 23 and (out.view("<u8") >> np.uint64(63)).any()
        for f, out in zip(features, outs, strict=True)
        if out is not None and f.form == "fixed"
    ):
        return  # no int64 list holds those
    data, offsets = _native.example_encode(plan, filled, len(records))
    found, consumed, fault = twins.scan(data.tobytes())
    assert (consumed, fault) == (len(data), None)
    assert [at for at, _ in found] == offsets[:-1].tolist()
    again = [data[at + 12 : at + 12 + size].tobytes() for at, size in found]
    theirs = expected(features, records)
    ours = expected(features, again)
    assert ours[1] == []
    assert_same_rows(features, ours[0], theirs[0])
    for record in again:
        assert record == twins.encode_example(
            {key.decode(): pair for key, pair in twins.read_example(record).items()}
        )


@given(st.binary(max_size=9000), st.integers(0, 16))
def test_checksums_agree_with_the_twin(data, skipped):
    part = memoryview(data)[skipped:]
    assert _native.crc32c(part) == _native.crc32c(part, portable=True) == twins.crc32c(part)


def test_checksums_of_all_short_lengths_are_right():
    data = np.random.default_rng(0).integers(0, 256, 5000, np.uint8).tobytes()
    assert _native.crc32c(b"123456789") == 0xE3069283
    for size in range(1, 4200):
        assert _native.crc32c(data[:size]) == _native.crc32c(data[:size], portable=True)


@given(st.data())
def test_scanning_agrees_with_the_twin(data):
    payloads = data.draw(st.lists(st.binary(max_size=40), max_size=5))
    content = b"".join(map(twins.frame, payloads))
    if data.draw(st.booleans()):
        content = data.draw(damaged(content))
    remaining = data.draw(st.sampled_from([None, len(content), len(content) + 10]))
    verify = data.draw(st.booleans())
    found, consumed, fault = twins.scan(content, remaining, verify)
    options = {} if remaining is None else {"remaining": remaining}
    if fault and not found:
        with pytest.raises(_native.RecordError) as raised:
            _native.tfrecord_scan(content, 1000, verify, **options)
        assert (raised.value.kind, raised.value.offset) == (fault, 1000)
        return
    offsets, lengths, used = _native.tfrecord_scan(content, 1000, verify, **options)
    assert list(zip((offsets - 1000).tolist(), lengths.tolist(), strict=True)) == found
    assert used == consumed


@given(st.lists(st.binary(max_size=30), min_size=1, max_size=4), st.binary(max_size=40))
def test_the_next_sound_record_is_found_after_damage(payloads, noise):
    content = noise + b"".join(map(twins.frame, payloads))
    assert _native.tfrecord_find(content, 0) == len(noise)
    rest = content[: len(noise) + 12]  # of the last record, only the header is there
    assert _native.tfrecord_find(rest, 0) == len(noise)
    assert _native.tfrecord_find(noise, 0) == len(noise)


@given(st.lists(st.binary(max_size=30), max_size=5))
def test_framing_agrees_with_the_twin(payloads):
    offsets = np.cumsum([0, *map(len, payloads)], dtype=np.int64)
    framed = _native.tfrecord_frame(b"".join(payloads), offsets)
    assert framed.tobytes() == b"".join(map(twins.frame, payloads))


@pytest.mark.parametrize(
    ("position", "kind", "offset"),
    [
        (0, "length_checksum", 8),
        (9, "length_checksum", 8),
        (14, "data_checksum", 12 + 9),
        (21, "data_checksum", 12 + 9),
    ],
)
def test_a_flipped_bit_is_found_by_its_checksum(position, kind, offset):
    content = bytearray(twins.frame(b"123456789"))
    content[position] ^= 4
    with pytest.raises(_native.RecordError) as raised:
        _native.tfrecord_decode(bytes(content), np.array([0]), np.array([9]), plan_of([]), [])
    assert (raised.value.kind, raised.value.offset, raised.value.feature) == (kind, offset, -1)


def test_without_verification_only_the_layout_is_checked():
    content = bytearray(twins.frame(b""))
    content[9] ^= 1
    _native.tfrecord_decode(bytes(content), np.array([0]), np.array([0]), plan_of([]), [], False)
    with pytest.raises(_native.RecordError, match="length_differs"):
        _native.tfrecord_decode(
            bytes(content) + b"12", np.array([0]), np.array([2]), plan_of([]), [], False
        )


@pytest.mark.parametrize(
    ("start", "length"), [(-1, 0), (0, -1), (1, 0), (2**63 - 1, 0), (0, 2**63 - 1), (0, 1), (17, 0)]
)
def test_a_record_outside_the_buffer_is_truncated(start, length):
    buffer, starts, lengths = twins.frame(b""), np.array([start]), np.array([length])
    for framed in (True, False):
        if (start, length, framed) in [(1, 0, False), (0, 1, False)]:
            continue
        with pytest.raises(_native.RecordError, match="truncated"):
            _native.tfrecord_decode(buffer, starts, lengths, plan_of([]), [], framed=framed)


def test_an_absurd_length_is_refused_at_once():
    header = struct.pack("<Q", 2**63)
    content = header + struct.pack("<I", twins.masked(header)) + b"1234"
    with pytest.raises(_native.RecordError, match="truncated"):
        _native.tfrecord_scan(content)


def test_a_tensor_of_a_trillion_equal_values_is_refused_where_the_shape_is_open():
    message = encode_tensor(1, [2**40], b"") + delimited(5, b"\0\0\x80?")
    record = twins.encode_example({"t": ("bytes", [message])})
    assert decode([Feature("t", "tensor", 1, [-1])], [record])[1] == [(0, 0, "tensor_expands")]
    strings = encode_tensor(7, [2**40], []) + delimited(8, b"text")
    record = twins.encode_example({"t": ("bytes", [strings])})
    assert decode([Feature("t", "tensor", 7, [-1])], [record])[1] == [(0, 0, "tensor_expands")]


def test_more_features_than_the_fast_path_remembers():
    features = [Feature(f"feature {i}", "fixed", 9, []) for i in range(200)]
    records = [
        twins.encode_example({f.name: ("ints", [i * k]) for i, f in enumerate(features)})
        for k in (1, 2, 1)
    ]
    rows, faults = decode(features, records)
    assert faults == []
    assert_same_rows(features, rows, expected(features, records)[0])


def test_many_threads_may_use_one_plan():
    features = [Feature("x", "fixed", 1, [50]), Feature("y", "variable", 9)]
    plan = plan_of(features)
    records = [
        twins.encode_example({"x": ("floats", [k] * 50), "y": ("ints", range(k))})
        for k in range(50)
    ]
    buffer, starts, lengths = positions(records)
    results = []

    def work():
        for _ in range(20):
            outs = empty_outs(features, 1, len(records))
            columns, _, _ = _native.tfrecord_decode(buffer, starts, lengths, plan, outs)
            results.append((outs[0].tobytes(), columns[1][0].tobytes()))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 80
    assert len(set(results)) == 1
