"""Tables of jax Arrays give the rows that NumPy's indexing gives, and batches are put without a copy."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

from penstock.feeds.alignment import aligned  # noqa: E402
from penstock.feeds.jax.device import JaxDevice  # noqa: E402  # once jax is known to be there

ROWS = np.array([5, 0, 0, 9, 3], "int32")


def numbers(dtype, shape=(10, 3)):
    return np.random.default_rng(0).integers(0, 200, shape).astype(dtype)


def table_of(device, array, piece=5):
    table = device.allocate(len(array), device.put(array[:1]))
    for start in range(0, len(array), piece):
        table = device.write(table, start, device.put(array[start : start + piece]))
    return table


# Without jax_enable_x64, JAX has no dtypes of 64 bits.
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "int32", "float16", "complex64"])
def test_gathered_rows_are_those_of_numpy(dtype):
    device = JaxDevice()
    arrays = [numbers(dtype), numbers(dtype, (10,)), numbers(dtype, (10, 2, 2))]
    found = device.gather([table_of(device, array) for array in arrays], ROWS)
    for leaf, array in zip(found, arrays, strict=True):
        assert leaf.dtype == dtype
        assert np.array_equal(np.asarray(leaf), array[ROWS])


def test_rows_are_written_where_they_belong_and_nowhere_else():
    device = JaxDevice()
    table = table_of(device, numbers("float32"))
    written = device.write(table, 4, device.put(np.zeros((2, 3), "float32")))
    expected = numbers("float32")
    expected[4:6] = 0
    assert np.array_equal(np.asarray(written), expected)


def test_a_batch_in_aligned_memory_is_put_on_the_cpu_without_a_copy():
    device = JaxDevice(jax.devices("cpu")[0])
    batch = {"x": aligned(numbers("float32")), "n": aligned(numbers("int32", (10,)))}
    found = device.put(batch)
    assert device.is_cpu
    for name, array in batch.items():
        assert found[name].unsafe_buffer_pointer() == array.__array_interface__["data"][0]


def test_a_batch_in_other_memory_is_copied_before_put_returns():
    device = JaxDevice(jax.devices("cpu")[0])
    array = aligned(numbers("float32", (33,)))[1:]
    found = device.put((array,))[0]
    expected = array.copy()
    array[:] = -1
    assert np.array_equal(np.asarray(found), expected)


def test_a_sharding_says_where_tables_and_batches_are():
    place = jax.devices("cpu")[0]
    sharding = jax.sharding.SingleDeviceSharding(place)
    device = JaxDevice(sharding)
    table = table_of(device, numbers("float32"))
    (found,) = device.gather([table], ROWS)
    assert device.devices == [place]
    assert device.free_nbytes() is None
    assert found.sharding == device.put(numbers("float32")).sharding == sharding
    assert device.nbytes(found) == 5 * 3 * 4
