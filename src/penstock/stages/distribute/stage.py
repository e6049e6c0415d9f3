"""The declaration, and the node that it makes: a global chain, of which one rank's part is run."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.evidence import Evidence
from penstock.core.fingerprint import walk
from penstock.core.parcels import Cursor, Parcel
from penstock.core.route import Route
from penstock.core.rows import Context, Flow, Node, Rows
from penstock.core.seeds import is_drawn_here
from penstock.core.share import Share, Uneven
from penstock.errors import LengthError
from penstock.stages.base.segment import as_flow
from penstock.stages.base.stage import Stage, StageFlow, StageNode, StageRows
from penstock.stages.batch import Batch, BatchedFlow, BatchedRows
from penstock.stages.cache import Cache
from penstock.stages.concatenate import ConcatenatedRows
from penstock.stages.distribute.cut import CutFlow, CutRows, check_cuttable
from penstock.stages.distribute.rank_rows import RankRows, WeighedRows
from penstock.stages.distribute.reading import reading_notes
from penstock.stages.enumerate import Enumerate
from penstock.stages.filter import Filter
from penstock.stages.map import Map
from penstock.stages.mix import MixedRows
from penstock.stages.repeat import Repeat
from penstock.stages.shard import Shard
from penstock.stages.shuffle import Shuffle
from penstock.stages.shuffle.by_index import ShuffledRows
from penstock.stages.skip import Skip
from penstock.stages.take import Take
from penstock.stages.zip import ZippedRows

_BATCHED = (BatchedRows, BatchedFlow)
# After these a batch is still a batch of so many rows.
_KEEPING = (Map, Filter, Take, Skip, Repeat, Shard, Shuffle, Cache)
# These only say which batches there are, by their numbers.
_NUMBERING = (Take, Skip, Repeat, Shard)


@dataclass(frozen=True, slots=True)
class Distribute(Stage):
    """Of every global batch, the rows of one rank."""

    rank: int
    world: int
    uneven: Uneven | None = None
    static: bool = False
    replicas: int = 1
    engine: str = ""
    """What told the rank: '' if the user did."""
    is_found: bool = False
    """Whether the rank was found, or rather that there is only one; False if the user gave it."""
    key: str = ""
    """What ranks call this dataset among themselves: where it was made, and the how many-th it is from there."""

    def build(self, node: Node) -> Node:
        """Return this rank's part of the batches of `node`."""
        self.refuse_after(node)
        if self.world > 1:
            _refuse_drawn_seeds(node)
        share = self._share({one.stage.batch_size for one in _batches_of(node)})
        self._check_uneven(_short_batches(node))
        whole = _dropping(node) if self.uneven == "drop" else node
        if isinstance(whole, Rows):
            return DistributedRows(self, node, whole, self._part(whole, share), share)
        check_cuttable(whole, share)
        return DistributedFlow(
            self, node, whole, CutFlow(self, as_flow(whole), share, _rests(whole)), share
        )

    def refuse_after(self, node: Node) -> None:
        """Raise if `node` is one rank's part already."""
        if node.share is not None:
            raise ValueError(
                f"distribute can't follow distribute: this is rank {node.share.rank} of {node.share.world} already. "
                "Call it once, at the end."
            )

    def of_rows(self, rows: Rows) -> Node:
        """Return this rank's part of the batches."""
        return self.build(rows)

    def of_flow(self, flow: Flow) -> Node:
        """Return this rank's part of the batches."""
        return self.build(flow)

    def _share(self, sizes: set[int]) -> Share:
        if len(sizes) != 1:
            raise ValueError(
                f"distribute needs batches of one size, got {' and '.join(map(str, sorted(sizes)))}."
            )
        size = sizes.pop()
        step = self.world * self.replicas
        if size % step:
            below, above = size // step * step, -(-size // step) * step
            of = f"{self.world} rank{'' if self.world == 1 else 's'}"
            of += f" of {self.replicas} devices each" if self.replicas > 1 else ""
            near = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"distribute needs a global batch size that divides by {step} ({of}), got batch({size}); "
                f"the nearest that {'do are' if below else 'does is'} {near}."
            )
        return Share(self.rank, self.world, size, self.replicas, self.uneven, self.static)

    def _check_uneven(self, batches: Sequence[BatchedRows | BatchedFlow]) -> None:
        if self.uneven is not None:
            return
        for node in batches:
            total = node.inputs[0].num_rows
            size = node.stage.batch_size
            rest = node.stage.rest(total)
            what = "may have fewer rows: how many there are is not known"
            if rest is not None:
                what = f"has only {rest} of {size} rows, of {total} in all"
            raise ValueError(
                f"distribute: the last global batch {what}. Say what becomes of it:\n"
                '  leave it out:        .distribute(uneven="drop")\n'
                '  fill it up, weighed: .distribute(uneven="pad"), which gives (batch, weight)'
            )

    def _part(self, node: Rows, share: Share) -> Rows:
        """Return this rank's part of batches with random access, picked as far down the chain as can be."""
        made: Node | None = None
        if isinstance(node, BatchedRows) and type(node.stage) is Batch:
            rows: Rows = RankRows(self, node.input, share, drop=node.stage.drop_remainder)
            if share.is_weighted:
                assert isinstance(rows, RankRows)
                rows = WeighedRows(self, rows)
            made = replace(node.stage, batch_size=share.local_size).build(rows)
        elif isinstance(node, StageRows) and isinstance(node.stage, _NUMBERING):
            made = node.stage.build(self._part(node.input, share))
        elif isinstance(node, ShuffledRows):
            # Built as it is: the stage would choose by the size of a batch, which is another here.
            made = ShuffledRows(node.stage, self._part(node.input, share), seed=node.seed)
        elif isinstance(node, ZippedRows | ConcatenatedRows | MixedRows) and not share.is_weighted:
            made = node.rebuilt([self._part(one, share) for one in node.nodes])
        if made is None:
            check_cuttable(node, share)
            made = CutRows(self, node, share, _rests(node))
        assert isinstance(made, Rows)
        return made

    def describe(self) -> str:
        """Return the call that made it, with the rank as it was found."""
        words = [f"rank={self.rank}", f"world={self.world}"]
        words += [] if self.uneven is None else [f"uneven={self.uneven!r}"]
        words += ["static=True"] if self.static else []
        return f"distribute({', '.join(words)})"

    def fingerprint(self) -> Any:
        """Return None: the batches are those of one process, so that a state goes from the one to the other."""
        return None


def _refuse_drawn_seeds(node: Node) -> None:
    for one in walk(node):
        giver = getattr(one, "mixing", getattr(one, "stage", None))
        if is_drawn_here(getattr(giver, "seed", None)):
            raise ValueError(
                f"{one.describe()} drew its seed, and so does every rank: each would have another order, so that rows "
                "are lost and repeated. Give all ranks one, such as seed=0."
            )


def _batches_of(node: Node) -> list[BatchedRows | BatchedFlow]:
    """Return the nodes that made the batches which a node hands on; raise if it hands on anything else."""
    if isinstance(node, _BATCHED):
        sizes = getattr(node.stage, "sizes", ())
        if len(set(sizes)) > 1:
            shown = " and ".join(map(str, sorted(set(sizes))))
            raise ValueError(
                f"distribute needs batches of one size, and {node.describe()} gives batches of {shown} rows: give "
                "all buckets the same size."
            )
        return [node]
    keeps = isinstance(node, StageNode) and isinstance(node.stage, _KEEPING)
    if not node.is_batched or not node.inputs or not (keeps or len(node.inputs) > 1):
        right = "ds.batch(64).distribute()"
        if isinstance(node, StageNode) and isinstance(node.stage, Enumerate):
            right += ".enumerate()"
        raise ValueError(
            f"distribute cuts global batches, and {node.describe()} gives none.\n"
            f"  wrong: ds.distribute()\n  right: {right}\nOf several datasets, combine rows first, then batch them."
        )
    return list(itertools.chain.from_iterable(_batches_of(one) for one in node.inputs))


def _short_batches(node: Node) -> list[BatchedRows | BatchedFlow]:
    """Return the nodes that made the batches of which one may be short, unless it is taken away."""
    if isinstance(node, _BATCHED):
        return [] if node.stage.is_whole(node.inputs[0].num_rows) else [node]
    found = list(itertools.chain.from_iterable(_short_batches(one) for one in node.inputs))
    if found and isinstance(node, StageRows) and isinstance(node.stage, Take):
        at: Node = node.input
        while isinstance(at, StageRows) and isinstance(at.stage, Map | Take | Skip):
            at = at.input
        # It is the last of the batches, as long as nothing moves them.
        if isinstance(at, _BATCHED) and node.num_rows < node.input.num_rows:
            return []
    return found


def _rests(node: Node) -> frozenset[int] | None:
    """Return how many rows short batches have; None if that is not known."""
    found = [one.stage.rest(one.inputs[0].num_rows) for one in _short_batches(node)]
    if any(rest is None for rest in found):
        return None
    return frozenset(rest for rest in found if rest is not None)


def _dropping(node: Node) -> Node:
    """Return the same chain without batches that are cut short."""
    if isinstance(node, _BATCHED):
        if node.stage.is_whole(node.inputs[0].num_rows):
            return node
        return replace(node.stage, drop_remainder=True).build(node.inputs[0])
    if not _short_batches(node):
        return node
    inputs = [_dropping(one) for one in node.inputs]
    if all(new is old for new, old in zip(inputs, node.inputs, strict=True)):
        return node
    is_cache = isinstance(node, StageNode) and isinstance(node.stage, Cache)
    if is_cache:
        raise ValueError(
            f'{node.describe()} keeps batches, of which one is short, so that distribute(uneven="drop") can\'t leave '
            "it out any more. Leave it out before: batch(..., drop_remainder=True)."
        )
    try:
        return node.rebuilt(inputs)
    except LengthError as error:
        raise ValueError(
            f'distribute(uneven="drop") leaves a short batch out, and then the inputs of {node.describe()} differ: '
            f"{error} Combine rows first, then batch them."
        ) from error


class _Distributed(StageNode):
    """What rows and flows share: two chains, the one that was declared, and the one that is run here."""

    stage: Distribute

    def _join(self, node: Node, whole: Node, share: Share) -> None:
        self.given = node
        """The chain as it was given, with a short batch that is dropped."""
        self.declared = whole
        self.share = share
        self.weighs_rows = share.is_weighted

    def evidence(self) -> Iterator[Evidence]:
        """Yield the rank and the world: what is kept of these rows is of no use to another."""
        yield Evidence("the rank", lambda: [self.stage.rank, self.stage.world], "values")

    def with_errors(self, on_error: str) -> Node:
        """Return the part of what the whole chain is under `on_error`."""
        new = self.given.with_errors(on_error)
        return self if new is self.given else self.stage.build(new)

    def rebuilt(self, inputs: Sequence[Node]) -> Node:
        """Return the same part of another chain that is run here: to plan with."""
        assert self.declared is not None
        assert self.share is not None
        (part,) = inputs
        if isinstance(part, Rows):
            return DistributedRows(self.stage, self.given, self.declared, part, self.share)
        return DistributedFlow(self.stage, self.given, self.declared, as_flow(part), self.share)

    def notes(self) -> tuple[str, ...]:
        """Return who found the rank, what becomes of a short batch, and how much this rank reads."""
        assert self.declared is not None
        notes = []
        if self.stage.engine:
            notes.append(
                f"distribute: {self.stage.engine} says that this is rank {self.stage.rank} of "
                f"{self.stage.world}."
            )
        for one in _short_batches(self.given):
            notes += self._short_note(one)
        return (*notes, *reading_notes(self.inputs[0], self.stage.world))

    def _short_note(self, node: BatchedRows | BatchedFlow) -> Iterator[str]:
        total, size = node.inputs[0].num_rows, node.stage.batch_size
        rows = "The rows" if total is None else f"{total % size} rows"
        if self.stage.uneven == "drop":
            yield f"{rows} of a last global batch that is not whole are left out of each pass."
            return
        assert self.share is not None
        filled = "as needed" if total is None else f"to {self.share.filled(total % size)}"
        yield (
            f"{rows} of a last global batch are filled up {filled} with repeats of weight 0. A mean of "
            "weight * loss over all ranks has the gradients of one process; metrics of an epoch weigh that batch as "
            "so many rows, and BatchNorm sees the repeats."
        )


class DistributedRows(_Distributed, StageRows):
    """This rank's part of each batch; row k is its part of global batch k, whatever the world."""

    def __init__(
        self, stage: Distribute, node: Node, whole: Node, part: Rows, share: Share
    ) -> None:
        super().__init__(stage, part)
        self._join(node, whole, share)

    def route(self, epoch: int) -> Route | None:
        """Return the route of the part."""
        return self.input.route(epoch)


class DistributedFlow(_Distributed, StageFlow):
    """This rank's part of each batch; cursors are those of the whole batches, whatever the world."""

    def __init__(
        self, stage: Distribute, node: Node, whole: Node, part: Flow, share: Share
    ) -> None:
        super().__init__(stage, part)
        self._join(node, whole, share)

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Return the parcels of the part."""
        return self.input.parcels(cursor, context)
