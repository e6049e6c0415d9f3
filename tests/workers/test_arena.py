"""Leases: where they lie, and when they come back."""

import itertools
import queue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.workers import Arena, carve, carved_nbytes


@pytest.fixture
def arena():
    arena = Arena(1 << 20)
    yield arena
    arena.close()


def test_a_lease_starts_on_64_bytes_and_belongs_to_nobody_else(arena):
    leases = [arena.lease(nbytes) for nbytes in (1, 63, 64, 65, 1000)]
    for number, lease in enumerate(leases):
        assert lease.__array_interface__["data"][0] % 64 == 0
        lease[:] = number
    for number, lease in enumerate(leases):
        assert set(lease.tolist()) == {number}


def test_a_lease_that_does_not_fit_is_none(arena):
    assert arena.lease(arena.nbytes + 1) is None
    whole = arena.lease(arena.nbytes)
    assert whole.nbytes == arena.nbytes
    assert arena.lease(1) is None


def test_memory_comes_back_with_the_last_view(arena):
    lease = arena.lease(1000)
    view = carve(lease, [("float32", (10, 10))])[0][2:4].T
    del lease
    assert arena.free_nbytes < arena.nbytes
    del view
    assert arena.free_nbytes == arena.nbytes


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 200_000)), max_size=60))
def test_leases_never_overlap_and_pieces_grow_together_again(steps):
    arena = Arena(1 << 20)
    leases = []
    for is_lease, number in steps:
        if is_lease:
            lease = arena.lease(number)
            if lease is not None:
                leases.append(lease)
        elif leases:
            del leases[number % len(leases)]
        lease = None
        spans = sorted((a.__array_interface__["data"][0], a.nbytes) for a in leases)
        for (start, nbytes), (following, _) in itertools.pairwise(spans):
            assert start + nbytes <= following
        assert arena.free_nbytes == arena.nbytes - sum(max(64, -(-n // 64) * 64) for _, n in spans)
    leases.clear()
    assert arena.lease(arena.nbytes) is not None
    arena.close()


def test_whoever_waits_is_told_that_memory_came_back():
    released = queue.SimpleQueue()
    arena = Arena(4096, on_release=lambda: released.put(None))
    lease = arena.lease(10)
    assert released.empty()
    del lease
    released.get(timeout=10)
    arena.close()


def test_a_closed_arena_keeps_what_is_leased(arena):
    lease = arena.lease(100)
    lease[:] = 3
    arena.close()
    assert lease.sum() == 300
    with pytest.raises(ValueError, match="closed"):
        arena.fd  # noqa: B018  # asked for its error


def test_an_array_is_found_wherever_it_lies(arena):
    (x,) = carve(arena.lease(400), [("float32", (10, 10))])
    offset = arena.place(x)[1]
    assert arena.place(x) == (arena.arena_id, offset, "<f4", (10, 10), None)
    assert arena.place(x[::-1]) == (arena.arena_id, offset + 360, "<f4", (10, 10), (-40, 4))
    assert arena.place(x.T) == (arena.arena_id, offset, "<f4", (10, 10), (4, 40))
    assert arena.place(np.zeros((0, 3))) == (arena.arena_id, 0, "<f8", (0, 3), None)
    assert arena.place(np.zeros(3)) is None


def test_structured_dtypes_travel_whole(arena):
    dtype = np.dtype([("a", "<i4"), ("b", "<f8", (2,))])
    (x,) = carve(arena.lease(200), [(dtype, (4,))])
    assert arena.place(x)[2] == dtype


def test_python_objects_cannot_be_shared(arena):
    lease = arena.lease(80)
    with pytest.raises(TypeError, match="Python objects"):
        arena.place(_pretend_to_hold_objects(lease))


def _pretend_to_hold_objects(lease):
    class Pretender:
        __array_interface__ = lease.__array_interface__
        dtype, shape, strides, size, itemsize = np.dtype(object), (10,), (8,), 10, 8

    return Pretender


def test_an_arena_of_nothing_is_refused():
    with pytest.raises(ValueError, match="at least 1 byte, got 0"):
        Arena(0)


def test_carved_arrays_start_on_64_bytes_and_fill_what_was_said(arena):
    shapes = [("int8", (3,)), ("float64", ()), ("float32", (5, 7)), ("int16", (0, 4))]
    nbytes = carved_nbytes(shapes)
    arrays = carve(arena.lease(nbytes), shapes)
    starts = [array.__array_interface__["data"][0] for array in arrays[:3]]
    assert [start - starts[0] for start in starts] == [0, 64, 128]
    assert nbytes == 64 + 64 + 192
    assert [array.shape for array in arrays] == [(3,), (), (5, 7), (0, 4)]
