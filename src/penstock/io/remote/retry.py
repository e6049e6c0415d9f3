"""When to try a remote read again, and after how long."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import TypeVar

from penstock.errors import ReadError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often to try, how long to wait in between, and when to give a connection up.

    Args:
        num_attempts: Tries in all, the first included.
        first_delay: Seconds before the second try; doubled for each later one.
        max_delay: Never wait longer than this many seconds.
        stall_timeout: Seconds without a byte before a connection counts as dead.
        min_rate: Bytes a second below which a request is given up, once `stall_timeout` has passed.
    """

    num_attempts: int = 6
    first_delay: float = 0.2
    max_delay: float = 10.0
    stall_timeout: float = 30.0
    min_rate: int = 64 << 10

    def __post_init__(self) -> None:
        if self.num_attempts < 1:
            raise ValueError(f"num_attempts must be at least 1, got {self.num_attempts}.")

    def delays(self) -> Iterator[float]:
        """Yield the seconds to wait before each further try.

        Each is random, between half and all of a span that doubles, so that readers that failed
        together do not all try again together.
        """
        for attempt in range(self.num_attempts - 1):
            span = min(self.first_delay * 2.0**attempt, self.max_delay)
            yield span * random.uniform(0.5, 1.0)

    def time_limit(self, nbytes: int) -> float:
        """Return the seconds after which a request for `nbytes` is given up, even if bytes still trickle in."""
        return self.stall_timeout + nbytes / self.min_rate


class TransientError(Exception):
    """A failure that may pass and is worth another try.

    Args:
        reason: What happened, for the message if it happens every time.
        num_done: How many bytes came before the failure.
        retry_after: After how many seconds the server wants to be asked again.
    """

    def __init__(self, reason: str, *, num_done: int = 0, retry_after: float = 0.0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.num_done = num_done
        self.retry_after = retry_after


async def persist(
    attempt: Callable[[], Awaitable[T]],
    policy: RetryPolicy,
    *,
    file: str,
    offset: int | None = None,
) -> T:
    """Return what `attempt` returns, trying again after each TransientError it raises."""
    reason = ""
    for delay in (0.0, *policy.delays()):
        await asyncio.sleep(delay)
        try:
            return await attempt()
        except TransientError as error:
            reason = error.reason
            await asyncio.sleep(min(error.retry_after, policy.max_delay))
    raise ReadError(
        f"reading failed {policy.num_attempts} times; the last time: {reason}",
        file=file,
        offset=offset,
        cure="Check the network and the server, or copy the file to a local disk first.",
    )
