"""The ledger of a process: what each stream was granted, what it maps, and what its consumer still holds."""

import gc
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

from penstock.errors import BudgetError
from penstock.memory.budget import format_nbytes


@dataclass(slots=True, eq=False)
class Account:
    """What one stream (or cache) may hold, and what it holds; changed only under `ledger.lock`."""

    ledger: "Ledger"
    name: str
    grant: int = 0
    """Bytes that are promised to it, whether in use or not."""
    budget: int = 0
    """The memory budget that it was opened with: its grant grows up to that, if rows turn out longer than planned."""
    mapped: int = 0
    held: int = 0
    """Bytes of delivered batches that the consumer still refers to. They are written off, never waited for."""
    peak: int = 0
    held_peak: int = 0
    is_open: bool = False

    @property
    def limit(self) -> int:
        """Bytes it may map at most: what the budget leaves it."""
        return self.budget - self.ledger.granted + self.grant

    def open(
        self,
        *,
        budget: int,
        need: int,
        want: int,
        why: str,
        advise: "Callable[[int], Advice] | None" = None,
    ) -> None:
        """Get a grant of `need` to `want` bytes, or raise with the budget that would do.

        `advise` is asked only then: it is told how many bytes there are, and may know of more that will be needed.
        """
        self.ledger.admit(self, budget=budget, need=need, want=want, why=why, advise=advise)

    def grow(self, nbytes: int) -> bool:
        """Raise the grant to `nbytes`, if the budget leaves so much; under `ledger.lock`."""
        if nbytes > self.grant:
            if nbytes > self.limit:
                return False
            self.grant = nbytes
            if self.ledger.granted + self.ledger.reserve_nbytes > self.budget:
                self.ledger.drop_reserve()
        return True

    def charge(self, nbytes: int) -> None:
        """Count `nbytes` more as mapped; the caller has made sure that they fit."""
        self.mapped += nbytes
        self.peak = max(self.peak, self.mapped)

    def write_off(self, nbytes: int) -> None:
        """Count bytes as held by the consumer, no longer as mapped by the stream."""
        self.mapped -= nbytes
        self.held += nbytes
        self.held_peak = max(self.held_peak, self.held)

    def close(self) -> None:
        """Give the grant back; buffers that the consumer still refers to stay counted as held."""
        with self.ledger.lock:
            self.is_open = False
            self.ledger.accounts.discard(self)


@dataclass(frozen=True, slots=True)
class Advice:
    """What would help a stream that is refused."""

    need: int
    """Bytes with which it runs to its end."""
    cure: str = ""
    """What else would help, as the end of a sentence: ', or use smaller batches'."""


class Ledger:
    """The accounts of one process. A stream is granted all it needs when it opens, or is refused."""

    def __init__(self) -> None:
        # Reentrant: a buffer may be released by the garbage collector inside any allocation.
        self.lock = threading.RLock()
        os.register_at_fork(after_in_child=self._begin_anew)
        self.accounts: set[Account] = set()
        self.reserve_nbytes = 0
        """Bytes of the idle buffers that closed streams left for the next one."""
        self.drop_reserve: Callable[[], None] = lambda: None

    def _begin_anew(self) -> None:
        """In a forked child: what was granted is its parent's, and so is whoever holds the lock."""
        self.lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001
        self.accounts = set()
        self.drop_reserve()

    @property
    def granted(self) -> int:
        """Bytes granted to all open accounts."""
        # Copies: the garbage collector may close the account of a cache in the middle of a loop over them.
        with self.lock:
            return sum(account.grant for account in tuple(self.accounts))

    @property
    def mapped(self) -> int:
        """Bytes that all open accounts have mapped, and those of the idle buffers in the reserve."""
        with self.lock:
            return self.reserve_nbytes + sum(account.mapped for account in tuple(self.accounts))

    def admit(
        self,
        account: Account,
        *,
        budget: int,
        need: int,
        want: int,
        why: str,
        advise: Callable[[int], Advice] | None = None,
    ) -> None:
        """Grant an account `need` to `want` bytes, or raise with the budget that would do."""
        self._collect_if_short(need, budget)
        with self.lock:
            others = self.granted
            taken = self._taken()
            room = budget - others
            if room >= need:
                if others + self.reserve_nbytes + want > budget:
                    self.drop_reserve()
                account.grant, account.budget, account.is_open = min(want, room), budget, True
                self.accounts.add(account)
                return
        # Not under the lock: to know what helps may take a look at the rows.
        advice = Advice(need) if advise is None else advise(room)
        raise BudgetError(refusal(account.name, budget, need, taken, why, advice))

    def extend(self, account: Account, nbytes: int, *, budget: int, why: str) -> None:
        """Grant an account `nbytes` more, or raise with the budget that would do."""
        self._collect_if_short(nbytes, budget)
        with self.lock:
            others = self.granted - account.grant
            if others + account.grant + nbytes > budget:
                need = account.grant + nbytes
                taken = self._taken(account)
                raise BudgetError(refusal(account.name, budget, need, taken, why, Advice(need)))
            if others + account.grant + nbytes + self.reserve_nbytes > budget:
                self.drop_reserve()
            account.grant += nbytes
            account.budget = budget

    def divide(self, account: Account, part: Account, nbytes: int) -> None:
        """Move `nbytes` of what an account was granted to `part`, a new account of the same stream."""
        with self.lock:
            account.grant -= nbytes
            part.grant, part.budget, part.is_open = nbytes, account.budget, True
            self.accounts.add(part)

    def _collect_if_short(self, nbytes: int, budget: int) -> None:
        """Run the garbage collector if there is no room: it frees unreachable caches that are part of a cycle.

        Not under the lock: a stream that is collected waits for its threads, which may need the lock.
        """
        if self.accounts and self.granted + nbytes > budget:
            gc.collect()

    def _taken(self, but: Account | None = None) -> dict[str, int]:
        """Return the grants of the others, the largest first, by their names."""
        grants: dict[str, int] = {}
        for account in sorted(self.accounts, key=lambda account: -account.grant):
            if account is not but and account.grant:
                grants[account.name] = grants.get(account.name, 0) + account.grant
        return grants


def refusal(
    name: str, budget: int, need: int, taken: dict[str, int], why: str, advice: Advice
) -> str:
    """Return the message for an account that needs more than the budget leaves it."""
    text = (
        f"the memory budget of {format_nbytes(budget)} ({budget} bytes) is too small for {name}: "
        f"it needs at least {format_nbytes(need)} ({why})"
    )
    if taken:
        names = ", ".join(f"{one} {format_nbytes(grant)}" for one, grant in taken.items())
        text += f", and {format_nbytes(sum(taken.values()))} are taken ({names})"
    least = advice.need + sum(taken.values())
    return f"{text}. Write with_options(memory={least}), or more{advice.cure}."


process_ledger = Ledger()
