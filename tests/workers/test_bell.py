"""A bell wakes who waits for it, however often it was rung."""

import select

import pytest

from penstock.workers.bell import Bell


@pytest.fixture
def bell():
    made = Bell()
    yield made
    made.close()


def is_rung(bell):
    return bool(select.select([bell], [], [], 0)[0])


def test_a_bell_is_readable_from_when_it_is_rung_until_it_is_heard(bell):
    assert not is_rung(bell)
    for _ in range(3):
        bell.ring()
        bell.ring()
        assert is_rung(bell)
        bell.hear()
        assert not is_rung(bell)


def test_who_rings_never_waits(bell):
    for _ in range(20_000):  # More than a pipe holds.
        bell.ring()
    assert is_rung(bell)


def test_a_closed_bell_has_no_descriptor():
    bell = Bell()
    bell.close()
    bell.close()
    assert bell.fileno() == -1
