"""write(format="tfrecord"): shards that appear whole, and give back the rows that went in."""

import numpy as np
import pytest
from tests.conformance import assert_same, run

import penstock as ps
from penstock.errors import RangeError, TargetExistsError
from penstock.writers.tfrecord import feature_of


@pytest.fixture(autouse=True)
def _cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def sample(count):
    random = np.random.default_rng(0)
    return {
        "x": random.random((count, 4), dtype="float32"),
        "image": random.integers(0, 256, (count, 3, 2)).astype("uint8"),
        "double": random.random(count),
        "label": np.arange(count),
        "text": [f"é{n}" for n in range(count)],
        "ids": [np.arange(n % 3) for n in range(count)],
        "nested": {"big": np.arange(count).astype(">i8"), "flag": np.arange(count) % 2 == 0},
        "empty": np.zeros((count, 0), "float32"),
    }


FEATURES = {
    "x": ps.FixedFeature((4,), "float32"),
    "image": ps.TensorFeature((3, 2), "uint8"),
    "double": ps.TensorFeature((), "float64"),
    "label": ps.FixedFeature((), "int64"),
    "text": ps.FixedFeature((), str),
    "ids": ps.VarFeature("int64"),
    "nested": {
        "big": ps.FixedFeature((), "int64", name="nested.big"),
        "flag": ps.FixedFeature((), "bool", name="nested.flag"),
    },
    "empty": ps.FixedFeature((0,), "float32"),
}


def names(folder):
    return sorted(one.name for one in folder.iterdir())


def native(row):
    return {**row, "nested": {**row["nested"], "big": np.int64(row["nested"]["big"])}}


@pytest.mark.parametrize("count", [0, 1, 3000])
def test_rows_come_back_as_they_were(tmp_path, count):
    ds = ps.from_arrays(sample(max(count, 1))).take(count)
    ds.write(tmp_path / "out", format="tfrecord")
    assert names(tmp_path / "out") == ["part-00000.tfrecord"]
    back = ps.from_tfrecord(tmp_path / "out", FEATURES)
    assert_same(run(back), [native(row) for row in run(ds)])


@pytest.mark.parametrize(("count", "shards"), [(10, 3), (10, 10), (3, 5), (0, 2)])
def test_shards_are_as_many_as_were_asked_for_and_even(tmp_path, count, shards):
    ps.from_arrays({"x": np.arange(10)}).take(count).write(
        tmp_path / "out", format="tfrecord", shards=shards
    )
    paths = sorted((tmp_path / "out").iterdir())
    assert [one.name for one in paths] == [
        f"part-{n:05d}-of-{shards:05d}.tfrecord" for n in range(shards)
    ]
    feature = {"x": ps.FixedFeature((), "int64")}
    sizes = [len(ps.from_tfrecord(path, feature)) for path in paths]
    assert sum(sizes) == count
    assert max(sizes) - min(sizes) <= 1
    assert [int(row["x"]) for row in ps.from_tfrecord(paths, feature)] == list(range(count))


def test_shards_of_so_many_rows_end_where_they_should(tmp_path):
    ds = ps.from_arrays({"x": np.arange(10)}).shuffle(seed=1)
    ds.write(tmp_path / "out", format="tfrecord", shard_rows=4)
    assert names(tmp_path / "out") == [f"part-{n:05d}.tfrecord" for n in range(3)]
    back = ps.from_tfrecord(tmp_path / "out")
    assert [int(row["x"]) for row in back] == [int(row["x"]) for row in ds.stream()]


def test_what_is_there_is_only_replaced_if_it_is_shards(tmp_path):
    ds = ps.from_arrays({"x": np.arange(3)})
    ds.write(tmp_path / "out", format="tfrecord")
    with pytest.raises(TargetExistsError):
        ds.write(tmp_path / "out", format="tfrecord")
    ds.take(2).write(tmp_path / "out", format="tfrecord", overwrite=True)
    assert len(ps.from_tfrecord(tmp_path / "out")) == 2
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(TargetExistsError, match="is not overwritten"):
        ds.write(tmp_path / "out", format="tfrecord", overwrite=True)


def test_an_error_leaves_nothing_behind(tmp_path):
    def fails(x):
        if x == 2500:
            raise ValueError("no")
        return x

    ds = ps.from_arrays(np.arange(3000)).map(fails)
    with pytest.raises(ps.FunctionError):
        ds.write(tmp_path / "out", format="tfrecord")
    assert list(tmp_path.iterdir()) == []


def test_batches_and_unknown_lengths_are_refused_with_the_cure(tmp_path):
    ds = ps.from_arrays({"x": np.arange(4)})
    with pytest.raises(ValueError, match="write before batching"):
        ds.batch(2).write(tmp_path / "out", format="tfrecord")
    with pytest.raises(ValueError, match="shards needs a dataset with a length"):
        ds.filter(lambda row: True).write(tmp_path / "out", format="tfrecord", shards=2)


REFUSED = {
    "M8[D]": (r"datetime64\[D\]", r'row\.astype\("int64"\)', lambda x: x.astype("int64")),
    "m8[s]": (r"timedelta64\[s\]", r'row\.astype\("int64"\)', lambda x: x.astype("int64")),
    "U2": ("<U2", r"map\(str\)", str),
    "S4": (r"\|S4", r"map\(bytes\)", bytes),
    "V3": (r"\|V3", r"map\(bytes\)", bytes),
    "longdouble": ("float128", "map it to float32 or float64", np.float64),
    "clongdouble": ("complex256", "map it to complex64", np.complex128),
    "i4,f4": ("i4", "make a dict of its columns", lambda x: {"a": x["f0"], "b": x["f1"]}),
}


@pytest.mark.parametrize("dtype", REFUSED)
def test_what_records_do_not_hold_is_refused_with_the_field_and_a_cure_that_works(tmp_path, dtype):
    said, cure, cured = REFUSED[dtype]
    values = np.zeros(3, dtype)
    with pytest.raises(TypeError, match=rf"field 'a\.b' is .*{said}.*{cure}.*format=\"npy\""):
        ps.from_arrays({"a": {"b": values}}).write(tmp_path / "out", format="tfrecord")
    assert not list(tmp_path.iterdir())
    ps.from_arrays(values).map(cured).write(tmp_path / "out", format="tfrecord")
    assert len(ps.from_tfrecord(tmp_path / "out")) == 3


def test_rows_of_several_texts_of_one_width_are_refused_with_a_cure_that_works(tmp_path):
    ds = ps.from_arrays(np.array([["a", "bc"]] * 3))
    with pytest.raises(TypeError, match=r"map\(lambda row: row\.tolist\(\)\)"):
        ds.write(tmp_path / "out", format="tfrecord")
    ds.map(lambda row: row.tolist()).write(tmp_path / "out", format="tfrecord")
    assert len(ps.from_tfrecord(tmp_path / "out")) == 3


def test_a_lone_surrogate_is_refused_with_its_row_and_a_cure_that_works(tmp_path):
    text = ["fine"] * 5000
    text[4321] = "\ud800"
    for ds in (ps.from_arrays({"s": text}), ps.from_arrays({"s": text}).map(lambda row: row)):
        with pytest.raises(RangeError, match=r"field 's' has, in row 4321, text .*surrogatepass"):
            ds.write(tmp_path / "out", format="tfrecord", shard_rows=1000)
    ds.map(lambda row: row["s"].encode("utf-8", "surrogatepass")).write(
        tmp_path / "out", format="tfrecord"
    )
    assert len(ps.from_tfrecord(tmp_path / "out")) == 5000


def test_names_that_records_can_not_have_are_refused(tmp_path):
    nest = {"a.b": np.arange(3), "a": {"b": np.arange(3)}}
    with pytest.raises(ValueError, match=r"2 fields have the same name in a record, 'a\.b'.*map"):
        ps.from_arrays(nest).write(tmp_path / "out", format="tfrecord")
    with pytest.raises(ValueError, match="names of features in a record are UTF-8"):
        ps.from_arrays({"\ud800": np.arange(3)}).write(tmp_path / "out", format="tfrecord")


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (ps.ArraySpec((3,), "float32"), ps.FixedFeature((3,), "float32")),
        (ps.ArraySpec((), "int32"), ps.FixedFeature((), "int32")),
        (ps.ArraySpec((), "uint64"), ps.TensorFeature((), "uint64")),
        (ps.ArraySpec((None,), "int64"), ps.VarFeature("int64")),
        (ps.ArraySpec((None, 2), "float32"), ps.TensorFeature((None, 2), "float32")),
        (ps.ArraySpec((None,), "uint8"), ps.TensorFeature((None,), "uint8")),
        (ps.ArraySpec((2,), str), ps.FixedFeature((2,), str)),
        (ps.ArraySpec((2, 2), bytes), ps.TensorFeature((2, 2), bytes)),
    ],
)
def test_each_field_is_written_as_what_keeps_it_whole(spec, expected):
    assert feature_of(spec) == expected
