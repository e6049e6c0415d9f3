"""Records from front to back: without an index, packed, and with bad records left out, counted and listed."""

import gzip
import json
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conformance import Case, Conformance, run
from tests.sources.tfrecord.files import (
    FEATURES,
    FIXED,
    damaged,
    framed,
    header,
    payloads,
    rows,
    starts,
    write,
)

import penstock as ps
from penstock.errors import DataError


class TestWithoutIndex(Conformance):
    @pytest.fixture
    def case(self, tmp_path):
        paths = [write(tmp_path / f"{n}.tfrecord", payloads(8, 8 * n)) for n in range(3)]
        make = lambda: ps.from_tfrecord(paths, FEATURES, index=False)  # noqa: E731
        return Case(make, rows(24), has_length=False)


@pytest.mark.parametrize("compression", ["GZIP", "ZLIB"])
class TestPacked(Conformance):
    @pytest.fixture
    def case(self, tmp_path, compression):
        paths = [write(tmp_path / f"{n}", payloads(8, 8 * n), compression) for n in range(3)]
        return Case(lambda: ps.from_tfrecord(paths, FEATURES), rows(24), has_length=False)


class TestSkipping(Conformance):
    @pytest.fixture
    def case(self, tmp_path):
        path = write(tmp_path / "a.tfrecord", payloads(30))
        places = starts(payloads(30))
        for bad in (0, 7, 8, 29):
            damaged(path, places[bad] + 14)
        kept = [one for n, one in enumerate(rows(30)) if n not in (0, 7, 8, 29)]
        make = lambda: ps.from_tfrecord(path, FEATURES).with_options(on_error="skip")  # noqa: E731
        return Case(make, kept, has_length=False)


def test_a_resume_without_an_index_goes_straight_to_its_byte(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(500))
    ds = ps.from_tfrecord(path, FIXED, index=False)
    with ds.stream() as stream:
        for _ in range(321):
            next(stream)
        state = stream.state()
    assert state["cursor"] == [0, starts(payloads(500))[321], 321]
    damaged(path, 3)  # What was passed is not looked at again; its size and time stay the same.
    os.utime(path, ns=(ds.node.locations[0].mtime_ns,) * 2)
    assert [int(r["label"]) for r in run(ds, state=state)] == list(range(321, 500))


# -- on_error="skip" ------------------------------------------------------------------------------


def skipping(path, features=FIXED, max_errors=None, **options):
    ds = ps.from_tfrecord(path, features, **options)
    return ds.with_options(on_error="skip", max_errors=max_errors)


def read(ds):
    """The labels, and the report."""
    with ds.stream() as stream:
        found = [int(one["label"]) for one in stream]
        return found, stream.report()


@pytest.mark.parametrize("place", ["length", "length checksum", "data", "data checksum"])
@pytest.mark.parametrize("bad", [0, 4, 9])
def test_reading_goes_on_at_the_next_record(tmp_path, place, bad):
    records = payloads(10)
    path = write(tmp_path / "a.tfrecord", records)
    begin, end = starts(records)[bad : bad + 2]
    at = {
        "length": begin,
        "length checksum": begin + 9,
        "data": begin + 15,
        "data checksum": end - 1,
    }
    damaged(path, at[place])
    for ds in (skipping(path), skipping(path, index=False), skipping(path, FEATURES)):
        found, report = read(ds)
        assert found == [n for n in range(10) if n != bad]
        assert report.num_skipped == 1
        assert f"{path}, byte" in report.skipped[0]
        assert f"row {bad}" in report.skipped[0]
        assert "skipped           1 bad rows" in str(report)


def test_records_that_are_not_what_was_declared_are_left_out(tmp_path):
    records = payloads(2000)
    for bad in range(0, 2000, 7):
        records[bad] = ps.tfrecord.encode_example({"label": [1, 2], "data": [0.0, 0.0, 0.0]})
    path = write(tmp_path / "a.tfrecord", records)
    good = [n for n in range(2000) if n % 7]
    for threads in (0, 3):
        found, report = read(skipping(path).with_options(threads=threads))
        assert found == good
        assert report.num_skipped == 286
        assert len(report.skipped) == 10
        assert all("feature 'label'" in one for one in report.skipped)
    batches = run(skipping(path).batch(32))
    assert np.concatenate([b["label"] for b in batches]).tolist() == good


def test_a_truncated_last_record_ends_its_file_and_the_next_one_follows(tmp_path):
    paths = [write(tmp_path / f"{n}", payloads(10, 10 * n)) for n in range(2)]
    paths[0].write_bytes(paths[0].read_bytes()[:-7])
    found, report = read(skipping(paths))
    assert found == [*range(9), *range(10, 20)]
    assert report.num_skipped == 1
    assert "cut off" in report.skipped[0]


def test_garbage_between_records_is_passed_over(tmp_path):
    path = tmp_path / "a"
    garbage = np.random.default_rng(0).integers(0, 256, 300_000).astype("uint8").tobytes()
    path.write_bytes(framed(payloads(5)) + garbage + framed(payloads(5, 5)))
    found, report = read(skipping(path))
    assert found == list(range(10))
    assert report.num_skipped == 1


def test_an_absurd_length_ends_a_file_and_takes_no_memory(tmp_path):
    for number, data in enumerate((framed(payloads(3)) + header(2**60) + b"x" * 50, b"")):
        (tmp_path / f"{number}").write_bytes(data + framed(payloads(3, 3)) * number)
    found, report = read(skipping(tmp_path).with_options(memory="32MB"))
    assert found == list(range(6))
    assert report.num_skipped == 1


def test_damaged_packing_ends_its_file(tmp_path):
    packed = gzip.compress(framed(payloads(50)))
    (tmp_path / "0").write_bytes(packed[:-30])
    (tmp_path / "1").write_bytes(gzip.compress(framed(payloads(5, 50))))
    found, report = read(skipping(tmp_path))
    assert found[-5:] == list(range(50, 55))
    assert found[:-5] == list(range(len(found) - 5))
    assert report.num_skipped == 1
    assert "cut off" in report.skipped[0]


def test_more_than_max_errors_is_an_error(tmp_path):
    records = payloads(10)
    path = write(tmp_path / "a", records)
    for bad in (2, 5, 8):
        damaged(path, starts(records)[bad] + 13)
    assert len(read(skipping(path, max_errors=3))[0]) == 7
    with pytest.raises(DataError, match="row 8") as caught:
        read(skipping(path, max_errors=2).with_options(threads=0))
    assert "max_errors=2" in caught.value.__notes__[0]
    with pytest.raises(DataError, match="row 2"):
        read(skipping(path, max_errors=0).with_options(threads=0))


def test_skipping_has_no_length_and_raising_again_has_one(tmp_path):
    path = write(tmp_path / "a", payloads(10))
    ds = ps.from_tfrecord(path, FIXED)
    skipped = ds.shuffle(seed=0).batch(3).with_options(on_error="skip")
    with pytest.raises(TypeError, match="length can't be known"):
        len(skipped)
    assert len(skipped.with_options(on_error="raise")) == 4
    assert len(ds) == 10
    with pytest.raises(ValueError, match='on_error must be "raise" or "skip"'):
        ds.with_options(on_error="ignore")


def test_the_whole_chain_is_built_anew_wherever_it_is_said(tmp_path):
    records = payloads(20)
    path = write(tmp_path / "a", records)
    damaged(path, starts(records)[3] + 13)
    good = [n for n in range(20) if n != 3]
    base = ps.from_tfrecord(path, FIXED)
    early = base.with_options(on_error="skip").map(lambda r: {"label": r["label"]}).skip(2).take(9)
    late = base.map(lambda r: {"label": r["label"]}).skip(2).take(9).with_options(on_error="skip")
    assert read(early)[0] == read(late)[0] == good[2:11]
    both = ps.concatenate(base, base.with_options(on_error="skip"))
    assert read(both)[0] == good * 2
    assert sorted(read(base.shuffle(seed=1).repeat(2).with_options(on_error="skip"))[0]) == sorted(
        good * 2
    )
    cached = base.cache().with_options(on_error="skip")
    assert read(cached)[0] == read(cached)[0] == good
    with pytest.raises(DataError, match="row 3"):
        run(base)


@settings(max_examples=40)
@given(
    bad=st.sets(st.integers(0, 29)),
    cut=st.sampled_from([3, 9, 14, -2]),
    stop=st.integers(0, 30),
    compression=st.sampled_from([None, "GZIP"]),
)
def test_every_good_record_comes_once_and_every_resume_goes_on(
    tmp_path_factory, bad, cut, stop, compression
):
    records = payloads(30)
    data = bytearray(framed(records))
    places = starts(records)
    for number in bad:
        data[places[number] + cut if cut > 0 else places[number + 1] + cut] ^= 0x55
    path = tmp_path_factory.mktemp("files") / "a"
    path.write_bytes(gzip.compress(bytes(data)) if compression else bytes(data))
    good = [n for n in range(30) if n not in bad]
    ds = skipping(path)
    assert read(ds)[0] == good
    with ds.stream() as stream:
        for _ in range(min(stop, len(good))):
            next(stream)
        state = json.loads(json.dumps(stream.state()))
    rest = good[stop:] if stop < len(good) else good
    assert [int(one["label"]) for one in run(ds, state=state)] == rest
