"""explain(): what will be done, why, and how many bytes it takes, before anything is read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.core.lazy import lazy
from penstock.core.nest import field_names
from penstock.core.rows import ENDLESS, Node
from penstock.core.spec import dtype_name
from penstock.engine.plan.plan import Plan
from penstock.engine.plan.remote_files import cache_notes
from penstock.memory import format_nbytes

if TYPE_CHECKING:
    from penstock.reports import picture, pipeline
else:
    pipeline = lazy("penstock.reports.pipeline")
    picture = lazy("penstock.reports.picture")  # Most programs show nothing in a notebook.


@dataclass(frozen=True, slots=True)
class StageLine:
    """One stage of a chain: what it is, what comes out of it, and what was chosen for it."""

    call: str
    spec: str
    num_rows: int | None
    row_nbytes: int
    choice: str
    depth: int
    """How many zips, concatenations and mixes it is an input of: its indentation."""
    inputs: tuple[int, ...] = ()
    """The numbers of the stages whose rows it takes."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What a dataset will do; `print` it, or look at its fields."""

    stages: tuple[StageLine, ...]
    block_rows: int
    block_nbytes: int
    threads: int
    ahead: int
    why: str
    total_nbytes: int
    need_nbytes: int
    budget_nbytes: int
    notes: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether it can run within the budget."""
        return self.need_nbytes <= self.budget_nbytes

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _repr_html_(self) -> str:
        boxes = [
            pipeline.Box(one.call, f"{rows_text(one.num_rows)} x {one.spec}", one.inputs)
            for one in self.stages
        ]
        choices = [f"{one.call}: {one.choice}" for one in self.stages if one.choice]
        return picture.shown(boxes, plan="\n".join(self._plan()), notes=[*choices, *self.notes])

    def _lines(self) -> Iterator[str]:
        yield "pipeline"
        for stage in self.stages:
            rows = rows_text(stage.num_rows)
            indent = "  " * (stage.depth + 1)
            yield f"{indent}{stage.call}"
            yield f"{indent}    {rows} x {stage.spec}, {format_nbytes(stage.row_nbytes)} each"
            if stage.choice:
                yield f"{indent}    {stage.choice}"
        yield "plan"
        yield from (f"  {line}" for line in self._plan())
        for note in self.notes:
            yield f"note: {note}"

    def _plan(self) -> Iterator[str]:
        unit = "element" if self.block_rows == 1 else "elements"
        yield f"blocks   {self.block_rows} {unit}, {format_nbytes(self.block_nbytes)}"
        if self.threads:
            yield f"threads  {self.threads}, {self.ahead} blocks ahead ({self.why})"
        else:
            yield f"threads  none ({self.why})"
        verdict = "" if self.fits else "  TOO SMALL: the stream will be refused"
        yield (
            f"memory   {format_nbytes(self.total_nbytes)} of a budget of "
            f"{format_nbytes(self.budget_nbytes)}; would do with {format_nbytes(self.need_nbytes)}{verdict}"
        )


def rows_text(num_rows: int | None) -> str:
    """Return a number of rows in words."""
    return {None: "unknown number of", ENDLESS: "endless"}.get(num_rows, str(num_rows))


def shown(node: Node) -> str:
    """Return a chain as a picture, for a notebook; reads nothing."""
    boxes = [
        pipeline.Box(
            one.node.describe(),
            f"{rows_text(one.node.num_rows)} x {spec_text(one.node)}",
            one.inputs,
        )
        for one in places(node)
    ]
    return picture.shown(boxes)


def explain(plan: Plan) -> Explanation:
    """Return what a plan does, in words and numbers."""
    found = places(plan.node)
    notes = [note for one in found for note in one.node.notes()]
    return Explanation(
        stages=tuple(map(_line, found)),
        block_rows=plan.block_rows,
        block_nbytes=plan.node.block_nbytes(plan.block_rows),
        threads=plan.threads if plan.is_threaded else 0,
        ahead=plan.ahead,
        why=plan.why,
        total_nbytes=plan.total + plan.cached,
        need_nbytes=plan.need + sum(plan.node.kept_nbytes().values()),
        budget_nbytes=plan.budget,
        notes=tuple(dict.fromkeys([*notes, *cache_notes(plan)])),
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where a node stands in its chain."""

    node: Node
    depth: int
    """How many nodes of several inputs it is an input of."""
    inputs: tuple[int, ...]
    """The numbers of its inputs."""


def places(node: Node) -> list[Place]:
    """Return the nodes of a chain, inputs first, each with its place."""
    found: list[Place] = []
    _find(node, 0, found)
    return found


def _find(node: Node, depth: int, found: list[Place]) -> int:
    inner = depth + 1 if len(node.inputs) > 1 else depth
    inputs = tuple([_find(child, inner, found) for child in node.inputs])
    found.append(Place(node, depth, inputs))
    return len(found) - 1


def _line(place: Place) -> StageLine:
    node = place.node
    return StageLine(
        call=node.describe(),
        spec=spec_text(node),
        num_rows=node.num_rows,
        row_nbytes=node.row_nbytes,
        choice=node.choice(),
        depth=place.depth,
        inputs=place.inputs,
    )


def spec_text(node: Node) -> str:
    """Return the fields of a row in short: '(x: float32[100], y: int32)'."""
    names = field_names(node.structure)
    parts = []
    for name, field in zip(names, node.fields, strict=True):
        shape = "x".join("?" if size is None else str(size) for size in field.spec.shape)
        kind = f"{dtype_name(field.spec.dtype)}[{shape}]" if shape else dtype_name(field.spec.dtype)
        parts.append(kind if len(names) == 1 and name == "value" else f"{name}: {kind}")
    return f"({', '.join(parts)})"
