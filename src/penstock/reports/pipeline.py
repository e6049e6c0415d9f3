"""A pipeline as a picture: a box for each stage, lines from each to the stage that takes its rows. Inline SVG."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_MOST_INPUTS = 6  # Of a stage with more inputs, the first few and the last are drawn.
_FIRST_INPUTS = 3
_ROW, _GAP, _STEP, _LEFT = 44, 10, 20, 14
_CHARACTER = 7.3  # Pixels, of the font at its size.
_MOST_CHARACTERS = 66


@dataclass(frozen=True, slots=True)
class Box:
    """One stage: its call, what stands below it, which of the boxes before it are its inputs."""

    title: str
    line: str = ""
    inputs: tuple[int, ...] = ()
    share: float = 0.0
    """How much of the time is its own: a bar below its name."""
    is_marked: bool = False
    """Whether it is the bottleneck."""


STYLE = """
.pst-pipe{display:block;max-width:100%;height:auto;font-family:inherit}
.pst-pipe text{font-size:13px;fill:var(--ink)}
.pst-pipe text.sub{font-size:11.5px;fill:var(--muted)}
.pst-pipe .box{fill:var(--card);stroke:var(--line)}
.pst-pipe .marked{stroke:var(--bad);stroke-width:2}
.pst-pipe .bar{fill:var(--c0)}
.pst-pipe .marked-bar{fill:var(--bad)}
.pst-pipe .edge{fill:none;stroke:var(--muted);stroke-width:1.5}
.pst-pipe .dot{fill:var(--muted)}
"""


def draw(boxes: Sequence[Box]) -> str:
    """Return the picture of a chain whose boxes come inputs first, the last one being the end."""
    if not boxes:
        return ""
    rows: list[
        tuple[int, int]
    ] = []  # The number of a box, or minus how many are left out, and its column.
    _place(boxes, len(boxes) - 1, 0, rows)
    columns = max(column for _, column in rows)
    texts = [text for one in boxes for text in (one.title, one.line)]
    longest = min(_MOST_CHARACTERS, max(map(len, texts)))
    left = _LEFT + _STEP * columns + 18
    width = max(260, round(left + longest * _CHARACTER + 24))
    height = len(rows) * (_ROW + _GAP) - _GAP + 2
    where = {number: place for place, (number, _) in enumerate(rows) if number >= 0}
    column_of = dict(rows)
    edges, drawn = [], []
    for place, (number, column) in enumerate(rows):
        top = 1 + place * (_ROW + _GAP)
        if number < 0:
            drawn.append(
                f'<text class="sub" x="{left + 12}" y="{top + 26}">and {-number} more</text>'
            )
            continue
        x, y = _LEFT + _STEP * column, top + _ROW / 2
        for one in boxes[number].inputs:
            if one in where:
                from_x = _LEFT + _STEP * column_of[one]
                from_y = 1 + where[one] * (_ROW + _GAP) + _ROW / 2
                edges.append(_edge(from_x, from_y, x, y))
        drawn.append(_box(boxes[number], x, y, left, top, width))
    body = "".join(edges + drawn)
    label = escape(" then ".join(one.title for one in boxes[:20]), quote=True)
    return (
        f'<svg class="pst-pipe" role="img" aria-label="{label}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{body}</svg>'
    )


def _place(boxes: Sequence[Box], number: int, column: int, rows: list[tuple[int, int]]) -> int:
    """Add a box and all before it, inputs first; return how many columns they take."""
    inputs = boxes[number].inputs
    shown: list[int] = list(inputs)
    if len(inputs) > _MOST_INPUTS:
        shown = [*inputs[:_FIRST_INPUTS], -(len(inputs) - _FIRST_INPUTS - 1), inputs[-1]]
    used = 0
    for one in shown:
        if one < 0:
            rows.append((one, column + used))
        else:
            used += _place(boxes, one, column + used, rows)
    rows.append((number, column))
    return max(1, used)


def _edge(from_x: float, from_y: float, to_x: float, to_y: float) -> str:
    if from_x == to_x:
        return f'<path class="edge" d="M{from_x} {from_y}V{to_y}"/>'
    turn = to_y - 12
    return f'<path class="edge" d="M{from_x} {from_y}V{turn}Q{from_x} {to_y} {to_x} {to_y}"/>'


def _box(box: Box, x: float, y: float, left: int, top: int, width: int) -> str:
    inner = width - left - 1
    kind = "box marked" if box.is_marked else "box"
    parts = [
        f"<g><title>{escape(box.title)}{chr(10) if box.line else ''}{escape(box.line)}</title>",
        f'<path class="edge" d="M{x} {y}H{left}"/><circle class="dot" cx="{x}" cy="{y}" r="4"/>',
        f'<rect class="{kind}" x="{left}" y="{top}" width="{inner}" height="{_ROW}" rx="6"/>',
        f'<text x="{left + 12}" y="{top + (18 if box.line else 26)}">{escape(_cut(box.title))}</text>',
    ]
    if box.line:
        parts.append(
            f'<text class="sub" x="{left + 12}" y="{top + 34}">{escape(_cut(box.line))}</text>'
        )
    if box.share > 0:
        long = max(1.0, box.share * (inner - 12))
        bar = "marked-bar" if box.is_marked else "bar"
        parts.append(
            f'<rect class="{bar}" x="{left + 6}" y="{top + _ROW - 4}" width="{long:.1f}" height="3" rx="1.5"/>'
        )
    return "".join([*parts, "</g>"])


def _cut(text: str) -> str:
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 1] + "…"
