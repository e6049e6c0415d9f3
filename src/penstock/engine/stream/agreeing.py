"""Which streams are compared with those of other ranks: the first of each `distribute`, once a process."""

from weakref import WeakKeyDictionary

from penstock.core.fingerprint import walk
from penstock.core.rows import Node
from penstock.core.state import State
from penstock.ranks.agreement import Agreement
from penstock.ranks.identity import identity_of
from penstock.ranks.store import find_store
from penstock.stages.distribute.stage import Distribute

_begun: "WeakKeyDictionary[Node, Agreement | None]" = WeakKeyDictionary()
"""For each distributed node: what goes on looking, in whichever stream of it is read."""


def agreement_of(node: Node, begin: State) -> Agreement | None:
    """Return what compares a chain with that of the other ranks; None if it is not distributed, or nobody can tell."""
    for one in walk(node):
        stage = getattr(one, "stage", None)
        if one.declared is None or not isinstance(stage, Distribute) or stage.world == 1:
            continue
        if one not in _begun:
            _begun[one] = _begin(one.declared, stage, begin)
        return _begun[one]
    return None


def _begin(declared: Node, stage: Distribute, begin: State) -> Agreement | None:
    store = find_store()
    if store is None:
        return None
    start = f"epoch {begin.epoch}, batch {begin.element}"
    identity = identity_of(declared, world=stage.world, start=start)
    identity["uneven"] = f"{stage.uneven}{', static' if stage.static else ''}"
    agreement = Agreement(identity, stage.rank, stage.world, stage.key, store)
    agreement.begin()
    return agreement
