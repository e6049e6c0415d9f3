"""Threads start when they are needed, and not for what the consumer makes sooner itself."""

import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.core.crew import Crew
from penstock.engine.stream.engine import MADE_HERE


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of all threads that are started from now on."""
    names: list[str] = []
    start = Crew.start

    def noted(self: Crew, more: list[str], target: Any) -> None:
        names.extend(more)
        start(self, more, target)

    monkeypatch.setattr(Crew, "start", noted)
    return names


def rows_in_memory(nbytes: int) -> ps.Dataset:
    return ps.from_arrays(np.arange(nbytes // 8)).shuffle(seed=1).batch(64)


def test_a_stream_that_nothing_is_asked_of_starts_no_thread(started: list[str]):
    rows_in_memory(16 * MADE_HERE).stream().close()
    assert started == []


def test_a_short_epoch_of_rows_in_memory_starts_no_thread(started: list[str]):
    assert sum(len(batch) for batch in rows_in_memory(MADE_HERE // 2)) == MADE_HERE // 16
    assert started == []


def test_a_longer_epoch_starts_as_many_threads_as_planned(started: list[str]):
    found = np.concatenate(list(rows_in_memory(4 * MADE_HERE).with_options(threads=3)))
    assert len(started) == 3
    np.testing.assert_array_equal(np.sort(found), np.arange(MADE_HERE // 2))


@pytest.mark.parametrize("kind", ["a function", "a file", "a slice of something", "a cache"])
def test_what_may_take_long_is_made_by_threads_from_the_first_row_on(
    kind: str, started: list[str], tmp_path
):
    array = np.arange(64)
    np.save(tmp_path / "x.npy", array)
    chains = {
        "a function": lambda: ps.from_arrays(array).map(lambda x: x + 1, spec=None).batch(8),
        "a file": lambda: ps.from_files(tmp_path / "x.npy").batch(8),
        "a slice of something": lambda: ps.from_arrays(_Sliced(array)).batch(8),
        "a cache": lambda: ps.from_arrays(array).cache(tmp_path / "cache").batch(8),
    }
    ds = chains[kind]().with_options(threads=2, processes=0)
    with ds.stream() as stream:
        next(iter(stream.blocks()))
    assert len(started) == 2


class _Sliced:
    """Anything with shape, dtype and slicing."""

    def __init__(self, array: np.ndarray) -> None:
        self._array = array
        self.shape, self.dtype = array.shape, array.dtype

    def __getitem__(self, rows: slice) -> np.ndarray:
        return self._array[rows]


@given(
    num_rows=st.integers(0, 5000),
    width=st.sampled_from([1, 30, 300]),
    batch_size=st.sampled_from([1, 7, 1000]),
    skipped=st.integers(0, 40),
)
def test_batches_are_the_same_whoever_makes_them(num_rows, width, batch_size, skipped):
    rows = np.arange(num_rows * width).reshape(num_rows, width)
    ds = ps.from_arrays(rows).shuffle(seed=2).batch(batch_size)
    with ds.stream() as stream:
        for _ in zip(range(skipped), stream, strict=False):
            pass
        state = stream.state()
    alone = list(ds.prefetch(0).stream(state=state))
    beside = list(ds.with_options(threads=2).stream(state=state))
    assert [one.tobytes() for one in alone] == [one.tobytes() for one in beside]


def test_a_thread_that_the_system_refuses_is_an_error_of_the_batch_that_needs_it(
    monkeypatch: pytest.MonkeyPatch,
):
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    stream = rows_in_memory(16 * MADE_HERE).stream()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="can't start new thread"):
        list(stream)
    with pytest.raises(ps.StreamClosedError):
        next(stream)
