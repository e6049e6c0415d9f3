"""What waits for its owner: it is taken by that owner alone, and ends with it."""

import gc
import os
import threading

import pytest

from penstock.core import idle


class Owner:
    pass


class Waiting:
    def __init__(self):
        self.events = []

    def close(self):
        self.events.append("closed")

    def end_soon(self):
        self.events.append("ended")


def test_the_owner_takes_what_was_kept_and_only_once():
    mine, other = Owner(), Owner()
    one = Waiting()
    idle.keep(mine, one)
    assert idle.take(other) is None
    assert idle.take(mine) is one
    assert idle.take(mine) is None
    assert one.events == []


def test_there_is_one_thing_an_owner_and_what_came_before_is_closed():
    owner, first, second = Owner(), Waiting(), Waiting()
    idle.keep(owner, first)
    idle.keep(owner, second)
    assert (first.events, second.events) == (["closed"], [])
    idle.keep(owner, second)
    assert idle.take(owner) is second
    assert second.events == []


def test_it_ends_with_its_owner_without_being_waited_for():
    owner, one = Owner(), Waiting()
    idle.keep(owner, one)
    del owner
    assert one.events == ["ended"]


def test_it_ends_with_an_owner_in_a_cycle_whichever_thread_collects_it():
    owner, one = Owner(), Waiting()
    owner.me = owner
    idle.keep(owner, one)
    del owner
    collector = threading.Thread(target=gc.collect)
    collector.start()
    collector.join(20)
    assert one.events == ["ended"]


def test_what_was_taken_does_not_end_with_its_owner():
    owner, one = Owner(), Waiting()
    idle.keep(owner, one)
    assert idle.take(owner) is one
    del owner
    assert one.events == []


def test_an_owner_that_is_collected_under_the_lock_does_not_hang():
    owner, one = Owner(), Waiting()
    idle.keep(owner, one)
    with idle._lock:  # As when the collector runs inside of `keep`.
        del owner
    assert one.events == ["ended"]


def test_close_ends_what_waits_for_these_owners_and_close_all_the_rest():
    owners, ones = [Owner() for _ in range(3)], [Waiting() for _ in range(3)]
    for owner, one in zip(owners, ones, strict=True):
        idle.keep(owner, one)
    idle.close([owners[0], Owner()])
    assert [one.events for one in ones] == [["closed"], [], []]
    idle.close_all()
    assert [one.events for one in ones] == [["closed"]] * 3
    assert all(idle.take(owner) is None for owner in owners)


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")
def test_a_forked_child_has_no_part_in_it():
    owner, one = Owner(), Waiting()
    idle.keep(owner, one)
    child = os.fork()
    if not child:
        is_left_alone = idle.take(owner) is None
        idle.close_all()
        del owner
        gc.collect()
        os._exit(0 if is_left_alone and one.events == [] else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert idle.take(owner) is one
