"""Memory that a library takes for itself: counted while it lasts."""

import threading

import pytest

from penstock.errors import BudgetError
from penstock.memory import Account, Ledger, Pool


@pytest.fixture
def pool():
    account = Account(Ledger(), "a test")
    account.open(budget=1000, need=100, want=1000, why="a test")
    pool = Pool(account)
    yield pool
    pool.close()


def test_a_hold_counts_and_is_given_back_after_an_error_too(pool):
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), pool.hold(900):
            assert pool.account.mapped == 900
            raise ZeroDivisionError
    assert (pool.account.mapped, pool.account.peak) == (0, 900)


def test_a_hold_that_can_never_fit_is_refused_at_once(pool):
    with pytest.raises(BudgetError, match="a test has 0 B and needs another"), pool.hold(1001):
        pass
    assert pool.account.mapped == 0


def test_a_hold_waits_for_that_of_another_thread(pool):
    order = []

    def second():
        with pool.hold(600):
            order.append("second")

    with pool.hold(600):
        thread = threading.Thread(target=second)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
    assert pool.account.peak == 600
