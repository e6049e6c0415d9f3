"""explain(): what will be done, why, and how many bytes it takes, before anything is read."""

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.core.nest import field_names
from penstock.core.rows import ENDLESS, Node
from penstock.core.spec import dtype_name
from penstock.engine.plan.plan import Plan
from penstock.engine.plan.remote_files import cache_notes
from penstock.memory import format_nbytes


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

    def _lines(self) -> Iterator[str]:
        yield "pipeline"
        for stage in self.stages:
            rows = {None: "unknown number of", ENDLESS: "endless"}.get(
                stage.num_rows, str(stage.num_rows)
            )
            indent = "  " * (stage.depth + 1)
            yield f"{indent}{stage.call}"
            yield f"{indent}    {rows} x {stage.spec}, {format_nbytes(stage.row_nbytes)} each"
            if stage.choice:
                yield f"{indent}    {stage.choice}"
        yield "plan"
        unit = "element" if self.block_rows == 1 else "elements"
        yield f"  blocks   {self.block_rows} {unit}, {format_nbytes(self.block_nbytes)}"
        if self.threads:
            yield f"  threads  {self.threads}, {self.ahead} blocks ahead ({self.why})"
        else:
            yield f"  threads  none ({self.why})"
        verdict = "" if self.fits else "  TOO SMALL: the stream will be refused"
        yield (
            f"  memory   {format_nbytes(self.total_nbytes)} of a budget of "
            f"{format_nbytes(self.budget_nbytes)}; would do with {format_nbytes(self.need_nbytes)}{verdict}"
        )
        for note in self.notes:
            yield f"note: {note}"


def explain(plan: Plan) -> Explanation:
    """Return what a plan does, in words and numbers."""
    nodes = list(_walk(plan.node, 0))
    notes = [note for node, _ in nodes for note in node.notes()]
    return Explanation(
        stages=tuple(_line(node, depth) for node, depth in nodes),
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


def _walk(node: Node, depth: int) -> Iterator[tuple[Node, int]]:
    inner = depth + 1 if len(node.inputs) > 1 else depth
    for child in node.inputs:
        yield from _walk(child, inner)
    yield node, depth


def _line(node: Node, depth: int) -> StageLine:
    names = field_names(node.structure)
    parts = []
    for name, field in zip(names, node.fields, strict=True):
        shape = "x".join("?" if size is None else str(size) for size in field.spec.shape)
        kind = f"{dtype_name(field.spec.dtype)}[{shape}]" if shape else dtype_name(field.spec.dtype)
        parts.append(kind if len(names) == 1 and name == "value" else f"{name}: {kind}")
    return StageLine(
        call=node.describe(),
        spec=f"({', '.join(parts)})",
        num_rows=node.num_rows,
        row_nbytes=node.row_nbytes,
        choice=node.choice(),
        depth=depth,
    )
