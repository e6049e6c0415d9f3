"""Bad records: an error that names the file, the byte and the row, whichever way they are read."""

import gzip
from itertools import pairwise

import pytest
from tests.conformance import run
from tests.sources.tfrecord.files import (
    FIXED,
    damaged,
    every_way,
    framed,
    header,
    labels,
    payloads,
    rows,
    starts,
    write,
)

import penstock as ps
from penstock.errors import DataError


def wrong_proto(records):
    return [*records[:4], b"\xff\xff\xff not a proto", *records[5:]]


def with_row(records, **changes):
    listed = {k: v for k, v in rows(1, 4)[0].items() if k in ("data", "label")}
    changed = {k: v for k, v in {**listed, **changes}.items() if v is not None}
    return [*records[:4], ps.tfrecord.encode_example(changed), *records[5:]]


BAD_PAYLOADS = {
    "garbage proto": (wrong_proto, "must be a tf.train.Example"),
    "wrong dtype": (lambda r: with_row(r, label=1.5), "feature 'label' must be a list of ints"),
    "wrong size": (lambda r: with_row(r, data=[1.0] * 4), "feature 'data' must have the values of"),
    "missing": (lambda r: with_row(r, label=None), "feature 'label' must be in every record"),
}
BAD_BYTES = {
    "length checksum": (lambda at, _: (at + 9,), "length must match its checksum"),
    "length": (lambda at, _: (at + 1,), "length must match its checksum"),
    "data": (lambda at, _: (at + 20,), "data must match its checksum"),
    "data checksum": (lambda _, end: (end - 2,), "data must match its checksum"),
}


@pytest.mark.parametrize("kind", BAD_PAYLOADS)
def test_a_record_that_is_not_what_was_declared_is_named(tmp_path, kind):
    change, message = BAD_PAYLOADS[kind]
    records = change(payloads(10))
    path = write(tmp_path / "a.tfrecord", records)
    first, last = starts(records)[4:6]
    for ds in every_way(path):
        with pytest.raises(DataError, match=message) as caught:
            run(ds)
        assert caught.value.row == 4
        assert first <= caught.value.offset < last
        assert caught.value.file == str(path)
        assert "byte" in str(caught.value)


@pytest.mark.parametrize("kind", BAD_BYTES)
def test_a_checksum_that_does_not_match_is_named(tmp_path, kind):
    where, message = BAD_BYTES[kind]
    records = payloads(10)
    path = write(tmp_path / "a.tfrecord", records)
    first, last = starts(records)[4:6]
    for at in where(first, last):
        damaged(path, at)
    for ds in every_way(path):
        with pytest.raises(DataError, match=message) as caught:
            run(ds)
        assert caught.value.row == 4
        assert first <= caught.value.offset <= last
    if kind.startswith("data"):
        assert len(run(ps.from_tfrecord(path, raw=True, verify=False))) == 10
        with pytest.raises(DataError, match=message):
            run(ps.from_tfrecord(path, raw=True))


def test_checksums_are_not_looked_at_without_verify(tmp_path):
    records = payloads(10)
    path = write(tmp_path / "a.tfrecord", records)
    for start, end in pairwise(starts(records)):
        damaged(path, start + 9)
        damaged(path, end - 1)
    assert labels(ps.from_tfrecord(path, FIXED, verify=False)) == list(range(10))
    assert labels(ps.from_tfrecord(path, FIXED, verify=False, index=False)) == list(range(10))
    with pytest.raises(DataError, match="length must match"):
        run(ps.from_tfrecord(path, FIXED))


@pytest.mark.parametrize("cut", [1, 4, 13, 20, 30])
@pytest.mark.parametrize("compression", [None, "GZIP"])
def test_a_file_that_is_cut_off_is_an_error_at_its_last_record(tmp_path, cut, compression):
    data = framed(payloads(10))[:-cut]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data if compression is None else gzip.compress(data))
    for ds in every_way(path):
        with pytest.raises(DataError, match="cut off") as caught:
            run(ds)
        assert caught.value.row == 9


@pytest.mark.parametrize("length", [2**63 - 1, 2**40, 10_000_000])
def test_an_absurd_length_is_refused_without_taking_memory_for_it(tmp_path, length):
    data = framed(payloads(3)) + header(length) + b"short"
    (tmp_path / "a.tfrecord").write_bytes(data)
    (tmp_path / "b.gz").write_bytes(gzip.compress(data))
    for path in tmp_path.iterdir():
        for ds in every_way(path):
            with pytest.raises(DataError, match="cut off"):
                run(ds.with_options(memory="96MB"))


@pytest.mark.parametrize(
    "content", [b"hello", b"x" * 1000, bytes(100), b"\x1f\x8bno", b"\x78\x9cno"]
)
def test_a_file_that_is_no_tfrecord_is_an_error(tmp_path, content):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    for ds in every_way(path):
        with pytest.raises(DataError, match=str(path)):
            run(ds)
