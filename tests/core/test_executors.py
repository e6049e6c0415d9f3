"""Executors: work in the thread that asks for it."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from penstock.core.executors import Inline


def test_work_inline_is_in_order_drops_its_inputs_and_does_not_end_at_a_stop_iteration():
    class Thing:
        pass

    alive: list[weakref.ref[Thing]] = []

    def make() -> Iterator[Thing]:
        for _ in range(3):
            thing = Thing()
            alive.append(weakref.ref(thing))
            yield thing
            del thing

    def number(thing: Thing) -> int:
        return [ref() for ref in alive].index(thing)

    results = Inline().ordered(number, make(), lambda _: 0)
    assert list(results) == [0, 1, 2]
    gc.collect()
    assert [ref() for ref in alive] == [None] * 3

    def stop(value: int) -> int:
        raise StopIteration

    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        list(Inline().ordered(stop, [1, 2], lambda _: 0))
