"""What waits between two streams of one chain, such as worker processes: it belongs to a node, and ends with it."""

import os
import weakref
from collections.abc import Iterable
from typing import Any, NamedTuple, Protocol

from penstock.core import forking


class Restable(Protocol):
    """Something that can wait for its next use."""

    def close(self) -> None:
        """End it, and wait for that."""
        ...

    def end_soon(self) -> None:
        """Let it end by itself, without waiting: the garbage collector calls this, in any thread and under any lock."""
        ...


class _Waiting(NamedTuple):
    owner: "weakref.ref[Any]"
    one: Any


_waiting: dict[int, _Waiting] = {}
"""By the id of the owner."""
_lock = (
    forking.rlock()
)  # Reentrant: the garbage collector may find that an owner is gone at any moment.


def keep(owner: Any, one: Restable) -> None:
    """Keep something until its owner takes it, or is gone; what waited for this owner before is closed.

    Whoever keeps too much of one kind would not be noticed: so it is one thing an owner.
    """
    key = id(owner)

    def gone(reference: "weakref.ref[Any]") -> None:
        with _lock:
            found = _waiting.get(key)
            if found is None or found.owner is not reference:
                return
            del _waiting[key]
        found.one.end_soon()

    with _lock:
        before = _waiting.pop(key, None)
        _waiting[key] = _Waiting(weakref.ref(owner, gone), one)
    if before is not None and before.one is not one:
        before.one.close()


def take(owner: Any) -> Any:
    """Return what waits for this owner, which is the caller's from now on; None if nothing does."""
    with _lock:
        found = _waiting.pop(id(owner), None)
    return None if found is None else found.one


def close(owners: Iterable[Any]) -> None:
    """End what waits for these owners."""
    for owner in owners:
        one = take(owner)
        if one is not None:
            one.close()


def close_all() -> None:
    """End all that waits, whoever it belongs to."""
    while True:
        with _lock:
            if not _waiting:
                return
            _, found = _waiting.popitem()
        found.one.close()


def _leave_to_parent() -> None:
    """In a forked child: have no part in what the parent keeps."""
    for found in list(_waiting.values()):
        forking.keep_for_ever(found.one)
    _waiting.clear()


os.register_at_fork(after_in_child=_leave_to_parent)
