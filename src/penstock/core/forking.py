"""What a forked child must not take over from its parent: locks that its threads hold, and all that is its own.

Only the thread that forks exists in the child. A lock that another thread held would never be released there.
"""

import ctypes
import os
import threading
import weakref
from typing import Any

_locks: "weakref.WeakSet[Any]" = weakref.WeakSet()


def lock() -> threading.Lock:
    """Return a lock that is free in a forked child: for what outlives a stream, since a child may use it."""
    made = threading.Lock()
    _locks.add(made)
    return made


def rlock() -> threading.RLock:
    """Return a reentrant lock that is free in a forked child, unless the thread that forks has it."""
    made = threading.RLock()
    _locks.add(made)
    return made


def _renew_locks() -> None:
    for one in list(_locks):
        if not getattr(one, "_is_owned", bool)():
            one._at_fork_reinit()  # noqa: SLF001  # As `threading` itself does with its locks.


os.register_at_fork(after_in_child=_renew_locks)


def keep_for_ever(one: object) -> None:
    """Never let go of an object, nor of what it refers to: what they would do at their end, their owner does."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(one))
