"""Tables of torch tensors give the rows that NumPy's indexing gives."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from penstock.feeds.torch.device import TorchDevice  # noqa: E402  # once torch is known to be there

ROWS = np.array([5, 0, 0, 9, 3], "int32")


@pytest.fixture
def device():
    return TorchDevice(torch.device("cpu"))


def numbers(dtype, shape=(10, 3)):
    return np.random.default_rng(0).integers(0, 200, shape).astype(dtype)


def table_of(device, array, piece=4):
    table = device.allocate(len(array), torch.from_numpy(array[:1]))
    for start in range(0, len(array), piece):
        table = device.write(table, start, torch.from_numpy(array[start : start + piece]))
    return table


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "float64"])
def test_gathered_rows_are_those_of_numpy(device, dtype):
    arrays = [numbers(dtype), numbers(dtype, (10,)), numbers(dtype, (10, 2, 2))]
    found = device.gather([table_of(device, array) for array in arrays], ROWS)
    for tensor, array in zip(found, arrays, strict=True):
        assert tensor.numpy().dtype == dtype
        assert np.array_equal(tensor.numpy(), array[ROWS])


def test_rows_are_written_into_the_table_and_nowhere_else(device):
    table = table_of(device, numbers("float32"))
    written = device.write(table, 4, torch.zeros((2, 3)))
    expected = numbers("float32")
    expected[4:6] = 0
    assert written.data_ptr() == table.data_ptr()
    assert np.array_equal(written.numpy(), expected)


def test_what_is_gathered_is_a_copy(device):
    table = table_of(device, numbers("float32"))
    (found,) = device.gather([table], ROWS)
    device.write(table, 0, torch.zeros((10, 3)))
    assert np.array_equal(found.numpy(), numbers("float32")[ROWS])


def test_a_cpu_has_no_memory_of_its_own_and_leaves_have_their_bytes(device):
    assert device.is_cpu
    assert device.free_nbytes() is None
    assert device.nbytes(torch.zeros((4, 3), dtype=torch.float16)) == 24
    assert device.allocate(0, torch.zeros((4, 3))).shape == (0, 3)
