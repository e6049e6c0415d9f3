"""Plots as inline SVG. They stretch to the width there is; text stands beside them, so that it keeps its size."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

Points = Sequence[tuple[float, float]]
"""Pairs of the end of an interval, in seconds, and the value in it."""
_W, _H = 1000.0, 100.0  # Of the drawing, before it is stretched.


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a plot."""

    name: str
    points: Points
    color: str
    """A CSS variable of `style`."""
    is_area: bool = False
    is_dashed: bool = False


def plot(
    title: str,
    note: str,
    lines: Sequence[Line],
    *,
    seconds: float,
    unit: Callable[[float], str],
    top: float | None = None,
    marks: Sequence[tuple[float, str]] = (),
) -> str:
    """Return a plot over time of steps: each value holds from the point before to its own.

    Args:
        title: What is shown.
        note: What stands beside the title.
        lines: What is drawn.
        seconds: The end of the time axis.
        unit: Writes a value.
        top: The end of the other axis; by default just above the highest value.
        marks: Moments to mark with a thin line, and what they mean.
    """
    highest = max((value for line in lines for _, value in line.points), default=0.0)
    top = nice(highest) if top is None else top
    drawn = [_grid()]
    drawn += [_mark(when / max(seconds, 1e-9) * _W, what) for when, what in marks]
    drawn += [_drawn(line, seconds, top) for line in lines]
    labels = "".join(
        f'<i style="top:{100 * (1 - part):.0f}%">{unit(top * part)}</i>' for part in (0, 0.5, 1)
    )
    keys = ""
    if len(lines) > 1:
        each = (
            f'<span><i style="background:var(--{one.color})"></i>{escape(one.name)}</span>'
            for one in lines
        )
        keys = f'<div class="keys">{"".join(each)}</div>'
    return (
        f"<figure><figcaption>{escape(title)} <span>{escape(note)}</span></figcaption>"
        f'<div class="plot">{labels}<svg viewBox="0 0 {_W:.0f} {_H:.0f}" preserveAspectRatio="none" role="img" '
        f'aria-label="{escape(title)}: {escape(note)}">{"".join(drawn)}</svg></div>'
        f"{times(seconds)}{keys}</figure>"
    )


def times(seconds: float, start: float = 0.0) -> str:
    """Return the labels of a time axis."""
    middle, end = start + (seconds - start) / 2, seconds
    return f'<div class="times"><span>{clock(start)}</span><span>{clock(middle)}</span><span>{clock(end)}</span></div>'


def _grid() -> str:
    return "".join(
        f'<line x1="0" x2="{_W:.0f}" y1="{y}" y2="{y}" stroke="var(--grid)" vector-effect="non-scaling-stroke"/>'
        for y in (0, 50)
    )


def _mark(x: float, what: str) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_H:.0f}" stroke="var(--c1)" stroke-dasharray="2 3" '
        f'vector-effect="non-scaling-stroke"><title>{escape(what)}</title></line>'
    )


def _drawn(line: Line, seconds: float, top: float) -> str:
    def x(at: float) -> str:
        return f"{min(_W, at / max(seconds, 1e-9) * _W):.1f}"

    def y(value: float) -> str:
        return f"{_H * (1 - min(1.0, max(0.0, value / top if top else 0.0))):.2f}"

    if not line.points:
        return ""
    steps = [f"M0 {y(line.points[0][1])}"]
    for at, value in line.points:
        steps.append(f"V{y(value)}H{x(at)}")
    path = "".join(steps)
    area = ""
    if line.is_area:
        end = f"V{_H:.0f}H0Z"
        area = f'<path d="{path}{end}" fill="var(--{line.color})" fill-opacity=".22"/>'
    dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
    return (
        f'{area}<path d="{path}" fill="none" stroke="var(--{line.color})" stroke-width="1.6"{dash} '
        f'vector-effect="non-scaling-stroke"><title>{escape(line.name)}</title></path>'
    )


def lane(cells: Sequence[tuple[float, float, float]], seconds: float, color: str) -> str:
    """Return a lane of cells, each from a moment to another, as strong as its value from 0 to 1."""
    parts = []
    for start, stop, value in cells:
        if value < 0.005:  # Nobody would see it.
            continue
        left, wide = start / max(seconds, 1e-9) * _W, (stop - start) / max(seconds, 1e-9) * _W
        parts.append(
            f'<rect x="{left:.2f}" y="0" width="{wide:.2f}" height="10" fill="var(--{color})" '
            f'fill-opacity="{0.12 + 0.88 * min(1.0, value):.2f}"><title>{clock(start)} to {clock(stop)}: '
            f"{100 * value:.0f} %</title></rect>"
        )
    return f'<svg viewBox="0 0 {_W:.0f} 10" preserveAspectRatio="none">{"".join(parts)}</svg>'


@dataclass(frozen=True, slots=True)
class Bar:
    """A piece of work in a flame picture: from when to when, how deep, in which colour, and what it is."""

    start: float
    stop: float
    level: int
    color: str
    what: str


def flame(bars: Sequence[Bar], start: float, stop: float) -> str:
    """Return the work of one thread: what was asked for something stands above what it asked."""
    levels = 1 + max((bar.level for bar in bars), default=0)
    scale = _W / max(stop - start, 1e-9)
    parts = [
        f'<rect x="{(bar.start - start) * scale:.2f}" y="{12 * bar.level}" '
        f'width="{max(0.6, (bar.stop - bar.start) * scale):.2f}" height="11" fill="var(--{bar.color})">'
        f"<title>{escape(bar.what)}, {clock(bar.stop - bar.start)}</title></rect>"
        for bar in bars
    ]
    return (
        f'<svg class="tall" style="height:{13 * levels}px" viewBox="0 0 {_W:.0f} {12 * levels}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
    )


def nice(value: float) -> float:
    """Return a round number that is no less than a value: the end of an axis.

    >>> nice(0.0), nice(7.2), nice(1300)
    (1.0, 8.0, 1500.0)
    """
    if value <= 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(
        step * power
        for step in (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
        if step * power >= value * (1 - 1e-9)
    )


def clock(seconds: float) -> str:
    """Return a time in few characters.

    >>> clock(0), clock(0.00012), clock(0.0421), clock(3.25), clock(75), clock(7300)
    ('0 s', '0.12 ms', '42 ms', '3.2 s', '1:15', '2:01:40')
    """
    if seconds <= 0:
        return "0 s"
    if seconds < 1e-3:
        return f"{1e3 * seconds:.2g} ms"
    if seconds < 1:
        return f"{1e3 * seconds:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def short(value: float) -> str:
    """Return a number in few characters.

    >>> short(0), short(0.25), short(313), short(12_345), short(4_200_000)
    ('0', '0.25', '313', '12.3k', '4.2M')
    """
    for power, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= power:
            return f"{value / power:.3g}{letter}"
    return f"{value:.3g}"
