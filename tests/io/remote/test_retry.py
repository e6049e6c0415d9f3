"""Waiting times grow, are spread, and end."""

import asyncio

import pytest

from penstock.errors import ReadError
from penstock.io.remote.retry import RetryPolicy, TransientError, persist


def test_delays_double_up_to_a_limit_and_are_spread():
    policy = RetryPolicy(num_attempts=8, first_delay=1.0, max_delay=10.0)
    runs = [list(policy.delays()) for _ in range(50)]
    for spans in zip(*runs, strict=True):
        assert len(set(spans)) > 1
    for delays in runs:
        for delay, span in zip(delays, [1, 2, 4, 8, 10, 10, 10], strict=True):
            assert span / 2 <= delay <= span


def test_a_policy_tries_at_least_once():
    with pytest.raises(ValueError, match="num_attempts must be at least 1, got 0"):
        RetryPolicy(num_attempts=0)


def test_a_large_request_may_take_longer():
    policy = RetryPolicy(stall_timeout=30, min_rate=1000)
    assert policy.time_limit(10_000) == 40


def test_persisting_stops_at_the_first_success():
    tries = []

    async def attempt() -> str:
        tries.append(1)
        if len(tries) < 3:
            raise TransientError("not yet", retry_after=1000)
        return "here"

    policy = RetryPolicy(num_attempts=5, first_delay=0.0, max_delay=0.0)
    assert asyncio.run(persist(attempt, policy, file="x")) == "here"
    assert len(tries) == 3


def test_persisting_ends_with_the_last_reason():
    async def attempt() -> None:
        raise TransientError("the cable is cut")

    policy = RetryPolicy(num_attempts=2, first_delay=0.0)
    with pytest.raises(ReadError, match=r"x, byte 5: reading failed 2 times; .*: the cable is cut"):
        asyncio.run(persist(attempt, policy, file="x", offset=5))
