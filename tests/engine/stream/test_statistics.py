"""statistics(): those of NumPy, whatever the rows are and however they are batched."""

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
