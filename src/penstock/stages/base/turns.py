"""Functions that fill one buffer and return it each time: called by one thread at a time.

What a function returns is copied before it is called again, but only on its own thread. If two threads call such a
function at once, one fills the buffer while the other copies from it. So the first calls of every function are made
one at a time, and looked at: one that returns the same memory with other contents takes turns for good.
"""

import contextlib
import functools
import sys
import zlib
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from penstock.core import forking
from penstock.core.nest import flatten

_PATIENCE = (
    1.0  # Seconds that a thread waits for its turn with a function of which nothing is known.
)
_LOOKS = 6  # Calls that are looked at before a function may run on several threads at once.
_MOST_SEEN = (
    64  # Objects that a function returned and kept, by which it is known to return one again.
)
_PLAIN = (int, float, complex, str, bytes, np.generic, type(None))
"""What can't be filled anew."""


class Turns:
    """Whether the threads that call a function must take turns."""

    def __init__(self) -> None:
        self.lock = forking.rlock()  # A function may read a dataset that calls it, too.
        self.must = False
        """Whether the function returns memory that it fills anew."""
        self._num_looked = 0
        self._seen: dict[int, int] = {}

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """Call the function while no other thread does; while nothing is known of it, wait only a while.

        One that takes long is not held up for long, and one that waits for another thread does not wait for ever.
        """
        is_mine = self.lock.acquire(timeout=-1 if self.must else _PATIENCE)
        try:
            yield
        finally:
            if is_mine:
                self.lock.release()

    def settled(self) -> bool:
        """Return whether enough calls were looked at to let threads call it at once."""
        return not self.must and self._num_looked >= _LOOKS

    def look(self, result: Any, leaves: Any) -> None:
        """Look at a result, of which the caller has one reference, and at the row it was made of."""
        self._num_looked += 1
        rows = {id(_root(leaf)) for leaf in leaves if isinstance(leaf, np.ndarray)}
        is_kept = sys.getrefcount(result) > _FRESH_REFERENCES
        for one in _kept(result, rows, is_kept=is_kept):
            contents = _contents(one)
            if self._seen.get(id(_root(one)), contents) != contents:
                self.must = True
            if len(self._seen) < _MOST_SEEN:
                self._seen[id(_root(one))] = contents

    def __reduce__(self) -> tuple[type["Turns"], tuple[()]]:
        return Turns, ()


_turns: "WeakKeyDictionary[Any, Turns]" = WeakKeyDictionary()
_lock = forking.lock()


def turns_of(function: Any) -> Turns:
    """Return the turns of a function: one object for all stages that call it, and for all methods of an object."""
    while isinstance(function, functools.partial):
        function = function.func
    owner = getattr(function, "__self__", None)
    owner = function if owner is None else owner
    with _lock:
        try:
            found = _turns.get(owner)
            if found is None:
                found = _turns[owner] = Turns()
        except TypeError:  # It has no hash, or no weak references.
            return Turns()
        return found


def _kept(value: Any, rows: set[int], *, is_kept: bool) -> list[Any]:
    """Return the arrays and other objects of a result that somebody else keeps, and could fill anew."""
    if isinstance(value, _PLAIN):
        return []
    if isinstance(value, np.ndarray):
        root = _root(value)
        if id(root) in rows:
            return []  # A view of the row, in memory of ours.
        # The root of a view has one reference more: by the view, or by the next view on the way.
        is_kept = is_kept or (root is not value and sys.getrefcount(root) > _ROOT_REFERENCES)
        return [value] if is_kept else []
    if isinstance(value, dict | list | tuple):
        found: list[Any] = [value] if is_kept and not isinstance(value, tuple) else []
        inner = list(value.values()) if isinstance(value, dict) else list(value)
        while inner:
            one = inner.pop()
            kept = is_kept or sys.getrefcount(one) > _INNER_REFERENCES
            found += _kept(one, rows, is_kept=kept)
        return found
    return [value] if is_kept else []


def _root(value: Any) -> Any:
    """Return the array that owns the memory of an array; anything else as it is."""
    while isinstance(value, np.ndarray) and isinstance(value.base, np.ndarray):
        value = value.base
    return value


def _contents(value: Any) -> int:
    """Return a number that differs where contents do."""
    total = 0
    for leaf in flatten(value)[0]:
        if isinstance(leaf, _PLAIN):
            total = zlib.crc32(repr(leaf).encode(), total)
            continue
        try:
            array = np.ascontiguousarray(leaf)
            total = zlib.crc32(array.view(np.uint8).data if array.size else b"", total)
        except (TypeError, ValueError):
            total = zlib.crc32(repr(leaf).encode(), total)
    return total


def _count(value: Any) -> int:
    return sys.getrefcount(value)


def _measured() -> tuple[int, int, int]:
    """Return the references to an object that nobody keeps: as an argument, in a container, as the root of a view."""
    fresh = object()
    container = [object()]
    inner = list(container)
    one = inner.pop()
    view = np.zeros(2)[:1]
    root = _root(view)
    return _count(fresh), sys.getrefcount(one), sys.getrefcount(root)


# Counted, not known: versions of Python differ.
_FRESH_REFERENCES, _INNER_REFERENCES, _ROOT_REFERENCES = _measured()
