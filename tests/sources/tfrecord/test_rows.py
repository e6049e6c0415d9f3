"""from_tfrecord: which rows are read, by which calls, and what is told about them."""

import subprocess
import sys

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance
from tests.sources.tfrecord.files import (
    FEATURES,
    FIXED,
    labels,
    payloads,
    rows,
    starts,
    write,
)

import penstock as ps
from penstock.errors import DataError, MissingFileError


def fixed(count, start=0):
    return [{"data": one["data"], "label": one["label"]} for one in rows(count, start)]


# -- conformance --------------------------------------------------------------------------------


class TestRandomAccess(SourceConformance):
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


@pytest.mark.parametrize("record", [0, 7, 39])
@pytest.mark.parametrize("index", [True, False])
def test_a_damaged_record_tells_no_features(tmp_path, index, record):
    spec = ps.from_tfrecord(write(tmp_path / "a.tfrecord", payloads(40))).spec
    content = bytearray((tmp_path / "a.tfrecord").read_bytes())
    at = content.index(b"label", starts(payloads(40))[record])
    content[at : at + 5] = b"other"
    (tmp_path / "a.tfrecord").write_bytes(content)
    ds = ps.from_tfrecord(tmp_path / "a.tfrecord", index=index)
    assert ds.spec == spec
    good = labels(ds.with_options(on_error="skip"))
    assert good == [number for number in range(40) if number != record]
    with pytest.raises(DataError, match=rf"a\.tfrecord.*row {record}"):
        run(ds)


def test_variable_features_pad_and_defaults_fill(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(6))
    nest = {"ids": ps.VarFeature("int32"), "none": ps.FixedFeature((2,), "int8", default=7)}
    (batch,) = run(ps.from_tfrecord(path, nest).padded_batch(6))
    assert batch["ids"].tolist()[3] == [0, 1, 2]
    assert batch["ids"].dtype == np.int32
    assert batch["none"].tolist() == [[7, 7]] * 6


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
    for beside in ("features.json", "x-train.tfrecord-00000-of-00002.index", "tfrecords.txt"):
        (tmp_path / beside).write_text("{}")
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
        [dict(zip(names, leaves, strict=True)) for leaves in block.finish().leaves(500)],
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


def test_mistakes_in_the_call_are_refused_at_once(tmp_path):
    path = write(tmp_path / "a.tfrecord", payloads(3))
    with pytest.raises(ValueError, match="compression must be"):
        ps.from_tfrecord(path, FIXED, compression="zstd")
    with pytest.raises(ValueError, match="leave the features out"):
        ps.from_tfrecord(path, FIXED, raw=True)
    with pytest.raises(
        TypeError, match="FixedFeature, VarFeature, TensorFeature, ImageFeature or SequenceFeature"
    ):
        ps.from_tfrecord(path, {"label": "int64"})
    with pytest.raises(MissingFileError):
        ps.from_tfrecord(tmp_path / "none.tfrecord", FIXED)
    write(path, [b"\xff\xff\xff"])
    with pytest.raises(DataError, match=r"tell no features.*raw=True"):
        ps.from_tfrecord(path)


def test_bytes_that_are_no_records_are_not_said_to_be_an_empty_file(tmp_path):
    (tmp_path / "a.tfrecord").write_bytes(bytes(range(250)) * 20)
    for index in (True, False):
        with pytest.raises(DataError, match=r"a\.tfrecord: no record at its beginning.*damaged"):
            ps.from_tfrecord(tmp_path / "a.tfrecord", index=index)
