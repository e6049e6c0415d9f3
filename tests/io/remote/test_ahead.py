"""Several fetches at once: in order, with their errors, and nothing left when a stream closes."""

import threading
import time

import pytest

from penstock.errors import StreamClosedError
from penstock.io.remote.ahead import Ahead


def test_what_was_fetched_comes_in_the_order_of_the_items():
    def fetch(item):
        time.sleep(0.002 * (item % 3))
        return item * item

    ahead = Ahead(fetch, range(50), at_once=8, is_closing=lambda: False)
    assert list(ahead) == [item * item for item in range(50)]


def test_so_many_are_fetched_at_once_and_no_more():
    together = threading.Barrier(4, timeout=30)
    running, most, lock = [0], [0], threading.Lock()

    def fetch(item):
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        together.wait()
        with lock:
            running[0] -= 1
        return item

    assert list(Ahead(fetch, range(12), at_once=4, is_closing=lambda: False)) == list(range(12))
    assert most[0] == 4


def test_an_error_comes_in_its_place_and_ends_the_rest():
    begun = []

    def fetch(item):
        begun.append(item)
        if item == 3:
            raise ValueError("item 3")
        return item

    found = iter(Ahead(fetch, range(1000), at_once=1, is_closing=lambda: False))
    assert [next(found) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="item 3"):
        next(found)
    assert not [one for one in threading.enumerate() if one.name.startswith("penstock-fetch")]


def test_whoever_waits_goes_on_when_the_stream_closes_and_no_fetch_begins_after():
    is_closing, release, begun = threading.Event(), threading.Event(), []

    def fetch(item):
        begun.append(item)
        is_closing.set()
        release.wait(30)
        return item

    ahead = Ahead(fetch, range(100), at_once=2, is_closing=is_closing.is_set)
    with pytest.raises(StreamClosedError):
        list(ahead)
    count = len(begun)
    assert count <= 2
    release.set()
    threads = [one for one in threading.enumerate() if one.name.startswith("penstock-fetch")]
    assert all(one.daemon for one in threads)
    for one in threads:
        one.join(30)
    assert len(begun) == count
