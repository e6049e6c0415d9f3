"""The iterator under a stream hands out what its blocks give, counts it, and tells of errors."""

import gc
import itertools
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import _native


class Blocks(_native.ElementIterator):
    """Goes on from one iterator to the next."""

    def __init__(self, *blocks: Iterator[Any]) -> None:
        self.blocks = list(blocks)
        self.errors: list[BaseException] = []
        self._elements = iter(())
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def _go_on(self, elements: Iterator[Any]) -> None:
        assert elements is self._elements
        if not self.blocks:
            raise StopIteration
        self._elements = self.blocks.pop(0)

    def _fails(self, error: BaseException) -> None:
        self.errors.append(error)


def failing(values: list[int], error: BaseException) -> Iterator[int]:
    yield from values
    raise error


@given(st.lists(st.lists(st.integers(), max_size=3), max_size=5))
def test_elements_of_all_blocks_come_in_turn_and_are_counted(blocks: list[list[int]]) -> None:
    elements = Blocks(*map(iter, blocks))
    assert iter(elements) is elements
    wanted = list(itertools.chain(*blocks))
    for number, element in enumerate(wanted):
        assert elements.count == number
        assert next(elements) == element
    assert next(elements, "end") == "end"
    assert list(elements) == []
    assert elements.count == len(wanted)
    assert elements.errors == []


def test_the_count_goes_on_from_what_it_was_set_to() -> None:
    elements = Blocks(iter("ab"))
    elements._count = 2**40
    assert list(elements) == ["a", "b"]
    assert elements.count == 2**40 + 2


@pytest.mark.parametrize("error", [ValueError("bad row"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_of_a_block_is_told_and_raised(error: BaseException) -> None:
    elements = Blocks(failing([1], error), iter([2]))
    assert next(elements) == 1
    with pytest.raises(type(error)) as raised:
        next(elements)
    assert raised.value is error
    assert elements.errors == [error]
    assert [entry.name for entry in raised.traceback][-1] == "failing"
    assert elements.count == 1
    assert list(elements) == [2]


def test_an_error_in_telling_of_one_is_raised_with_both() -> None:
    class Worse(Blocks):
        def _fails(self, error: BaseException) -> None:
            raise RuntimeError("worse") from error

    with pytest.raises(RuntimeError, match="worse") as raised:
        next(Worse(failing([], ValueError("bad"))))
    assert isinstance(raised.value.__cause__, ValueError)


def test_an_error_on_the_way_to_the_next_block_is_raised_and_left_to_that_way() -> None:
    class Broken(Blocks):
        def _go_on(self, elements: Iterator[Any]) -> None:
            raise OSError("gone")

    elements = Broken()
    with pytest.raises(OSError, match="gone"):
        next(elements)
    assert elements.errors == []


def test_what_is_no_iterator_is_refused() -> None:
    elements = Blocks()
    elements._elements = [1]  # type: ignore[assignment]
    with pytest.raises(TypeError, match="_elements must be an iterator"):
        next(elements)
    with pytest.raises(TypeError, match="_elements must be an iterator"):
        next(_native.ElementIterator())
    with pytest.raises(AttributeError, match="_go_on"):
        bare = _native.ElementIterator()
        bare._elements = iter(())
        next(bare)


def test_one_that_refers_to_itself_is_collected() -> None:
    elements = Blocks()
    elements._elements = map(elements.__class__, [])
    elements._elements = iter([elements])
    gone = weakref.ref(elements)
    kind = weakref.ref(type("Other", (Blocks,), {}))
    del elements
    gc.collect()
    assert gone() is None
    assert kind() is None


def test_each_element_goes_to_one_of_many_threads() -> None:
    lock = threading.Lock()

    class Shared(Blocks):
        def _go_on(self, elements: Iterator[Any]) -> None:
            with lock:
                if elements is self._elements:
                    super()._go_on(elements)

    wanted = list(range(20_000))
    elements = Shared(*(iter(wanted[start : start + 50]) for start in range(0, 20_000, 50)))
    taken: list[list[int]] = [[] for _ in range(4)]
    threads = [threading.Thread(target=one.extend, args=(elements,)) for one in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(itertools.chain(*taken)) == wanted
    assert elements.count == len(wanted)
