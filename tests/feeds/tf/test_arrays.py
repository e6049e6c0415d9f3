"""Tensors are the memory of the arrays that they are made of where that is safe, and copies elsewhere."""

import numpy as np
import pytest
from tests.feeds.dtypes_of_numpy import (
    DTYPES,
    assert_arrives_or_is_refused,
    dtype_of,
    is_plain_number,
)

import penstock as ps
from penstock.feeds.alignment import aligned
from penstock.feeds.tf.arrays import converter, tensor_spec

tf = pytest.importorskip("tensorflow")


def test_tensors_made_for_keras_are_our_memory_where_it_is_on_64_bytes():
    convert = converter(ps.ArraySpec((None,), "float32"), tf)
    array = aligned(np.arange(64, dtype="float32"))
    tensor = convert(array)
    array[0] = 7
    assert tensor.numpy()[0] == 7
    away = np.arange(80, dtype="float32")[1:65]
    tensor = convert(away)
    away[0] = 9
    assert tensor.numpy()[0] == 1
    assert converter(ps.ArraySpec((), str), tf) is None


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint16", "int64", "uint64"])
def test_a_tensor_has_the_values_and_the_memory_of_its_array(dtype):
    array = aligned(np.arange(12).reshape(6, 2).astype(dtype))
    tensor = converter(ps.ArraySpec((None, 2), dtype), tf)(array)
    assert tensor.dtype == dtype
    assert np.array_equal(tensor.numpy(), array)
    array[1] = 100
    assert np.array_equal(tensor.numpy(), array)


def test_arrays_that_may_not_be_written_to_and_empty_ones_are_copied():
    convert = converter(ps.ArraySpec((None, 2), "float32"), tf)
    array = aligned(np.ones((6, 2), "float32"))
    view = array.view()
    view.flags.writeable = False
    tensor = convert(view)
    array[:] = 7
    assert np.array_equal(tensor.numpy(), np.ones((6, 2)))
    assert convert(array[:0]).shape == (0, 2)


def test_what_dlpack_lacks_is_left_to_tensorflow():
    for dtype in ("bool", "complex64", str):
        assert converter(ps.ArraySpec((None,), dtype), tf) is None


def test_specs_are_those_of_tensorflow():
    assert tensor_spec(ps.ArraySpec((None, 3), "uint16"), tf) == tf.TensorSpec((None, 3), tf.uint16)
    assert tensor_spec(ps.ArraySpec((8,), "bool"), tf) == tf.TensorSpec((8,), tf.bool)
    assert tensor_spec(ps.ArraySpec((None,), str), tf) == tf.TensorSpec((None,), tf.string)


HAS = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "int4"}


@pytest.mark.parametrize("device_memory", [None, "1MB"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_arrives_with_its_values_or_is_refused(dtype, device_memory):
    has = is_plain_number(dtype) or str(dtype) in HAS or dtype_of(dtype).kind in "SU"
    assert_arrives_or_is_refused(dtype, lambda ds: ds.to_tf(device_memory=device_memory), has=has)
