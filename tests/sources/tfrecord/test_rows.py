"""from_tfrecord: rows by number and from front to back, the index, and what a damaged file says."""

import gzip
import os
import pickle
import subprocess
import sys
import zlib
from itertools import pairwise

import numpy as np
import pytest
from tests.conformance import Case, Conformance, assert_same, run
from tests.sources.conformance import SourceConformance
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
from penstock.core.rows import Flow, Rows
from penstock.io.errors import DataError, FileChangedError, MissingFileError
from penstock.sources.tfrecord import index as tfrecord_index
from penstock.sources.tfrecord.rows import describe_tfrecord


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    """The user's cache directory, one a test."""
    folder = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))
    return folder / "penstock" / "tfrecord-index"


def labels(ds):
    return [int(one["label"]) for one in run(ds)]


def fixed(count, start=0):
    return [{"data": one["data"], "label": one["label"]} for one in rows(count, start)]


# -- conformance --------------------------------------------------------------------------------


class TestAddressable(SourceConformance):
    """Three files, one of them empty, every kind of feature."""

    @pytest.fixture
    def case(self, tmp_path):
        for number, (start, count) in enumerate([(0, 9), (9, 0), (9, 14)]):
            write(tmp_path / f"{number}.tfrecord", payloads(count, start))
        return Case(lambda: ps.from_tfrecord(tmp_path / "*.tfrecord", FEATURES), rows(23))


class TestFixedRows(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path):
        path = write(tmp_path / "a.tfrecord", payloads(25))
        return Case(lambda: ps.from_tfrecord(path, FIXED), fixed(25))


class TestRaw(SourceConformance):
    @pytest.fixture
    def case(self, tmp_path):
        records = [b"", b"not an example", *payloads(10)]
        path = write(tmp_path / "a.tfrecord", records)
        return Case(lambda: ps.from_tfrecord(path, raw=True), records)


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


# -- what is read -------------------------------------------------------------------------------


def test_features_come_as_the_nest_they_were_declared_in(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(5))
    nest = (ps.FixedFeature((3,), "float32", name="data"), {"y": {"label": FEATURES["label"]}})
    found = run(ps.from_tfrecord(path, nest).batch(5))[0]
    assert found[0].shape == (5, 3)
    assert found[1]["y"]["label"].tolist() == [0, 1, 2, 3, 4]


def test_features_are_inferred_from_the_first_records(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(40))
    ds = ps.from_tfrecord(path)
    assert ds.spec == {
        "data": ps.ArraySpec((3,), "float32"),
        "ids": ps.ArraySpec((None,), "int64"),
        "image": ps.ArraySpec((2, None), "uint8"),
        "label": ps.ArraySpec((), "int64"),
        "name": ps.ArraySpec((), bytes),
        "words": ps.ArraySpec((None,), bytes),
    }
    assert labels(ds) == list(range(40))


def test_variable_features_pad_and_defaults_fill(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(6))
    nest = {"ids": ps.VarFeature("int32"), "none": ps.FixedFeature((2,), "int8", default=7)}
    (batch,) = run(ps.from_tfrecord(path, nest).padded_batch(6))
    assert batch["ids"].tolist()[3] == [0, 1, 2]
    assert batch["ids"].dtype == np.int32
    assert batch["none"].tolist() == [[7, 7]] * 6


@pytest.mark.parametrize("compression", [None, "GZIP", "ZLIB"])
def test_compression_is_found_and_may_be_said(tmp_path, compression):
    path = write(tmp_path / "any.name", payloads(12), compression)
    assert labels(ps.from_tfrecord(path, FIXED)) == list(range(12))
    said = ps.from_tfrecord(path, FIXED, compression=compression or "")
    assert labels(said) == list(range(12))
    assert isinstance(said.node, Flow if compression else Rows)


def test_packed_files_put_one_after_the_other_are_read_to_the_end(tmp_path):
    path = tmp_path / "a.gz"
    path.write_bytes(b"".join(gzip.compress(framed(payloads(5, 5 * n))) for n in range(3)))
    assert labels(ps.from_tfrecord(path, FIXED)) == list(range(15))


def test_records_larger_than_a_piece_are_read_every_way(tmp_path):
    big = {"x": ps.TensorFeature((None,), "uint8")}
    values = [np.full(size, size % 251, "uint8") for size in (3, 6_000_000, 5, 70_000, 2_200_000)]
    records = [ps.tfrecord.encode_example({"x": one}, big) for one in values]
    plain, packed = write(tmp_path / "a", records), write(tmp_path / "b", records, "GZIP")
    ways = [ps.from_tfrecord(plain, big), ps.from_tfrecord(plain, big, index=False)]
    for ds in [*ways, ps.from_tfrecord(packed, big)]:
        assert_same([one["x"] for one in run(ds)], values)
    assert_same([one["x"] for one in run(ways[0].skip(1).take(2))], values[1:3])


def test_of_a_folder_the_files_that_are_called_tfrecord_are_read(tmp_path):
    for number in range(2):
        write(tmp_path / f"x-train.tfrecord-0000{number}-of-00002", payloads(5, 5 * number))
    (tmp_path / "features.json").write_text("{}")
    assert labels(ps.from_tfrecord(tmp_path, FIXED)) == list(range(10))


def test_no_records_are_no_rows(tmp_path):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"")
    assert len(ps.from_tfrecord(path, FIXED)) == 0
    assert run(ps.from_tfrecord(path, FEATURES)) == []
    assert run(ps.from_tfrecord(path, FIXED, index=False).batch(3)) == []
    with pytest.raises(DataError, match=r"no records.*Give features"):
        ps.from_tfrecord(path)


def test_batches_of_batches_of_records_are_right(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(26))
    nested = ps.from_tfrecord(path, FIXED).batch(3, drop_remainder=True).batch(2)
    plain = ps.from_arrays({"label": np.arange(26)}).batch(3, drop_remainder=True).batch(2)
    assert [b["label"].tolist() for b in run(nested)] == [b["label"].tolist() for b in run(plain)]
    assert run(nested.shuffle(seed=1))[0]["data"].shape == (2, 3, 3)


def test_scattered_rows_of_many_files_are_read_to_their_places(tmp_path):
    for n in range(7):
        write(tmp_path / f"{n}.tfrecord", payloads(100 * n, 1000 * n))
    ds = ps.from_tfrecord(tmp_path, FEATURES)
    every = run(ds)
    index = np.random.default_rng(0).integers(0, len(every), 500)
    index[10:20] = index[5]  # The same row more than once.
    from penstock.core.rows import plain_context

    context = plain_context()
    block = context.block(ds.node, len(index))
    ds.node.read(index, block, context)
    context.resources.close()
    names = sorted(FEATURES)
    expected = [{name: every[i][name] for name in names} for i in index]
    assert_same(
        [dict(zip(names, leaves, strict=True)) for leaves in block.finish().elements(500, None)],
        expected,
    )


def test_a_window_smaller_than_the_data_mixes_and_loses_nothing(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(3000))
    ds = ps.from_tfrecord(path, FEATURES).shuffle(seed=0, window="128KB")
    assert "windowed" in str(ds.explain())
    order = labels(ds)
    assert sorted(order) == list(range(3000))
    assert order != list(range(3000))
    with ds.stream() as stream:
        for _ in range(1234):
            next(stream)
        state = stream.state()
    assert [int(r["label"]) for r in run(ds, state=state)] == order[1234:]


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


def test_it_explains_what_reading_forward_costs(tmp_path):
    plain, packed = write(tmp_path / "a", payloads(3)), write(tmp_path / "b", payloads(3), "GZIP")
    assert "index=True" in str(ps.from_tfrecord(plain, FIXED, index=False).explain())
    assert "a resume unpacks what it skips" in str(ps.from_tfrecord(packed, FIXED).explain())
    skipping = ps.from_tfrecord(plain, FIXED).with_options(on_error="skip")
    assert "on_error='skip'" in str(skipping.explain())
    assert "both checksums verified" in str(ps.from_tfrecord(plain, FIXED).explain())


def test_it_stays_within_a_small_budget(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(4000))
    for ds in (
        ps.from_tfrecord(path, FIXED).batch(32),
        ps.from_tfrecord(path, FIXED, index=False).batch(32),
    ):
        need = ds.explain().need_nbytes
        with ds.with_options(memory=need).stream() as stream:
            assert sum(len(batch["label"]) for batch in stream) == 4000
            assert stream.report().peak_nbytes <= need


def test_no_tensorflow_is_imported(tmp_path):
    write(tmp_path / "a.tfrecord", payloads(5))
    code = (
        "import sys, penstock as ps\n"
        f"ds = ps.from_tfrecord({str(tmp_path / 'a.tfrecord')!r})\n"
        f"list(ds); ds.write({str(tmp_path / 'out')!r}, format='tfrecord')\n"
        "assert not {'tensorflow', 'google'} & {name.split('.')[0] for name in sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# -- the index ----------------------------------------------------------------------------------


def scans(monkeypatch):
    """Count the scans from here on."""
    made = []
    real = tfrecord_index._scan

    def scan(location, **options):
        made.append(location.name)
        return real(location, **options)

    monkeypatch.setattr(tfrecord_index, "_scan", scan)
    return made


def test_the_index_is_kept_in_the_cache_directory_and_not_beside_the_data(
    tmp_path, cache, monkeypatch
):
    write(tmp_path / "a.tfrecord", payloads(10))
    made = scans(monkeypatch)
    assert len(ps.from_tfrecord(tmp_path / "a.tfrecord", FIXED)) == 10
    assert len(ps.from_tfrecord(tmp_path / "a.tfrecord", FIXED)) == 10
    assert made == ["a.tfrecord"]
    assert [one.name for one in tmp_path.iterdir()] == ["a.tfrecord"]
    (kept,) = cache.glob("*.npy")
    assert np.load(kept).tolist() == starts(payloads(10))


def test_the_index_is_made_anew_when_size_or_time_change(tmp_path, cache, monkeypatch):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    made = scans(monkeypatch)
    assert len(ps.from_tfrecord(path, FIXED)) == 10
    write(path, payloads(12))
    assert len(ps.from_tfrecord(path, FIXED)) == 12
    other = payloads(12)
    other[0], other[1] = other[1], other[0]
    write(path, other)
    os.utime(path, ns=(1, 1))
    assert labels(ps.from_tfrecord(path, FIXED))[:3] == [1, 0, 2]
    assert len(made) == 3
    assert len(list(cache.glob("*.npy"))) == 1  # Those of earlier versions are gone.


@pytest.mark.parametrize("content", [b"", b"garbage", "short", "wrong"])
def test_a_bad_cache_entry_is_made_anew(tmp_path, cache, content):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    ps.from_tfrecord(path, FIXED)
    (kept,) = cache.glob("*.npy")
    if content == "short":
        np.save(kept, np.load(kept)[:5])
    elif content == "wrong":
        np.save(kept, np.load(kept).astype("float64"))
    else:
        kept.write_bytes(content)
    assert labels(ps.from_tfrecord(path, FIXED)) == list(range(10))
    assert np.load(kept).tolist() == starts(payloads(10))


def test_an_unwritable_cache_directory_is_done_without(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    ds = ps.from_tfrecord(path, FIXED).shuffle(seed=1)
    assert sorted(labels(ds)) == list(range(10))
    assert labels(pickle.loads(pickle.dumps(ds))) == labels(ds)


def test_a_file_that_changes_under_the_index_is_an_error(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(10))
    ds = ps.from_tfrecord(path, FIXED)
    write(path, payloads(9))
    with pytest.raises(FileChangedError, match="changed after it was listed"):
        run(ds)


def test_many_files_are_scanned_and_the_first_damaged_one_is_named(tmp_path):
    paths = [write(tmp_path / f"{n:02}.tfrecord", payloads(50, 50 * n)) for n in range(20)]
    assert labels(ps.from_tfrecord(paths, FIXED)) == list(range(1000))
    for number in (7, 13):
        damaged(paths[number], 0)
    with pytest.raises(DataError, match=r"07\.tfrecord, byte 0, row 0"):
        run(ps.from_tfrecord(paths, FIXED))


# -- damage -------------------------------------------------------------------------------------


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


def every_way(path, features=FIXED, **options):
    yield ps.from_tfrecord(path, features, **options)
    yield ps.from_tfrecord(path, features, **options).shuffle(seed=0)
    yield ps.from_tfrecord(path, features, index=False, **options).batch(3)


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


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
def test_damaged_packing_is_an_error_with_the_file(tmp_path, pack):
    packed = bytearray(pack(framed(payloads(3000))))
    path = tmp_path / "a"
    path.write_bytes(packed[:-5])
    with pytest.raises(DataError, match="cut off"):
        run(ps.from_tfrecord(path, FIXED))
    packed[len(packed) // 2] ^= 0xFF
    packed[len(packed) // 2 + 1] ^= 0xFF
    path.write_bytes(packed)
    with pytest.raises(DataError, match=str(path)):
        run(ps.from_tfrecord(path, FIXED))


@pytest.mark.parametrize(
    "content", [b"hello", b"x" * 1000, bytes(100), b"\x1f\x8bno", b"\x78\x9cno"]
)
def test_a_file_that_is_no_tfrecord_is_an_error(tmp_path, content):
    path = tmp_path / "a.tfrecord"
    path.write_bytes(content)
    for ds in every_way(path):
        with pytest.raises(DataError, match=str(path)):
            run(ds)


def test_mistakes_in_the_call_are_refused_at_once(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(3))
    with pytest.raises(ValueError, match="compression must be None"):
        ps.from_tfrecord(path, FIXED, compression="zstd")
    with pytest.raises(ValueError, match="leave the features out"):
        ps.from_tfrecord(path, FIXED, raw=True)
    with pytest.raises(TypeError, match="FixedFeature, VarFeature or TensorFeature"):
        ps.from_tfrecord(path, {"label": "int64"})
    with pytest.raises(MissingFileError):
        ps.from_tfrecord(tmp_path / "none.tfrecord", FIXED)
    write(path, [b"\xff\xff\xff"])
    with pytest.raises(DataError, match=r"tell no features.*raw=True"):
        ps.from_tfrecord(path)


def test_it_describes_files_for_inspect(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(12))
    lines = describe_tfrecord(ps.from_tfrecord(path, FIXED).node.locations)
    assert "records  12" in lines
    assert any("'data': FixedFeature(shape=(3,), dtype=dtype('float32')" in one for one in lines)
    damaged(path, starts(payloads(12))[3])
    locations = ps.from_tfrecord(path, FIXED, index=False).node.locations
    assert any("damaged" in one and "row 3" in one for one in describe_tfrecord(locations))
