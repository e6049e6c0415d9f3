"""Padding is counted for each stage by itself, by any thread."""

import threading

from penstock.core.padding import Padding


def test_each_node_has_its_own_counts():
    padding, one, other = Padding(), object(), object()
    padding.add(one, 3, 4)
    padding.add(one, 5, 6)
    padding.add(other, 0, 2)
    assert padding.of(one) == (8, 10)
    assert padding.of(other) == (0, 2)


def test_what_made_nothing_is_not_counted():
    padding, node = Padding(), object()
    padding.add(node, 0, 0)
    assert padding.of(node) == (0, 0)


def test_threads_lose_no_count():
    padding, node = Padding(), object()

    def count() -> None:
        for _ in range(2000):
            padding.add(node, 1, 2)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert padding.of(node) == (8000, 16000)
