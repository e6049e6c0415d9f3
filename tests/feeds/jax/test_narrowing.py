"""Numbers of 64 bits in JAX: what it narrows is said once, and a whole number that does not fit is an error."""

import warnings

import numpy as np
import pytest

import penstock as ps

jax = pytest.importorskip("jax")

from penstock.feeds.jax.narrowing import has_dtype, narrowing  # noqa: E402  # it imports jax


@pytest.fixture
def _wide():
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", False)


def rows(dtype, value=None):
    y = np.arange(20).astype(dtype)
    if value is not None:
        y[13] = value
    return ps.from_arrays({"x": np.zeros((20, 2), "float32"), "in": (y,)}).batch(4)


@pytest.mark.parametrize(
    ("wide", "narrow"),
    [
        ("int64", "int32"),
        ("uint64", "uint32"),
        ("float64", "float32"),
        ("complex128", "complex64"),
        (">i8", "int32"),
    ],
)
def test_one_warning_names_field_dtypes_and_cure(wide, narrow):
    name = np.dtype(wide).name
    message = rf"field 'in.0' from {name} to {narrow}; .*'jax_enable_x64', True.*\.map"
    with pytest.warns(ps.PenstockWarning, match=message) as caught:
        feed = rows(wide).to_jax()
    batches = [*feed, *feed]  # Where a second warning would be an error.
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert batches[0]["in"][0].dtype == narrow
    found = np.concatenate([batch["in"][0] for batch in batches[:5]])
    np.testing.assert_array_equal(found, np.arange(20))


@pytest.mark.usefixtures("_wide")
@pytest.mark.parametrize("device_memory", [None, "1MB"])
@pytest.mark.parametrize("wide", ["int64", "uint64", "float64", "complex128", ">i8"])
def test_nothing_is_narrowed_or_said_where_jax_has_64_bits(wide, device_memory):
    batches = list(rows(wide, 2**40).to_jax(device_memory=device_memory))
    assert batches[0]["in"][0].dtype == np.dtype(wide).newbyteorder("=")
    assert np.concatenate([batch["in"][0] for batch in batches])[13] == 2**40


@pytest.mark.parametrize("dtype", ["int32", "uint32", "float32", "bool", "complex64", "int8"])
def test_narrow_numbers_are_no_matter(dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(rows(dtype).to_jax())) == 5


@pytest.mark.filterwarnings("ignore:JAX narrows")
@pytest.mark.parametrize(
    ("dtype", "value", "narrow"),
    [
        ("int64", 2**31, "int32"),
        ("int64", -(2**31) - 1, "int32"),
        ("uint64", 2**32, "uint32"),
        (">i8", 2**62, "int32"),
        (">u8", 2**63, "uint32"),
    ],
)
def test_a_whole_number_that_does_not_fit_is_an_error_with_its_place(dtype, value, narrow):
    where = r"^batch 3 of epoch 0: field 'in\.0' has"
    with pytest.raises(
        ps.RangeError, match=rf"{where} {value} in row 1, which {narrow} can't hold"
    ):
        list(rows(dtype, value).to_jax())
    with pytest.raises(OverflowError, match=rf"from row 0 on, field 'in\.0' has {value} in row 13"):
        list(rows(dtype, value).to_jax(device_memory="1MB"))
    last = rows(dtype, value).skip(3).take(1)
    with pytest.raises(ps.RangeError, match="the last batch of epoch 0"):
        list(last.to_jax())


@pytest.mark.filterwarnings("ignore:JAX narrows")
@pytest.mark.parametrize("value", [2**31 - 1, -(2**31), 0])
def test_the_last_numbers_that_fit_arrive(value):
    batches = list(rows("int64", value).to_jax())
    assert np.concatenate([batch["in"][0] for batch in batches])[13] == value


def test_only_whole_numbers_of_64_bits_are_looked_at():
    assert narrowing("x", ps.ArraySpec((None,), "int32")) is None
    assert narrowing("x", ps.ArraySpec((None,), "float64")) is None
    assert narrowing("x", ps.ArraySpec((None,), str)) is None
    assert narrowing("x", ps.ArraySpec((None,), "int64"))(np.zeros((0, 2), "int64")).shape == (0, 2)
    assert narrowing("x", ps.ArraySpec((), "int64"))(np.int64(7)) == 7
    assert has_dtype(np.dtype("int64"))
    assert not has_dtype(np.dtype("M8[s]"))
