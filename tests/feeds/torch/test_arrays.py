"""Tensors on the CPU are the memory of the arrays that they are made of."""

import numpy as np
import pytest
from tests.feeds.dtypes_of_numpy import DTYPES as ALL
from tests.feeds.dtypes_of_numpy import assert_arrives_or_is_refused, is_plain_number

import penstock as ps
from penstock.feeds.torch.arrays import converter

torch = pytest.importorskip("torch")


def spec(dtype):
    return ps.ArraySpec((None, 2), dtype)


DTYPES = ["float16", "float32", "float64", "int8", "int64", "uint8", "uint16", "bool", "complex64"]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_shares_the_memory_of_its_array(dtype):
    array = np.arange(12).reshape(6, 2).astype(dtype)
    tensor = converter(spec(dtype), torch)(array)
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert tensor.dtype == getattr(torch, dtype)
    assert np.array_equal(tensor.numpy(), array)
    array[1] = 0
    assert not tensor[1].any()


def test_bfloat16_is_shared_bit_for_bit():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.array([[1.5, -2], [0, 1e30]], ml_dtypes.bfloat16)
    tensor = converter(spec(ml_dtypes.bfloat16), torch)(array)
    assert tensor.dtype == torch.bfloat16
    assert tensor.data_ptr() == array.__array_interface__["data"][0]
    assert np.array_equal(tensor.float().numpy(), array.astype("float32"))


HAS = {"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"}


@pytest.mark.parametrize("device_memory", [None, "1MB"])
@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_a_dtype_arrives_with_its_values_or_is_refused(dtype, device_memory):
    has = is_plain_number(dtype) or str(dtype) in HAS
    assert_arrives_or_is_refused(
        dtype, lambda ds: ds.to_torch(device_memory=device_memory), has=has
    )
