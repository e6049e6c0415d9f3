"""Scratch memory is used again by the same thread, and shared with no other."""

import threading

from penstock.core.rows import plain_context
from penstock.sources.reading.scratch import Scratch, scratch_of


def test_memory_is_used_again_as_far_as_it_is_large_enough() -> None:
    scratch = Scratch()
    first = scratch.room("packed", 100)
    assert first.size == 100
    assert scratch.room("packed", 60).ctypes.data == first.ctypes.data
    assert scratch.room("chunk", 60).ctypes.data != first.ctypes.data
    assert scratch.room("packed", 200).size == 200
    scratch.close()


def test_threads_have_memory_of_their_own() -> None:
    context = plain_context()
    scratch = scratch_of(context)
    assert scratch_of(context) is scratch
    mine = scratch.room("packed", 100)
    found = []
    thread = threading.Thread(target=lambda: found.append(scratch.room("packed", 100)))
    thread.start()
    thread.join()
    assert found[0].ctypes.data != mine.ctypes.data
    context.resources.close()
