"""Tables of TensorFlow variables give the rows that NumPy's indexing gives, in tf.data as well."""

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from penstock.feeds.tf.device import TfDevice  # noqa: E402  # once tensorflow is known to be there

ROWS = np.array([5, 0, 0, 9, 3], "int32")


def numbers(dtype, shape=(10, 3)):
    return np.random.default_rng(0).integers(0, 200, shape).astype(dtype)


def table_of(device, array, piece=4):
    table = device.allocate(len(array), device.put(array[:1]))
    for start in range(0, len(array), piece):
        table = device.write(table, start, device.put(array[start : start + piece]))
    return table


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int64", "float16", "complex64"])
def test_gathered_rows_are_those_of_numpy(dtype):
    device = TfDevice()
    arrays = [numbers(dtype), numbers(dtype, (10,)), numbers(dtype, (10, 2, 2))]
    found = device.gather([table_of(device, array) for array in arrays], ROWS)
    for tensor, array in zip(found, arrays, strict=True):
        assert tensor.dtype == dtype
        assert np.array_equal(tensor.numpy(), array[ROWS])


def test_tf_data_gathers_what_is_in_the_table_when_it_is_read():
    device = TfDevice()
    table = device.allocate(0, device.put(numbers("float32")[:1]))
    dataset = tf.data.Dataset.from_tensor_slices(ROWS).batch(2)
    dataset = dataset.map(lambda rows: device.gather([table], rows)[0])
    assert device.allocate(10, table) is table
    device.write(table, 0, device.put(numbers("float32")))
    assert np.array_equal(np.concatenate(list(dataset)), numbers("float32")[ROWS])


def test_rows_are_written_into_the_table_and_nowhere_else():
    device = TfDevice()
    table = table_of(device, numbers("float32"))
    assert device.write(table, 4, device.put(np.zeros((2, 3), "float32"))) is table
    expected = numbers("float32")
    expected[4:6] = 0
    assert np.array_equal(table.numpy(), expected)


def test_a_batch_is_put_on_the_device_with_its_nest():
    device = TfDevice()
    found = device.put(({"x": numbers("float32"), "n": ROWS}, ROWS))
    assert np.array_equal(found[0]["x"].numpy(), numbers("float32"))
    assert found[1].device.endswith("CPU:0")
    assert device.nbytes(found[0]["x"]) == 10 * 3 * 4


def test_a_cpu_has_no_memory_of_its_own():
    assert TfDevice().is_cpu
    assert TfDevice("/cpu:0").free_nbytes() is None
    assert not TfDevice("/GPU:0").is_cpu
