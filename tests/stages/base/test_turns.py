"""Functions that return what they fill anew are called by one thread at a time; no others are."""

import functools
import pickle
import threading
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.stages.base.turns import Turns, turns_of

NUM_ROWS, WIDTH = 6_000, 8
X = np.arange(NUM_ROWS * WIDTH, dtype=float).reshape(-1, WIDTH)
Pair = namedtuple("Pair", ["a", "b"])  # The kind that people have.


def slowly(target: np.ndarray, row: np.ndarray) -> None:
    """Fill an array in two steps: time enough for another thread to come between."""
    target[:4] = row[:4]
    sum(range(50))
    target[4:] = row[4:]


def filled_array() -> Callable[[np.ndarray], Any]:
    buffer = np.empty(WIDTH)

    def fill(row: np.ndarray) -> Any:
        slowly(buffer, row)
        return buffer

    return fill


def filled_view() -> Callable[[np.ndarray], Any]:
    buffer = np.empty(2 * WIDTH)

    def fill(row: np.ndarray) -> Any:
        slowly(buffer[WIDTH:], row)
        return buffer[WIDTH:]

    return fill


def filled_in(make: Callable[[np.ndarray], Any]) -> Callable[[], Callable[[np.ndarray], Any]]:
    def factory() -> Callable[[np.ndarray], Any]:
        buffer = np.empty(WIDTH)
        made = make(buffer)

        def fill(row: np.ndarray) -> Any:
            slowly(buffer, row)
            return made

        return fill

    return factory


def two_in_turn() -> Callable[[np.ndarray], Any]:
    buffers = [np.empty(WIDTH), np.empty(WIDTH)]

    def fill(row: np.ndarray) -> Any:
        buffers.reverse()
        slowly(buffers[0], row)
        return buffers[0]

    return fill


def same_dict_of_new_arrays() -> Callable[[np.ndarray], Any]:
    made: dict[str, Any] = {}

    def fill(row: np.ndarray) -> Any:
        made["x"] = row * 1
        sum(range(50))
        return made

    return fill


class Method:
    def __init__(self) -> None:
        self.buffer = np.empty(WIDTH)

    def fill(self, row: np.ndarray) -> np.ndarray:
        slowly(self.buffer, row)
        return self.buffer


REUSING: dict[str, Callable[[], Callable[[np.ndarray], Any]]] = {
    "array": filled_array,
    "view": filled_view,
    "tuple": filled_in(lambda buffer: (buffer, 1)),
    "list": filled_in(lambda buffer: [buffer]),
    "dict": filled_in(lambda buffer: {"x": buffer}),
    "nested": filled_in(lambda buffer: {"x": (buffer, {"y": buffer})}),
    "named tuple": filled_in(lambda buffer: Pair(buffer, buffer)),
    "fresh tuple": lambda: functools.partial(lambda fill, row: (fill(row), 1), filled_array()),
    "two in turn": two_in_turn,
    "dict of new arrays": same_dict_of_new_arrays,
    "method": lambda: Method().fill,
    "partial": lambda: functools.partial(lambda fill, row: fill(row), filled_array()),
}


def first_array(value: Any) -> np.ndarray:
    while not isinstance(value, np.ndarray):
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    return value


@pytest.mark.parametrize("shape", ["batches", "filtered"])
@pytest.mark.parametrize("name", REUSING)
def test_a_function_that_fills_one_buffer_gives_every_row_with_any_threads(
    name: str, shape: str
) -> None:
    ds = ps.from_arrays(X)
    if shape == "filtered":
        ds = ds.filter(lambda row: True)
    ds = ds.map(REUSING[name]()).batch(100).with_options(threads=6)
    found = [first_array(batch) for batch in ds]
    assert (np.concatenate(found).reshape(X.shape) == X).all()


FRESH: dict[str, Callable[[np.ndarray], Any]] = {
    "a new array": lambda row: row + 1,
    "the row itself": lambda row: row,
    "a view of the row": lambda row: row[:3],
    "a view of a new array": lambda row: (row * 2).reshape(2, 4)[:, ::-1],
    "a dict of both": lambda row: {"a": row, "b": [row.sum(), (row + 1)[2:]]},
    "a constant beside it": lambda row: (row, X[0]),
    "a constant dict": functools.partial(lambda made, row: (made, row[0]), {"x": X[0], "n": 3}),
    "numbers and text": lambda row: (float(row[0]), "text", b"bytes", np.float32(1)),
    "what is kept by its argument": functools.lru_cache(
        lambda *row: (np.array(row), X[1])
    ).__wrapped__,
}


@pytest.mark.parametrize("name", FRESH)
def test_a_function_that_returns_new_or_constant_arrays_does_not_take_turns(name: str) -> None:
    turns = Turns()
    for row in X[:20]:
        leaves = (row[:],)
        result = FRESH[name](*leaves)
        turns.look(result, leaves)
        del result
    assert turns.settled()


def test_results_that_a_cache_keeps_are_not_taken_for_a_buffer() -> None:
    @functools.lru_cache
    def cached(number: int) -> tuple[np.ndarray]:
        return (np.full(3, number),)

    turns = Turns()
    for number in [*range(10), *range(10)]:
        result = cached(number)
        turns.look(result, (number,))
    assert turns.settled()


def test_calls_run_at_once_where_nothing_is_kept() -> None:
    together, met, calls = threading.Barrier(2), threading.Event(), iter(range(1 << 30))

    def meet(row: np.ndarray) -> np.ndarray:
        if next(calls) >= 50 and not met.is_set():  # The first ones are looked at one by one.
            together.wait(timeout=100)
            met.set()
        return row + 1

    ds = ps.from_arrays(X[:1000]).map(meet, spec=ps.ArraySpec((WIDTH,), "f8")).batch(1)
    with ds.with_options(threads=2, processes=0).stream() as stream:
        for _ in stream:
            pass
    assert met.is_set()


def test_all_stages_and_methods_share_the_turns_of_what_they_call() -> None:
    method, other = Method(), Method()
    assert turns_of(method.fill) is turns_of(method.fill)
    assert turns_of(method.fill) is not turns_of(other.fill)
    assert turns_of(len) is turns_of(len)
    assert turns_of(functools.partial(first_array, 1)) is turns_of(first_array)

    class Unhashable:
        __hash__ = None

        def __call__(self, row: np.ndarray) -> np.ndarray:
            return row

    assert not turns_of(Unhashable()).must
    copied = pickle.loads(pickle.dumps(turns_of(len)))
    assert not copied.must
