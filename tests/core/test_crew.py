"""Threads that start together, are counted, and are all waited for."""

import threading

import pytest

from penstock.core.crew import Crew


def test_every_name_is_a_running_daemon_when_start_returns_and_join_ends_with_the_last():
    crew, told, seen = Crew(), threading.Event(), []

    def target() -> None:
        told.wait()
        thread = threading.current_thread()
        seen.append((thread.name, thread.daemon, crew.is_own))

    crew.start(["crew-a", "crew-b"], target)
    crew.start(["crew-c"], target)
    names = {"crew-a", "crew-b", "crew-c"}
    try:
        assert len(crew) == 3
        assert {one.name for one in threading.enumerate()} >= names
        assert not crew.is_own
    finally:
        told.set()
        crew.join()
    assert sorted(seen) == [(name, True, True) for name in sorted(names)]
    assert not {one.name for one in threading.enumerate()} & names
    assert len(crew) == 3  # how many were ever started


def test_a_thread_of_the_crew_may_join_it_and_does_not_wait_for_itself():
    crew, is_started, joined = Crew(), threading.Event(), []

    def target() -> None:
        is_started.wait()
        crew.join()
        joined.append(threading.current_thread().name)

    crew.start(["crew-a"], target)
    is_started.set()
    crew.join()
    assert joined == ["crew-a"]


def test_a_crew_of_nobody_has_nothing_to_wait_for():
    crew = Crew()
    crew.join()
    crew.start([], lambda: None)
    crew.settle()
    crew.join()
    assert len(crew) == 0
    assert not crew.is_own


def test_a_thread_of_one_crew_is_no_thread_of_another():
    first, second, told, found = Crew(), Crew(), threading.Event(), []

    def target() -> None:
        told.wait()
        found.append((first.is_own, second.is_own))

    first.start(["crew-a"], target)
    told.set()
    first.join()
    assert found == [(True, False)]


def test_when_the_system_refuses_a_thread_start_says_so_and_join_still_returns():
    crew = Crew()
    before = threading.stack_size(1 << 50)  # more than there are addresses
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            crew.start(["crew-a", "crew-b"], lambda: None)
    finally:
        threading.stack_size(before)
    crew.join()
    assert len(crew) == 0
    crew.start(["crew-a"], lambda: None)
    crew.join()
    assert len(crew) == 1
