"""Arenas: where arrays lie in them, and how their memory goes back."""

import os

import numpy as np
import pytest
from tests.workers.carving import carve

from penstock.workers import Arena


@pytest.fixture
def arena():
    arena = Arena(1 << 20)
    yield arena
    arena.close()


def test_a_closed_arena_stays_valid_for_those_who_look_at_it(arena):
    view = arena.memory[:100]
    view[:] = 3
    arena.close()
    assert view.sum() == 300
    with pytest.raises(ValueError, match="closed"):
        arena.fd  # noqa: B018  # asked for its error


def test_the_memory_of_a_discarded_arena_goes_back_even_if_another_process_maps_it(arena):
    arena.memory[:] = 1
    theirs = os.dup(arena.fd)  # what a worker that did not hear of it yet still has
    try:
        assert os.fstat(theirs).st_blocks * 512 == arena.nbytes
        arena.discard()
        assert os.fstat(theirs).st_blocks == 0
    finally:
        os.close(theirs)


def test_an_array_is_found_wherever_it_lies(arena):
    (x,) = carve(arena.memory, [("float32", (10, 10))])
    offset = arena.place(x)[1]
    assert arena.place(x) == (arena.arena_id, offset, "<f4", (10, 10), None)
    assert arena.place(x[::-1]) == (arena.arena_id, offset + 360, "<f4", (10, 10), (-40, 4))
    assert arena.place(x.T) == (arena.arena_id, offset, "<f4", (10, 10), (4, 40))
    assert arena.place(np.zeros((0, 3))) == (arena.arena_id, 0, "<f8", (0, 3), None)
    assert arena.place(np.zeros(3)) is None


def test_structured_dtypes_travel_whole(arena):
    dtype = np.dtype([("a", "<i4"), ("b", "<f8", (2,))])
    (x,) = carve(arena.memory, [(dtype, (4,))])
    assert arena.place(x)[2] == dtype


def test_python_objects_cannot_be_shared(arena):
    lease = arena.memory[:80]
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
