"""zip: rows of several datasets side by side."""

import contextlib
import copy
import itertools
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from penstock.core.blocks import Block
from penstock.core.fingerprint import walk
from penstock.core.nest import dict_of, tuple_of
from penstock.core.parcels import Cursor, CursorAfter, Parcel
from penstock.core.residues import Residue
from penstock.core.route import Route, beside
from penstock.core.rows import ENDLESS, Context, Flow, Node, Rows, RowSet, Runs
from penstock.core.state import cursor_parts
from penstock.errors import DataError, FunctionError, LengthError
from penstock.stages.base.combining import Puller, over
from penstock.stages.base.segment import as_flow


def zipped(nodes: Sequence[Node], *, strict: bool, names: tuple[str, ...] | None = None) -> Node:
    """Return rows that are tuples of one row of each input; with names, in their alphabetical order, dicts.

    An input never skips bad rows alone: those after it would stand beside the rows of others.
    """
    if not _are_one(nodes):
        nodes = [node.with_errors("raise") for node in nodes]
    lengths = [node.num_rows for node in nodes]
    known = [length for length in lengths if length is not None]
    if strict and len(set(known)) > 1:
        words = ["endless" if length == ENDLESS else f"{length} rows" for length in lengths]
        if names is not None:
            words = [f"{word} in {name!r}" for word, name in zip(words, names, strict=True)]
        raise LengthError(
            f"zip needs datasets of the same length, got {' and '.join(words)}.\n"
            "  to stop at the shortest: ps.zip(a, b, strict=False)"
        )
    _check_orders(nodes)
    if strict:
        _check_files(nodes)
    if len(known) == len(lengths) and all(isinstance(node, Rows) for node in nodes):
        rows = [node for node in nodes if isinstance(node, Rows)]
        return ZippedRows(rows, min(known), strict=strict, names=names)
    return ZippedFlow([as_flow(node) for node in nodes], nodes, strict=strict, names=names)


def _are_one(nodes: Sequence[Node]) -> bool:
    """Return whether all inputs are one dataset, whose bad rows are the same wherever it stands."""
    return all(node is nodes[0] for node in nodes)


def _check_orders(nodes: Sequence[Node]) -> None:
    """Raise if inputs are shuffled alike, and yet in different orders: rows that belong together would be parted."""
    shuffles = [
        [(node, key) for node in walk(one) if (key := node.order_key()) is not None]
        for one in nodes
    ]
    for first, second in itertools.combinations(range(len(nodes)), 2):
        # A cache behind a shuffle has its first order for good.
        is_frozen = nodes[first].follows_epoch != nodes[second].follows_epoch
        for (mine, one), (theirs, other) in itertools.product(shuffles[first], shuffles[second]):
            lengths = {one[1], other[1]} - {None}  # A flow may not know its length.
            if one[0] == other[0] and len(lengths) < 2 and (is_frozen or one[2:] != other[2:]):
                raise ValueError(
                    f"zip of two datasets that are shuffled with the same seed, and yet in different orders: input "
                    f"{first} is shuffled {mine.choice()}; input {second} {theirs.choice()}. "
                    "The order depends on how many bytes a row has, and how it is stored. Zip first:\n"
                    "  wrong: ps.zip(a.shuffle(seed=0), b.shuffle(seed=0))\n"
                    "  right: ps.zip(a, b).shuffle(seed=0)"
                )


def _check_files(nodes: Sequence[Node]) -> None:
    """Raise if a file was skipped of one input alone: the rows after it would stand beside the wrong ones."""
    sources = [_sources(node) for node in nodes]
    shared = set.intersection(*sources)
    for number, mine in enumerate(sources):
        for one in mine - shared:
            if one.skipped_files:
                raise ValueError(
                    f"zip can't put rows side by side where files were skipped: of input {number} "
                    f"{len(one.skipped_files)} of them, and so the rows after them would stand beside the wrong ones "
                    f"({one.skipped_files[0]})\n"
                    "  leave these files out of all inputs, and from_files(...) without on_error='skip'\n"
                    "  if any pairs will do: ps.zip(a, b, strict=False)"
                )


def _shuffles(node: Node) -> dict[Hashable, str]:
    """Return the shuffles of a chain, by seed and number."""
    return {key[0]: one.describe() for one in walk(node) if (key := one.order_key()) is not None}


def _sources(node: Node) -> set[Node]:
    """Return what the rows of a chain are read from."""
    return {one for one in walk(node) if not one.inputs}


class _Zipped(Node):
    strict: bool
    names: tuple[str, ...] | None
    skip = False
    """Whether bad rows shall be skipped, which those of the inputs can't be."""

    def with_errors(self, on_error: str) -> Node:
        """Return this zip; errors of its inputs are raised in either case, and told with what skips bad rows."""
        if _are_one(self.inputs):
            one = self.inputs[0].with_errors(on_error)
            return self if one is self.inputs[0] else self.rebuilt([one] * len(self.inputs))
        if self.skip == (on_error == "skip"):
            return self
        other = copy.copy(self)
        other.skip = not self.skip
        return other

    @contextlib.contextmanager
    def _telling(self) -> Iterator[None]:
        """Tell what to write if an input has a bad row, and those shall be skipped."""
        try:
            yield
        except (DataError, FunctionError) as error:
            if self.skip and _NOT_SKIPPED not in getattr(error, "__notes__", ()):
                error.add_note(_NOT_SKIPPED)
            raise

    def notes(self) -> tuple[str, ...]:
        """Return what is not skipped."""
        return (_NOT_SKIPPED,) if self.skip else ()

    def _join(self, nodes: Sequence[Node], *, strict: bool, names: tuple[str, ...] | None) -> None:
        self.fields = tuple(field for node in nodes for field in node.fields)
        parts = [node.structure for node in nodes]
        self.structure = tuple_of(parts) if names is None else dict_of(names, parts)
        self.like_all(nodes)
        self.strict = strict
        self.names = names

    def cautions(self) -> tuple[str, ...]:
        """Return that rows that belong together are parted, where arrays of one length are shuffled differently.

        Not of a dataset that is zipped with itself, whose pairs are drawn by lot, nor with `strict=False`, which says
        that rows need not belong together.
        """
        if not self.strict:
            return ()
        inputs = list(enumerate(zip(map(_shuffles, self.inputs), self.inputs, strict=True)))
        for (first, (mine, one)), (second, (theirs, other)) in itertools.combinations(inputs, 2):
            if mine.keys() == theirs.keys() or _sources(one) & _sources(other):
                continue
            words = [" ".join(found.values()) or "nothing" for found in (mine, theirs)]
            text = (
                f"{self.describe()} puts rows side by side that need not belong together: before input {first} stands "
                f"{words[0]}, before input {second} {words[1]}. Zip first; strict=False says that any pairs will do:\n"
                "  wrong: ps.zip(x.shuffle(seed=0), y.shuffle(seed=1))\n"
                "  right: ps.zip(x, y).shuffle(seed=0)"
            )
            return (text,)
        return ()

    def describe(self) -> str:
        """Return the call that made it."""
        what = f"{len(self.inputs)} datasets" if self.names is None else ", ".join(self.names)
        return f"zip({what}{'' if self.strict else ', strict=False'})"

    def fingerprint(self) -> Any:
        """Return its name, the number of inputs or their names, and `strict`."""
        inputs = len(self.inputs) if self.names is None else list(self.names)
        return ["zip", inputs, self.strict]

    def rebuilt(self, inputs: Sequence[Node]) -> Node:
        """Return the zip of other inputs."""
        made = zipped(inputs, strict=self.strict, names=self.names)
        return made.with_errors("skip") if self.skip else made


_NOT_SKIPPED = (
    "on_error='skip' does not skip bad rows of what is zipped: those after them would stand beside the wrong ones. "
    "Zip first, and map behind it: ps.zip(a, b).map(f)"
)


class ZippedRows(_Zipped, Rows):
    """Row i is (row i of a, row i of b, ...)."""

    def __init__(
        self,
        nodes: Sequence[Rows],
        num_rows: int,
        *,
        strict: bool,
        names: tuple[str, ...] | None = None,
    ) -> None:
        self._join(nodes, strict=strict, names=names)
        self.nodes = nodes
        self.num_rows = num_rows
        self.picks = all(node.picks for node in nodes)

    def fill(self, rows: RowSet, out: Block, context: Context) -> None:
        """Read the columns of each input."""
        with self._telling():
            for node, part in self._parts(out):
                node.read(rows, part, context)

    def fill_runs(self, runs: Runs, out: Block, context: Context) -> None:
        """Read the runs of each input."""
        with self._telling():
            for node, part in self._parts(out):
                node.read_runs(runs, part, context)

    def route(self, epoch: int) -> Route | None:
        """Return the routes of the inputs side by side."""
        return beside([node.route(epoch) for node in self.nodes])

    def only(self, number: int) -> Rows | None:
        """Return one field of the input that has it."""
        for node in self.nodes:
            if number < len(node.fields):
                return node.only(number) if node.num_rows == self.num_rows else None
            number -= len(node.fields)
        return None

    def narrowed(self, wanted: Residue) -> Rows:
        """Return the same rows over inputs that are narrowed likewise."""
        return over(self, [node.narrowed(wanted) for node in self.nodes])

    def _parts(self, out: Block) -> Iterator[tuple[Rows, Block]]:
        """Yield each input with its columns of a block."""
        start = 0
        for node in self.nodes:
            stop = start + len(node.fields)
            yield node, out.part(start, stop)
            start = stop

    def locate(self, row: int, epoch: int) -> str:
        """Return where the parts of a row come from."""
        return " with ".join(node.locate(row, epoch) for node in self.nodes)


class ZippedFlow(_Zipped, Flow):
    """Flows side by side; the cursor is the list of their cursors."""

    def __init__(
        self,
        flows: Sequence[Flow],
        nodes: Sequence[Node],
        *,
        strict: bool,
        names: tuple[str, ...] | None = None,
    ) -> None:
        self._join(nodes, strict=strict, names=names)
        self.flows = flows
        known = [node.num_rows for node in nodes if node.num_rows is not None]
        is_known = len(known) == len(nodes) or (0 in known and not strict)
        self.num_rows = min(known) if is_known else None

    def make_parcels(self, cursor: Cursor, context: Context) -> Iterator[Parcel]:
        """Yield as many rows at a time as every input has ready."""
        cursors = cursor_parts(self, cursor, (None,) * len(self.flows))
        pullers = [Puller(flow, at, context) for flow, at in zip(self.flows, cursors, strict=True)]
        passed = 0
        while True:
            with self._telling():
                available = [puller.available() for puller in pullers]
            size = min(available)
            if size == 0:
                self._check_end(available, passed)
                return
            block = context.block(self, size)
            before = [puller.cursors() for puller in pullers]
            start = 0
            for puller, flow in zip(pullers, self.flows, strict=True):
                stop = start + len(flow.fields)
                puller.take(size, block.part(start, stop))
                start = stop
            passed += size
            yield Parcel(block.finish(), size, _after(before))

    def _check_end(self, available: list[int], passed: int) -> None:
        if self.strict and any(available):
            names = range(len(available)) if self.names is None else self.names
            ended = [repr(name) for name, left in zip(names, available, strict=True) if left == 0]
            raise LengthError(
                f"zip needs datasets of the same length, but input {', '.join(ended)} ended after "
                f"{passed} rows of this stream and the others did not; "
                f"to stop at the shortest: {self._shortest()}."
            )

    def _shortest(self) -> str:
        if self.names is None:
            return "ps.zip(a, b, strict=False)"
        datasets = ", ".join(f"{name!r}: ..." for name in self.names)
        return f"ps.zip({{{datasets}}}, strict=False)"

    def holds_nbytes(self, block_nbytes: int, ahead: int) -> int:
        """Return what the inputs hold, and the rows side by side."""
        own = 2 * max(block_nbytes, self.block_nbytes(1)) * len(self.flows)
        return own + sum(flow.holds_nbytes(block_nbytes, ahead) for flow in self.flows)


def _after(before: list[tuple[CursorAfter, int]]) -> CursorAfter:
    return lambda offset: [cursor_after(used + offset) for cursor_after, used in before]
