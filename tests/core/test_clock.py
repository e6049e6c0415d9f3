"""Each node has the time it took itself, and the rows it made, over all threads."""

import threading
from time import perf_counter

import pytest

from penstock.core.clock import SHORTEST, Clock

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


def test_the_last_pieces_of_work_are_kept_with_their_threads_and_inner_ones_lie_within_outer_ones():
    clock, outer, inner = Clock(), object(), object()

    def work() -> None:
        mark = clock.enter()
        inner_mark = clock.enter()
        spend()
        clock.leave(inner_mark, inner, 1)
        clock.leave(mark, outer, 1)

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    thread.join()
    (first, inner_key, began, took), (second, outer_key, outer_began, outer_took) = clock.last
    assert (inner_key, outer_key) == (id(inner), id(outer))
    assert outer_began <= began <= began + took <= outer_began + outer_took
    assert took >= SPENT
    assert clock.names[first] == clock.names[second] == "worker"


def test_work_that_is_too_short_to_see_is_not_kept_and_only_so_many_pieces_are():
    clock, node = Clock(), object()
    clock.leave(clock.enter(), node, 1)
    clock.note(node, 1, 0.0, SHORTEST / 2)
    assert not clock.last
    for number in range(5000):
        clock.note(node, 1, float(number), 1.0)
    assert len(clock.last) == 2048
    assert clock.last[-1] == (1, id(node), 4999.0, 1.0)


def test_the_seconds_of_several_nodes_are_found_at_once_over_all_threads():
    clock, one, other = Clock(), object(), object()
    clock.add(one, 0.5, 3)
    assert clock.seconds_of([id(one), id(other)]) == [0.5, 0.0]
    thread = threading.Thread(target=clock.add, args=(other, 0.25, 1))
    thread.start()
    thread.join()
    assert clock.seconds_of([id(one), id(other)]) == [0.5, 0.25]


def test_what_a_thread_counted_stays_when_it_ends():
    clock, node = Clock(), object()
    clock.add(node, 1.0, 1)

    def work():
        clock.add(node, 0.5, 2)
        clock.end_thread()

    for _ in range(20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert (clock.seconds(node), clock.num_rows(node)) == (11.0, 41)
    assert clock.seconds_of([id(node), 0]) == [11.0, 0.0]
    assert len(clock._of_all) == 2  # Those of this thread, and of all that have ended.
