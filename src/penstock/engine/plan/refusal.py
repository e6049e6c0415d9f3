"""What a stream that is refused memory says: a budget with which it runs to its end, and the cure that helps."""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from penstock.core.fingerprint import walk
from penstock.core.lazy import lazy
from penstock.core.parcels import Cursor, Parcel
from penstock.core.rows import Context, Flow, Node, Rows
from penstock.core.sizes import Seen, Sizes
from penstock.engine.plan.plan import Plan
from penstock.errors import BudgetError
from penstock.memory import Account, Advice, format_nbytes

if TYPE_CHECKING:
    from penstock.engine.plan import cures, need
else:
    cures = lazy("penstock.engine.plan.cures")  # Most streams are never refused.
    need = lazy("penstock.engine.plan.need")


class Guarded(Iterator[Parcel]):
    """The parcels of a stream; a refusal on the way tells which budget would do, and what else would."""

    def __init__(
        self, plan: Plan, flow: Flow, cursor: Cursor, context: Context, account: Account
    ) -> None:
        self._plan = plan
        self._sizes = context.sizes
        self._account = account
        try:
            self._parcels = flow.parcels(cursor, context)
        except BudgetError as error:
            raise self._explained(error) from error

    def __next__(self) -> Parcel:
        """Return the next parcel."""
        try:
            return next(self._parcels)
        except BudgetError as error:
            raise self._explained(error) from error

    def close(self) -> None:
        """Close the generator that makes the parcels."""
        getattr(self._parcels, "close", lambda: None)()

    def _explained(self, error: BudgetError) -> BudgetError:
        facts = need.look(self._plan, self._sizes, error)
        others = _others(self._plan, self._account)
        named = re.search(r"(?<=memory=)\d+", str(error))
        # Never less than what would have done just now: what functions make of batches is not known before.
        least = 0 if named is None else int(named[0])
        budget = max(least, need.enough(self._plan, facts, error) + others)
        if error.is_final:  # It names a budget for the row that it is about: others may be longer.
            text = re.sub(r"(?<=memory=)\d+", str(budget), str(error))
            return BudgetError(text, is_final=True)
        text = f"{str(error).split(' Write with_options(')[0]}"
        longest = _longest(self._plan, self._sizes)
        if longest:
            text += f" The longest {'is' if facts.is_whole else 'so far is'} {longest}."
        cure = _cure(self._plan, self._plan.budget - others, facts)
        return BudgetError(f"{text} Write with_options(memory={budget}), or more{cure}.")


def advice(plan: Plan, room: int) -> Advice:
    """Return what would help a stream that does not get what its plan needs, of `room` bytes that there are."""
    facts = need.look(plan, Sizes())
    return Advice(max(plan.need, need.enough(plan, facts)), _cure(plan, room, facts))


def _cure(plan: Plan, room: int, facts: "need.Facts") -> str:
    """Return the end of a sentence: whether that budget is certain, and what else helps."""
    at_least = " at least, since there may be more rows than were looked at"
    return ("" if facts.is_whole else at_least) + cures.cure_for(plan, room, facts)


def _longest(plan: Plan, sizes: Sizes) -> str:
    """Return where the longest row came from that a source or a function made, and its bytes; '' without any."""
    found: tuple[int, str] = (0, "")
    for node in walk(plan.node):
        seen = sizes.of(node)
        if seen.largest > found[0] and not node.is_batched:
            found = seen.largest, f"{_where(node, seen)} with {format_nbytes(seen.largest)}"
            break  # The first node that made it: others pass it on.
    return found[1]


def _where(node: Node, seen: Seen) -> str:
    if isinstance(node, Rows):
        return node.locate(seen.row, 0)
    file = ""
    if isinstance(node, Flow) and seen.cursor_after is not None:
        file = node.file_at(seen.cursor_after(seen.offset))
    return f"row {seen.row} of {file or node.describe()}"


def _others(plan: Plan, account: Account) -> int:
    """Return what other streams and caches have of the budget, not counting the caches of this one."""
    own = {id(account)}
    for node in walk(plan.node):
        store = getattr(node, "store", None)
        if store is not None and store.account is not None:
            own.add(id(store.account))
    with account.ledger.lock:
        return sum(one.grant for one in tuple(account.ledger.accounts) if id(one) not in own)
