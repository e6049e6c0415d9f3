"""Ranks that go on from one checkpoint: the first one loads it and says which it was, then the others do.

Before that the others must not look: the first one of an earlier run may still be writing. What it writes itself comes
after its first step, which takes all ranks.
"""

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from penstock.core.share import Share
from penstock.errors import StateError
from penstock.feeds.keras.saved_run import Saved
from penstock.ranks.store import Store, find_store

LIMIT_SECONDS = 120.0
_INTERVAL = 0.05
_FAILED = "failed"
_loads: Counter[str] = Counter()
"""How often this process has loaded from a folder of some name: each time has its own key."""


def loaded_in_turn(
    load: Callable[[], Saved | None], path: Path, share: Share | None
) -> Saved | None:
    """Return what `load` returns, on every rank of a training the same, or raise."""
    store = find_store() if share is not None and share.world > 1 else None
    if store is None or share is None:
        return load()
    name = path.parent.name
    _loads[name] += 1
    key = f"checkpoint/{name}/{_loads[name]}"
    if share.rank:
        return _after_first(load, path, share, _answer(store, key, path))
    try:
        saved = load()
    except BaseException:
        store.put(key, _FAILED)
        raise
    store.put(key, _words(saved))
    return saved


def _answer(store: Store, key: str, path: Path) -> str:
    """Return what rank 0 says that it goes on from, once it does."""
    end = monotonic() + LIMIT_SECONDS
    while (found := store.look(key)) is None:
        if monotonic() > end:
            raise StateError(
                f"rank 0 did not say within {LIMIT_SECONDS:.0f} s what it goes on from; all ranks must call fit with "
                f"the checkpoint, {path}."
            )
        sleep(_INTERVAL)  # Stores of engines have no way to wait that can be interrupted.
    return found


def _after_first(
    load: Callable[[], Saved | None], path: Path, share: Share, first: str
) -> Saved | None:
    if first == _FAILED:
        raise StateError(f"rank 0 could not load {path}: its own error says why.")
    saved = load()
    if _words(saved) != first:
        raise StateError(
            f"rank {share.rank} would go on from {_words(saved)} in {path}, and rank 0 goes on from {first}: the "
            "folder of a checkpoint must be one that all ranks see."
        )
    return saved


def _words(saved: Saved | None) -> str:
    if saved is None:
        return "nothing"
    place: Any = saved.state if isinstance(saved.state, dict) else {}
    return (
        f"epoch {saved.epoch}, step {saved.steps_done} "
        f"(data {json.dumps([place.get('epoch'), place.get('element')])})"
    )
