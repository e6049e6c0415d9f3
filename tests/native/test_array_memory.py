"""Memory of arrays that functions make, and the check of what they return."""

import gc
import threading

import numpy as np
import pytest

from penstock._native import ResultCheck, restore_array_memory, use_array_memory

F4 = np.dtype("f4")


@pytest.fixture
def in_use():
    before = use_array_memory()
    yield
    restore_array_memory(before)


def handler_of(array):
    return np._core.multiarray.get_handler_name(array)


def test_arrays_start_on_64_bytes_and_memory_is_used_again(in_use):
    first = np.empty(100_000, np.float32)
    assert handler_of(first) == "penstock"
    address = first.ctypes.data
    assert address % 64 == 0
    del first
    second = np.empty(100_000, np.float32)
    assert second.ctypes.data == address
    third = np.empty(100_000, np.float32)
    assert third.ctypes.data not in (0, address)


def test_arrays_outlive_the_use_and_free_what_they_had():
    before = use_array_memory()
    kept = [np.full(50_000, number, np.float64) for number in range(5)]
    restore_array_memory(before)
    assert handler_of(np.empty(10)) == "default_allocator"
    for number, array in enumerate(kept):
        assert (array == number).all()
    del kept, array
    gc.collect()


def test_zeros_are_zero_in_memory_that_was_used(in_use):
    for size in (1, 1000, 100_000):
        used = np.full(size, 7, np.int64)
        del used
        assert not np.zeros(size, np.int64).any()


def test_resized_arrays_keep_their_content(in_use):
    array = np.arange(10_000)
    array.resize(200_000, refcheck=False)
    np.testing.assert_array_equal(array[:10_000], np.arange(10_000))
    assert not array[10_000:].any()
    array.resize(10, refcheck=False)
    np.testing.assert_array_equal(array, np.arange(10))
    del array
    large = np.ones(200_000)  # Not in what was left of it.
    assert large.all()


def test_no_more_than_32_mb_are_kept(in_use):
    arrays = [np.ones(4 << 20, np.uint8) for _ in range(30)]
    addresses = {array.ctypes.data for array in arrays}
    del arrays
    again = [np.ones(4 << 20, np.uint8) for _ in range(30)]
    assert len(addresses & {array.ctypes.data for array in again}) <= 30
    huge = np.ones(20 << 20, np.uint8)
    del huge, again


def test_it_is_of_this_thread_alone(in_use):
    names = []
    thread = threading.Thread(target=lambda: names.append(handler_of(np.empty(10))))
    thread.start()
    thread.join()
    assert names == ["default_allocator"]


def test_threads_make_and_free_at_once():
    def work(seed):
        before = use_array_memory()
        rng = np.random.default_rng(seed)
        held = []
        for _ in range(500):
            held.append(np.full(int(rng.integers(1, 60_000)), seed, np.int64))
            if len(held) > 5:
                array = held.pop(int(rng.integers(0, 5)))
                wrong.append(int((array != seed).sum()))
        restore_array_memory(before)

    wrong = []
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(wrong) > 1000
    assert not any(wrong)


def made():
    return np.ones((3, 2), F4)


def test_what_a_function_made_is_its_own():
    check = ResultCheck((F4, F4), ((3, 2), (-1, 2)), 2)
    assert check((made(), made()))
    assert check((made(), np.ones((9, 2), F4)))
    assert ResultCheck((F4,), ((3, 2),), ("a",))({"a": made()})
    result = made()
    is_own = ResultCheck((F4,), ((3, 2),), None)((result,))  # Not in the assert, which keeps it.
    assert is_own


def test_what_somebody_else_refers_to_is_not():
    check = ResultCheck((F4, F4), ((3, 2), (3, 2)), 2)
    shared = made()
    assert not check((shared, made()))
    twice = made()
    assert not check((twice, twice))
    assert not check((made()[:], made()))  # a view
    result = made()
    stash = result
    assert not ResultCheck((F4,), ((3, 2),), None)((result,))
    del stash


@pytest.mark.parametrize(
    "result",
    [
        None,
        (np.ones((3, 2), F4),),
        [np.ones((3, 2), F4)] * 2,
        {"a": 1, "b": 2},
        (np.ones((3, 2), "f8"), np.ones((3, 2), F4)),
        (np.ones((2, 3), F4), np.ones((3, 2), F4)),
        (np.ones(3, F4), np.ones((3, 2), F4)),
        (np.float32(1), np.ones((3, 2), F4)),
        (np.ma.ones((3, 2), F4), np.ones((3, 2), F4)),
    ],
    ids=str,
)
def test_anything_else_is_left_to_the_caller(result):
    assert not ResultCheck((F4, F4), ((3, 2), (3, 2)), 2)(result)


def test_wrong_arguments_are_refused():
    for arguments in [
        ((F4,), (), None),
        ((F4,), ((1,),), 2),
        ((F4,), ((1,),), ("a", "b")),
    ]:
        with pytest.raises(ValueError, match="must be"):
            ResultCheck(*arguments)
    for arguments in [(("f4",), ((1,),), None), ((F4,), ((1,),), "a")]:
        with pytest.raises(TypeError, match="must be"):
            ResultCheck(*arguments)
    with pytest.raises(TypeError, match="tuple"):
        ResultCheck((F4,), ((1,),), None)((1,), [])
