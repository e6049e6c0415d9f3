"""statistics(): those of NumPy, whatever the rows are and however they are batched."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

import penstock as ps


@pytest.mark.parametrize("is_mapped", [False, True])
@pytest.mark.parametrize("size", [0, 1, 4, 100])
def test_statistics_are_those_of_numpy_whether_batched_or_not(size: int, is_mapped: bool):
    values = np.random.default_rng(1).normal(50, 3, (57, 4)).astype("f4")
    ds = ps.from_arrays({"x": values, "t": ["a"] * 57, "flag": values[:, 0] > 50})
    ds = ds.batch(size) if size else ds
    # A function may give batches of any size: only those of its rows are known.
    found = (ds.map(lambda rows: rows) if is_mapped else ds).statistics()
    x = found["x"]
    assert x.count == found["t"].count == found["flag"].count == 57
    np.testing.assert_allclose(x.mean, values.astype("f8").mean(0), rtol=1e-12)
    np.testing.assert_allclose(x.variance, values.astype("f8").var(0), rtol=1e-9)
    np.testing.assert_array_equal(x.minimum, values.min(0))
    np.testing.assert_array_equal(x.maximum, values.max(0))
    assert found["flag"].mean == pytest.approx((values[:, 0] > 50).mean())
    assert found["t"].mean is None


def test_statistics_of_other_dtypes():
    dates = np.array(["2020-01-05", "2020-01-01"], "M8[D]")
    found = ps.from_arrays(
        {"d": dates, "c": np.array([1j, 3]), "h": np.array([6e4, 6e4], "f2")}
    ).statistics()
    assert (found["d"].minimum, found["d"].maximum) == (dates[1], dates[0])
    assert found["d"].mean is None
    assert found["c"].mean == 1.5 + 0.5j
    assert found["c"].variance == pytest.approx(2.5)
    assert found["c"].minimum is None
    assert found["h"].mean == pytest.approx(6e4, rel=1e-3)
    assert found["h"].variance == 0


def test_statistics_of_nothing_are_none():
    found = ps.from_arrays(np.zeros((0, 3))).statistics()
    assert found.count == 0
    assert found.mean is None


def test_statistics_of_ragged_rows_count_values():
    found = ps.from_arrays([np.array([1.0, 2.0]), np.array([3.0])]).statistics()
    assert (found.count, found.mean, found.maximum) == (3, 2.0, 3.0)


ANY = np.random.default_rng(0).integers(0, 100, (500, 3))


@pytest.mark.parametrize(
    "dtype",
    [
        "i1",
        "u1",
        "i2",
        "u2",
        "i4",
        "u4",
        "i8",
        "u8",
        ">i4",
        "f2",
        "f4",
        "f8",
        ">f8",
        "g",
        "?",
        "c8",
    ],
)
@pytest.mark.parametrize("size", [0, 32])
def test_statistics_of_any_dtype_are_those_of_numpy(dtype: str, size: int):
    values = ANY.astype(dtype)
    ds = ps.from_arrays(values)
    found = (ds.batch(size) if size else ds).statistics()
    exact = values.astype(np.complex128 if dtype == "c8" else np.float64)
    np.testing.assert_allclose(found.mean, exact.mean(0), rtol=1e-13)
    np.testing.assert_allclose(found.variance, exact.var(0), rtol=1e-11)
    if dtype != "c8":
        np.testing.assert_array_equal(found.minimum, values.min(0))
        np.testing.assert_array_equal(found.maximum, values.max(0))
        assert found.minimum.dtype == values.dtype.newbyteorder("=")
    assert found.classes is None
    assert not found.has_many_classes


def test_statistics_of_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = ANY.astype("f4").astype(ml_dtypes.bfloat16)
    found = ps.from_arrays(values).statistics()
    np.testing.assert_allclose(found.mean, values.astype("f8").mean(0))
    assert found.maximum.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.maximum.astype("f4"), values.astype("f4").max(0))


def test_whole_numbers_at_their_limits_are_exact():
    for dtype in ("u8", "i8", "u1", "i1"):
        limits = np.iinfo(dtype)
        found = ps.from_arrays(np.array([limits.min, limits.max, limits.max], dtype)).statistics()
        assert (int(found.minimum), int(found.maximum)) == (limits.min, limits.max)
        assert found.classes == {limits.min: 1, limits.max: 2}


def test_nan_and_infinity_show_in_their_place_only():
    values = np.ones((100, 3), "f4")
    values[40, 0], values[50, 1] = np.nan, np.inf
    found = ps.from_arrays(values).batch(7).statistics()
    assert np.isnan([found.mean[0], found.variance[0], found.minimum[0], found.maximum[0]]).all()
    assert (found.mean[1], found.minimum[1], found.maximum[1]) == (np.inf, 1, np.inf)
    assert (found.mean[2], found.variance[2]) == (1, 0)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "longdouble"])
@pytest.mark.parametrize("infinite", [(3,), (0, 99), (98,), ()], ids=str)
def test_the_mean_with_an_infinity_is_that_one_in_whichever_block_it_is(
    dtype: str, infinite: tuple[int, ...]
):
    x = np.ones((100, 3), dtype)
    x[list(infinite), 1] = -np.inf
    (found,) = ps.from_arrays((x,)).batch(1).with_options(memory="1MB").statistics()
    assert found.mean.tolist() == [1, -np.inf if infinite else 1, 1]
    assert found.variance[[0, 2]].tolist() == [0, 0]
    x[50, 1] = np.inf
    (found,) = ps.from_arrays((x,)).batch(1).with_options(memory="1MB").statistics()
    assert np.isnan(found.mean[1]) if infinite else found.mean[1] == np.inf


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
@pytest.mark.parametrize(
    "kind", ["int64", "int8", "bool", "str", "bytes", "fixed", "far apart", "uint64"]
)
def test_classes_are_counted(kind: str, size: int):
    labels = ANY[:, 0] % 5 - 2
    values = {
        "int64": labels,
        "int8": labels.astype("i1"),
        "bool": labels > 0,
        "str": [f"class {label}" for label in labels],
        "bytes": [b"%d" % label for label in labels],
        "fixed": labels.astype("U4"),
        "far apart": labels * 10**12,
        "uint64": labels.astype("u8"),
    }[kind]
    ds = ps.from_arrays({"y": values})
    found = (ds.batch(size) if size else ds).shuffle().statistics()["y"]
    plain = values.tolist() if isinstance(values, np.ndarray) else values
    assert found.classes == dict(sorted(Counter(plain).items()))
    assert list(found.classes) == sorted(found.classes)
    assert {type(one) for one in found.classes} == {type(plain[0])}
    assert found.count == 500


def test_too_many_classes_are_said_to_be():
    many = np.arange(3000)
    found = ps.from_arrays(
        {"id": many, "name": [str(i) for i in many], "x": many * 1.0}
    ).statistics()
    for name in ("id", "name"):
        assert found[name].classes is None
        assert found[name].has_many_classes
    assert not found["x"].has_many_classes
    few = ps.from_arrays(many % 1000).statistics()
    assert len(few.classes) == 1000


@pytest.mark.parametrize(
    "build",
    [
        lambda ds: ds.shuffle(seed=1),
        lambda ds: ds.shuffle(seed=1).batch(7),
        lambda ds: ds.batch(7).shuffle(),
        lambda ds: ds.filter(lambda x: True).shuffle().batch(7),
        lambda ds: ds.batch(5).batch(10).unbatch(),
        lambda ds: ds.split(0.5)[0].shuffle().batch(3),
        lambda ds: ds.repeat(2).shuffle().batch(64),
    ],
)
def test_what_only_orders_rows_changes_nothing(build: Any):
    ds = build(ps.from_arrays(ANY))
    rows = np.concatenate([np.asarray(one).reshape(-1, 3) for one in ds])
    found = ds.statistics()
    assert found.count == len(rows)
    np.testing.assert_allclose(found.mean, rows.mean(0))
    np.testing.assert_allclose(found.variance, rows.var(0))


def test_what_leaves_rows_out_counts():
    ds = ps.from_arrays(np.arange(10)).shuffle(seed=1)
    for one in (ds.batch(4, drop_remainder=True), ds.take(3)):
        rows = np.concatenate([np.atleast_1d(x) for x in one])
        assert one.statistics().mean == rows.mean()
    nested = ps.from_arrays(np.arange(12)).batch(2).batch(3).statistics()
    assert nested.mean.tolist() == [5, 6]


def test_ragged_text_and_batches_that_differ():
    ragged = ps.from_arrays([np.arange(i % 4, dtype="i4") for i in range(40)])
    found = ragged.statistics()
    values = np.concatenate([np.arange(i % 4) for i in range(40)])
    assert (found.count, found.maximum, found.classes) == (len(values), 2, None)
    assert found.mean == pytest.approx(values.mean())
    padded = ragged.padded_batch(8).statistics()
    assert (padded.count, padded.mean) == (120, values.sum() / 120)  # With what they are padded by.


def test_no_place_and_no_rows():
    assert ps.from_arrays(np.zeros((5, 0))).statistics().mean.shape == (0,)
    empty = ps.from_arrays((np.zeros(0, int), np.zeros(0, "U3"))).statistics()
    assert [(one.count, one.mean, one.classes) for one in empty] == [(0, None, None)] * 2
