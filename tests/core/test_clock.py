"""Each node has the time it took itself, and the rows it made, over all threads."""

import threading
from time import perf_counter

import pytest

from penstock.core.clock import Clock

SPENT = 1e-3
SLACK = 1e-9  # of adding floats


def spend() -> None:
    """Take at least SPENT seconds by the clock."""
    end = perf_counter() + SPENT
    while perf_counter() < end:
        pass


def test_a_node_that_never_ran_took_no_time_and_made_no_rows():
    clock = Clock()
    assert clock.seconds(object()) == 0
    assert clock.num_rows(object()) == 0


def test_added_time_and_rows_add_up_for_each_node_alone():
    clock, one, other = Clock(), object(), object()
    clock.add(one, 0.5, 3)
    clock.add(one, 0.25, 4)
    clock.add(other, 2.0, 0)
    assert (clock.seconds(one), clock.num_rows(one)) == (0.75, 7)
    assert (clock.seconds(other), clock.num_rows(other)) == (2.0, 0)


def test_the_time_of_an_inner_node_is_not_that_of_the_outer():
    clock, outer, inner = Clock(), object(), object()
    started = perf_counter()
    outer_mark = clock.enter()
    spend()
    for _ in range(3):
        mark = clock.enter()
        spend()
        clock.leave(mark, inner, 5)
    clock.leave(outer_mark, outer, 15)
    elapsed = perf_counter() - started
    assert clock.seconds(inner) >= 3 * SPENT
    assert clock.seconds(outer) >= SPENT
    assert clock.seconds(inner) + clock.seconds(outer) <= elapsed + SLACK
    assert (clock.num_rows(inner), clock.num_rows(outer)) == (15, 15)


def test_time_spent_waiting_belongs_to_no_node():
    clock, node = Clock(), object()
    started = perf_counter()
    mark = clock.enter()
    waiting = clock.enter()
    spend()
    clock.leave(waiting, None, 0)
    clock.leave(mark, node, 1)
    elapsed = perf_counter() - started
    assert 0 <= clock.seconds(node) <= elapsed - SPENT + SLACK


def test_a_node_inside_itself_counts_its_time_once():
    clock, node = Clock(), object()
    started = perf_counter()
    outer_mark = clock.enter()
    mark = clock.enter()
    spend()
    clock.leave(mark, node, 0)
    clock.leave(outer_mark, node, 2)
    elapsed = perf_counter() - started
    assert SPENT <= clock.seconds(node) <= elapsed + SLACK


@pytest.mark.parametrize("num_threads", [1, 4])
def test_what_threads_that_ended_counted_is_kept(num_threads: int):
    clock, node = Clock(), object()
    together = threading.Barrier(num_threads)

    def work() -> None:
        together.wait()
        for _ in range(1000):
            clock.add(node, 0.5, 2)

    threads = [threading.Thread(target=work) for _ in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.seconds(node) == 500 * num_threads
    assert clock.num_rows(node) == 2000 * num_threads
