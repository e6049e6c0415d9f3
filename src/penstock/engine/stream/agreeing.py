"""Which streams are compared with those of other ranks: the first of each `distribute`, once a process."""

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from penstock.core.fingerprint import walk
from penstock.core.lazy import lazy
from penstock.core.rows import Node
from penstock.core.state import State
from penstock.ranks.agreement import Agreement
from penstock.ranks.found import find_rank
from penstock.ranks.store import find_store

if TYPE_CHECKING:
    from penstock.ranks import identity
    from penstock.stages import distribute
else:
    # Most programs have one rank.
    identity = lazy("penstock.ranks.identity")
    distribute = lazy("penstock.stages.distribute")

_begun: "WeakKeyDictionary[Node, Agreement | None]" = WeakKeyDictionary()
"""For each distributed node: what goes on looking, in whichever stream of it is read."""


def agreement_of(node: Node, begin: State) -> Agreement | None:
    """Return what compares a chain with that of the other ranks; None if it is not distributed, or nobody can tell."""
    for one in walk(node):
        stage = getattr(one, "stage", None)
        if one.declared is None or not isinstance(stage, distribute.Distribute):
            continue
        if one not in _begun:
            _begun[one] = _begin(one.declared, stage, begin)
        return _begun[one]
    return None


def _begin(declared: Node, stage: "distribute.Distribute", begin: State) -> Agreement | None:
    _refuse_if_alone_before(stage)
    store = None if stage.world == 1 else find_store()
    if store is None:
        return None
    start = f"epoch {begin.epoch}, batch {begin.element}"
    texts = identity.identity_of(declared, world=stage.world, start=start)
    texts["uneven"] = f"{stage.uneven}{', static' if stage.static else ''}"
    agreement = Agreement(texts, stage.rank, stage.world, stage.key, store)
    agreement.begin()
    return agreement


def _refuse_if_alone_before(stage: "distribute.Distribute") -> None:
    """Raise if the chain was built where there was one rank, and is read by one of several: each would read all."""
    if not stage.is_found or stage.world > 1:
        return
    try:
        found = find_rank()
    except ValueError:
        return
    if found.world > 1:
        raise ValueError(
            f"distribute() was called where no engine ran, and found one rank; by {found.engine} this is rank "
            f"{found.rank} of {found.world} now, and each of them would read all rows. Call distribute() in each "
            "worker, after the engine is initialised."
        )
