"""Whether all ranks read the same: each compares itself with rank 0, and nobody waits for anybody.

It is no collective: a rank that reads alone finds nobody to compare with, and that is all. What a rank does takes the
same few looks however many ranks there are.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from itertools import zip_longest
from time import monotonic

from penstock.errors import RankMismatchError
from penstock.ranks.store import Store

LOOKING_SECONDS = 60.0
_FIRST_INTERVAL = 0.01  # It doubles: ranks that differ are to know before a short epoch is over.
_INTERVAL = 0.2
_INTERVAL_OF_A_RANK = 1e-3  # All ranks together look a thousand times a second at most.
_REST = 20  # Looking takes at most a twentieth of the time, however slow the store is.
_SHOWN = 100  # Characters of a value that a message shows.
_CURE = (
    "Give every rank the same files, arrays, seed and chain, and resume all of them from the same state. If this rank "
    "reads alone on purpose: distribute(rank=0, world=1)."
)


class Agreement:
    """Compares what this rank reads with what rank 0 reads, while the stream runs.

    `begin()` says what this rank reads; then `look()` is called now and then, between two batches say. A rank that
    differs from rank 0 raises, and leaves a text from which all others raise, too.

    Args:
        identity: What must be the same on all ranks, as texts by the words that a message calls them.
        rank: The rank of this process. Several processes may have the same.
        world: How many ranks there are.
        key: A name for the stream, the same on every rank, and another for every stream.
        store: Where ranks find each other.
    """

    def __init__(
        self, identity: Mapping[str, str], rank: int, world: int, key: str, store: Store
    ) -> None:
        self.ended = ""
        """Why looking ended before its time: the store failed. '' if it did not."""
        self._identity = dict(identity)
        self._rank = rank
        self._key = key
        self._store: Store | None = store
        self._interval = _FIRST_INTERVAL
        self._longest = max(_INTERVAL, world * _INTERVAL_OF_A_RANK)
        self._is_same = rank == 0
        self._next = self._last = 0.0

    @property
    def is_done(self) -> bool:
        """Whether nothing more is compared."""
        return self._store is None

    def begin(self) -> None:
        """Tell the others, if this is rank 0, what it reads; the time of looking begins."""
        self._next = monotonic()
        self._last = self._next + LOOKING_SECONDS
        if self._rank == 0 and self._store is not None:
            try:
                # Some stores answer at once only for keys that have a value.
                self._store.put(f"{self._key}/differs", "")
                self._store.put(f"{self._key}/0", json.dumps(self._identity))
            except Exception as error:  # noqa: BLE001  # Each engine has errors of its own.
                self._end(error)

    def look(self) -> None:
        """Compare with rank 0 if it is time to, for a few ms; raise if this rank or another one differs.

        The first look after a minute is the last: a rank that waited for rank 0 longer than that, in its first
        step, sees it then.
        """
        if self._store is None or (now := monotonic()) < self._next:
            return
        text = self._differing(self._store)
        if text:
            self._store = None
            raise RankMismatchError(text)
        later = monotonic()
        self._next = later + max(self._interval, _REST * (later - now))
        self._interval = min(2 * self._interval, self._longest)
        if now >= self._last:
            self._store = None

    def _differing(self, store: Store) -> str:
        try:
            if not self._is_same:
                found = store.look(f"{self._key}/0")
                if found is None:
                    return ""
                text = difference(self._identity, json.loads(found), self._rank)
                if text:
                    with suppress(Exception):  # It is raised here in any case.
                        store.put(f"{self._key}/differs", text)
                    return text
                self._is_same = True
            return store.look(f"{self._key}/differs") or ""
        except Exception as error:  # noqa: BLE001  # As above.
            self._end(error)
            return ""

    def _end(self, error: Exception) -> None:
        """Look no more. What is wrong with the store, training itself will say."""
        self.ended = f"{type(error).__name__}: {error}"
        self._store = None


def difference(mine: Mapping[str, str], first: Mapping[str, str], rank: int) -> str:
    """Return what differs between this rank and rank 0, as the text of an error; '' if nothing does."""
    words = [word for word in {**first, **mine} if mine.get(word) != first.get(word)]
    if not words:
        return ""
    lines = [f"rank {rank} does not read the same as rank 0:"]
    for word in words:
        here, there = _apart(mine.get(word, "nothing"), first.get(word, "nothing"))
        lines.append(f"  {word}: {here} on rank {rank}, {there} on rank 0")
    return "\n".join([*lines, _CURE])


def _apart(one: str, other: str) -> tuple[str, str]:
    """Return both texts, shortened around the place where they begin to differ."""
    pairs = enumerate(zip_longest(one, other))
    same = next((place for place, (here, there) in pairs if here != there), 0)
    start = 0 if max(len(one), len(other)) <= _SHOWN else max(0, same - _SHOWN // 4)
    return _cut(one, start), _cut(other, start)


def _cut(text: str, start: int) -> str:
    head = "..." if start else ""
    tail = "..." if len(text) > start + _SHOWN else ""
    return f"{head}{text[start : start + _SHOWN]}{tail}"
