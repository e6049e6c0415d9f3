"""The ledger's accounts, and the buffers they pay for."""

import gc
import weakref

import numpy as np
import pytest

from penstock.errors import BudgetError
from penstock.memory import Account, Ledger, Pool, buffer_nbytes, process_ledger

PAGE = 4096


@pytest.fixture(autouse=True)
def _no_reserve() -> None:
    process_ledger.drop_reserve()


def opened(ledger: Ledger, need: int = 1, want: int = 100, budget: int = 100, name: str = "a"):
    account = Account(ledger, name)
    account.open(budget=budget, need=need, want=want, why="its blocks")
    return account


def test_an_account_gets_what_it_wants_if_there_is_room():
    ledger = Ledger()
    assert opened(ledger, want=60).grant == 60
    second = opened(ledger, want=60)
    assert (second.grant, second.limit) == (40, 40)
    assert ledger.granted == 100


def test_an_account_that_needs_more_than_there_is_is_refused_with_the_budget_that_would_do():
    ledger = Ledger()
    opened(ledger, want=60, name="train")
    with pytest.raises(
        BudgetError,
        match=r"too small for val.*needs at least 50 B.*60 B are taken \(train 60 B\).*memory=110\)",
    ):
        opened(ledger, need=50, name="val")
    assert opened(ledger, need=50, budget=110).grant == 50


def test_a_closed_account_gives_its_grant_back():
    ledger = Ledger()
    account = opened(ledger)
    account.close()
    account.close()
    assert ledger.granted == 0
    assert opened(ledger).grant == 100


def test_an_account_can_be_extended_as_far_as_the_budget_goes():
    ledger = Ledger()
    account = opened(ledger, want=40)
    ledger.extend(account, 60, budget=100, why="more")
    assert account.grant == 100
    with pytest.raises(BudgetError, match=r"needs at least 101 B \(more\)"):
        ledger.extend(account, 1, budget=100, why="more")


def pool_of(ledger: Ledger, nbytes: int) -> Pool:
    return Pool(opened(ledger, want=nbytes, budget=nbytes))


def test_buffers_are_counted_while_they_are_looked_at_and_reused_after():
    pool = pool_of(Ledger(), 4 * PAGE)
    first = pool.lease(PAGE)
    first[:] = 7
    address = first.ctypes.data
    assert (address % 64, len(first), pool.account.mapped) == (0, PAGE, PAGE)
    view = first[5:].view(np.uint8)
    del first
    second = pool.lease(PAGE)
    assert second.ctypes.data != address  # A view keeps it.
    assert view[0] == 7
    del view
    third = pool.lease(PAGE)
    assert third.ctypes.data == address
    assert (pool.account.mapped, pool.account.peak) == (2 * PAGE, 2 * PAGE)


def test_a_pool_never_maps_more_than_its_account_may():
    pool = pool_of(Ledger(), 2 * PAGE)
    kept = [pool.lease(PAGE), pool.lease(PAGE)]
    with pytest.raises(
        BudgetError, match=r"more than the memory budget leaves it .* with_options\(memory="
    ):
        pool.lease(1)
    kept.pop()
    kept.append(pool.lease(100))
    assert pool.account.peak <= 2 * PAGE


def test_idle_buffers_make_room_for_a_larger_one():
    pool = pool_of(Ledger(), 4 * PAGE)
    small = [pool.lease(PAGE) for _ in range(4)]
    small.clear()
    large = pool.lease(4 * PAGE)
    assert len(large) == 4 * PAGE
    assert pool.account.mapped == 4 * PAGE


def test_a_buffer_of_an_earlier_stream_is_taken_only_if_there_is_room_for_it():
    earlier = pool_of(Ledger(), 4 * PAGE)
    earlier.lease(3 * PAGE)  # And at once given back.
    earlier.close()
    pool = pool_of(Ledger(), 2 * PAGE)
    kept = [pool.lease(PAGE), pool.lease(PAGE)]
    assert pool.account.peak == 2 * PAGE
    assert len(kept) == 2


def test_what_the_consumer_keeps_is_written_off():
    pool = pool_of(Ledger(), 2 * PAGE)
    kept = [pool.lease(PAGE), pool.lease(PAGE)]
    pool.write_off([weakref.ref(array.base) for array in kept])
    account = pool.account
    assert (account.mapped, account.held, account.held_peak) == (0, 2 * PAGE, 2 * PAGE)
    more = [pool.lease(PAGE), pool.lease(PAGE)]
    assert account.mapped == 2 * PAGE
    kept.clear()
    more.clear()
    pool.lease(PAGE)
    assert account.held == 0
    assert account.mapped <= 2 * PAGE


def test_buffers_outlive_their_pool_and_its_account():
    pool = pool_of(Ledger(), 4 * PAGE)
    kept = pool.lease(PAGE)
    kept[:] = 3
    pool.close()
    del pool
    gc.collect()
    assert kept.sum() == 3 * PAGE


def test_no_bytes_at_all_can_be_leased():
    pool = pool_of(Ledger(), PAGE)
    assert len(pool.lease(0)) <= 1


def test_the_bytes_of_a_buffer_are_whole_pages_and_whole_huge_pages_where_it_fits():
    assert buffer_nbytes(1) == buffer_nbytes(PAGE) == PAGE
    assert buffer_nbytes(PAGE + 1) == 2 * PAGE
    assert buffer_nbytes(2 << 20) == 2 << 20
    assert buffer_nbytes((2 << 20) - 1) == 2 << 20


def test_nothing_is_granted_when_nothing_runs():
    gc.collect()
    assert process_ledger.granted == 0


def test_a_part_of_a_stream_takes_from_its_grant_and_grows_by_what_the_budget_leaves():
    ledger = Ledger()
    stream, part = Account(ledger, "stream"), Account(ledger, "its workers")
    stream.open(budget=100, need=10, want=60, why="blocks")
    ledger.divide(stream, part, 20)
    assert (stream.grant, stream.limit, part.grant, part.limit) == (40, 80, 20, 60)
    assert ledger.granted == 60
    ledger.extend(part, 30, budget=100, why="longer rows")
    assert (stream.grant, stream.limit, part.grant) == (40, 50, 50)
    with ledger.lock:
        assert stream.grow(50)  # Rows were longer than planned.
    with pytest.raises(BudgetError, match=r"its workers: it needs at least 51 B \(longer rows\)"):
        ledger.extend(part, 1, budget=100, why="longer rows")
    part.close()
    assert ledger.granted == 50
