"""A report as a page: one file with plots, without a network. And as a part of a notebook."""

import os
from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path

from penstock.io.atomic import atomic_file
from penstock.memory import format_nbytes
from penstock.reports import style
from penstock.reports.advice import CONSUMER, advice, bottleneck, share
from penstock.reports.figures import Sample
from penstock.reports.measured import Measured
from penstock.reports.pipeline import Box, draw
from penstock.reports.plots import Bar, Line, clock, flame, lane, plot, short, times

_MOST_LANES = 24
_MOST_BARS = 500
_MOST_STEPS = 80  # Of a plot: a block more or less in each is then no longer a spike.
_MOST_CELLS = 120
_NEAR = 8  # Budgets up to so many times the peak are drawn; of others the number is enough.


def write(report: Measured, path: str | os.PathLike[str]) -> None:
    """Write a report as one page."""
    title = f"penstock: epoch {report.epoch}"
    with atomic_file(Path(path), replace=True) as file:
        file.write(style.page(title, "".join(_body(report))).encode("utf-8", "backslashreplace"))


def fragment(report: Measured) -> str:
    """Return a report as a part of a page."""
    return style.fragment("".join(_body(report)))


def _body(report: Measured) -> Iterator[str]:
    yield from _head(report)
    yield _tiles(report)
    samples = [_START._replace(stage_seconds=(0.0,) * len(report.stages)), *report.timeline]
    if bottleneck(report):
        yield f'<div class="plots">{"".join(_plots(report, samples))}</div>'
    colors = _colors(report)
    yield "<h2>Stages</h2>"
    yield f'<div class="scroll">{_stage_table(report, colors)}</div>'
    yield _lanes(report, samples, colors)
    yield _flames(report, colors)
    yield f'<h2>Pipeline</h2><div class="scroll">{draw(boxes(report))}</div>'
    yield from _lists(report)


_START = Sample(0.0, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, (), ())


def _intervals(samples: Sequence[Sample], most: int) -> list[tuple[Sample, Sample]]:
    """Return at most so many intervals of about the same length, each by the samples at its ends."""
    least = samples[-1].seconds / most
    kept = [samples[0]]
    for one in samples[1:-1]:
        if one.seconds - kept[-1].seconds >= least:
            kept.append(one)
    if samples[-1].seconds > kept[-1].seconds:
        kept.append(samples[-1])
    return list(pairwise(kept))


def _head(report: Measured) -> Iterator[str]:
    what = f"Epoch {report.epoch}"
    if report.ranks:
        what += f", {len(report.ranks)} of {report.world} ranks"
    elif report.world > 1:
        what += f", rank {report.rank} of {report.world}"
    yield f"<h1>{what}</h1>"
    unit = "batches" if report.is_batched else "rows"
    of = "" if report.num_expected is None else f" of {report.num_expected:,}"
    states = {
        "open": "still running",
        "ended": "read to its end",
        "closed": "closed before its end",
    }
    state = states.get(report.state, report.state)
    yield (
        f'<p class="muted">{report.num_elements:,}{of} {unit} in {clock(report.seconds)}, {state}; '
        f"{escape(report.stages[-1].call if report.stages else '')}</p>"
    )
    if report.error:
        yield f'<div class="say bad"><b>Failed:</b> {escape(report.error)}</div>'
    kind = "good" if bottleneck(report) == CONSUMER else ""
    yield f'<div class="say {kind}">{escape(advice(report))}</div>'


def _tiles(report: Measured) -> str:
    rate = report.num_rows / report.seconds if report.seconds else 0.0
    tiles = [
        (
            f"{report.num_rows:,}",
            f"rows in {report.num_batches:,} batches" if report.is_batched else "rows",
        ),
        (short(rate), "rows a second"),
        (
            f"{100 * report.waited_share:.0f} %",
            f"of the time waited for data ({clock(report.waited_seconds)})",
        ),
        (
            format_nbytes(report.peak_nbytes),
            f"peak, of a budget of {format_nbytes(report.budget_nbytes)}",
        ),
        (format_nbytes(report.nbytes), f"handed out in {report.num_blocks:,} blocks"),
    ]
    if report.held_nbytes:
        tiles.append((format_nbytes(report.held_nbytes), "held by the consumer at most"))
    if report.read_nbytes:
        net = f", {format_nbytes(report.net_nbytes)} over the network" if report.net_nbytes else ""
        tiles.append((format_nbytes(report.read_nbytes), f"read from files{net}"))
    if report.device is not None:
        tiles.append(
            (format_nbytes(report.device.nbytes), f"copied to the device; {report.device}")
        )
    if report.num_skipped:
        tiles.append((f"{report.num_skipped:,}", "bad rows skipped"))
    each = (
        f'<div class="tile"><b>{escape(big)}</b><span>{escape(small)}</span></div>'
        for big, small in tiles
    )
    return f'<div class="tiles">{"".join(each)}</div>'


def _plots(report: Measured, samples: Sequence[Sample]) -> Iterator[str]:
    end = max(report.seconds, 1e-9)
    pairs = _intervals(samples, _MOST_STEPS)
    rows = [(b.seconds, (b.num_rows - a.num_rows) / (b.seconds - a.seconds)) for a, b in pairs]
    marks = [(one.seconds, str(one)) for one in report.decisions if one.seconds]
    mean = report.num_rows / end
    yield plot(
        "Throughput",
        f"rows a second, {short(mean)} on average",
        [Line("rows a second", rows, "c0", is_area=True)],
        seconds=end,
        unit=short,
        marks=marks,
    )
    waited = [
        (b.seconds, min(1.0, (b.waited_seconds - a.waited_seconds) / (b.seconds - a.seconds)))
        for a, b in pairs
    ]
    yield plot(
        "Waiting",
        f"share of the time, {100 * report.waited_share:.0f} % in all",
        [Line("waiting", waited, "c1", is_area=True)],
        seconds=end,
        unit=lambda value: f"{100 * value:.0f} %",
        top=1.0,
        marks=marks,
    )
    yield _memory(report, samples[1:], end)
    queue = [(one.seconds, float(one.queue)) for one in samples[1:]]
    threads = [(one.seconds, float(one.threads)) for one in samples[1:]]
    yield plot(
        "Queue",
        "blocks that wait for the consumer, and threads",
        [Line("blocks waiting", queue, "c2", is_area=True), Line("threads", threads, "c3")],
        seconds=end,
        unit=short,
        marks=marks,
    )


def _memory(report: Measured, samples: Sequence[Sample], end: float) -> str:
    lines = [
        Line(
            "by the stream",
            [(one.seconds, one.ledger_nbytes) for one in samples],
            "c0",
            is_area=True,
        ),
        Line("held by the consumer", [(one.seconds, one.held_nbytes) for one in samples], "c4"),
    ]
    highest = max((value for line in lines for _, value in line.points), default=0.0)
    if report.budget_nbytes <= _NEAR * max(1.0, highest):
        lines.append(Line("budget", [(end, report.budget_nbytes)], "bad", is_dashed=True))
    return plot(
        "Memory",
        f"by the ledger, of a budget of {format_nbytes(report.budget_nbytes)}",
        lines,
        seconds=end,
        unit=lambda value: format_nbytes(round(value)),
    )


def _colors(report: Measured) -> list[str]:
    """Return the colour of each stage: one of its own for the slowest."""
    order = sorted(range(len(report.stages)), key=lambda number: -report.stages[number].seconds)
    colors = [f"c{style.SERIES}"] * len(order)
    for place, number in enumerate(order[: style.SERIES]):
        colors[number] = f"c{place}"
    return colors


def _stage_table(report: Measured, colors: Sequence[str]) -> str:
    rows = []
    for stage, color in zip(report.stages, colors, strict=True):
        part = share(report, stage)
        where = f"{stage.num_processes} processes" if stage.num_processes else ""
        queue = "" if stage.queue is None else f"{stage.queue:.1f}"
        indent = f' style="padding-left:{10 + 14 * stage.depth}px"' if stage.depth else ""
        title = f' title="{escape(stage.placement, quote=True)}"' if stage.placement else ""
        bar = (
            f'<svg width="100%" height="8" style="min-width:60px"><rect width="{100 * part:.1f}%" height="8" rx="2" '
            f'fill="var(--{color})"/></svg>'
        )
        rows.append(
            f'<tr{title}><td class="call"{indent}>{escape(stage.call)}</td><td class="wide">{bar}</td>'
            f'<td class="num">{100 * part:.0f} %</td><td class="num">{clock(stage.seconds)}</td>'
            f'<td class="num">{stage.num_rows:,}</td><td class="num">{queue}</td><td>{where}</td></tr>'
        )
    return (
        '<table><thead><tr><th>stage</th><th class="wide"></th><th class="num">of the time</th>'
        '<th class="num">itself</th><th class="num">rows</th>'
        '<th class="num" title="blocks waiting, on average">queue</th><th></th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _lanes(report: Measured, samples: Sequence[Sample], colors: Sequence[str]) -> str:
    """Return a lane for each stage: when it was busy, and how many threads' worth."""
    pairs = _intervals(samples, _MOST_CELLS)
    if not pairs or not report.stages or not report.num_elements:
        return ""
    end = report.seconds
    order = sorted(range(len(report.stages)), key=lambda number: -report.stages[number].seconds)
    shown = sorted(order[:_MOST_LANES])
    parts = []
    for number in shown:
        cells = [
            (
                a.seconds,
                b.seconds,
                (b.stage_seconds[number] - a.stage_seconds[number]) / (b.seconds - a.seconds),
            )
            for a, b in pairs
        ]
        name = escape(report.stages[number].call)
        parts.append(
            f'<div class="name" title="{name}">{name}</div>{lane(cells, end, colors[number])}'
        )
    more = f" The {_MOST_LANES} slowest of {len(order)}." if len(order) > _MOST_LANES else ""
    return (
        "<figure style='margin-top:12px'><figcaption>Stages over time <span>how busy each was: full colour is one "
        f'thread or more.{more}</span></figcaption><div class="lanes" style="margin-top:8px">{"".join(parts)}'
        f"<div></div>{times(end).replace('class=', 'style=margin-left:0 class=')}</div></figure>"
    )


def _flames(report: Measured, colors: Sequence[str]) -> str:
    """Return what each thread did last, piece by piece."""
    spans = report.spans[-_MOST_BARS:]
    if not spans:
        return ""
    start, stop = spans[0].start, max(one.start + one.seconds for one in spans)
    parts = []
    names = enumerate(report.thread_names)
    for number, thread in sorted(names, key=lambda one: (one[1] != "MainThread", one[1])):
        bars: list[Bar] = []
        outer: list[float] = []  # The ends of those that the next one may lie within.
        for one in sorted(
            (one for one in spans if one.thread == number),
            key=lambda one: (one.start, -one.seconds),
        ):
            end = one.start + one.seconds
            while outer and outer[-1] < end - 1e-9:
                outer.pop()
            is_wait = one.stage < 0
            what = "waiting for another thread" if is_wait else report.stages[one.stage].call
            bars.append(
                Bar(one.start, end, len(outer), "wait" if is_wait else colors[one.stage], what)
            )
            outer.append(end)
        if bars:
            name = escape(thread)
            parts.append(f'<div class="name" title="{name}">{name}</div>{flame(bars, start, stop)}')
    return (
        f"<figure style='margin-top:12px'><figcaption>The last {clock(stop - start)} <span>each thread's work; a stage "
        "stands above the one that it asked for rows. Blank is idle, or work shorter than 20 us."
        f'</span></figcaption><div class="lanes" style="margin-top:8px">{"".join(parts)}<div></div>'
        f"{times(stop, start).replace('class=', 'style=margin-left:0 class=')}</div></figure>"
    )


def boxes(report: Measured) -> list[Box]:
    """Return the boxes of the picture of a report's pipeline."""
    worst = bottleneck(report)
    found = []
    for stage in report.stages:
        part = share(report, stage)
        text = f"{clock(stage.seconds)}, {100 * part:.0f} % of the time, {stage.num_rows:,} rows"
        if stage.num_processes:
            text += f", {stage.num_processes} processes"
        found.append(Box(stage.call, text, stage.inputs, part, is_marked=stage.call == worst))
    return found


def _lists(report: Measured) -> Iterator[str]:
    if report.decisions:
        yield "<h2>Decided by measurement</h2>" + _list(
            [
                f"<b>{escape(one.what)}</b>{f' after {clock(one.seconds)}' if one.seconds else ''}: {escape(one.why)}"
                for one in report.decisions
            ]
        )
    if report.shuffles:
        yield "<h2>Shuffles</h2>" + _list(
            [f"<b>{escape(one.call)}</b>: {escape(one.kind)}" for one in report.shuffles]
        )
    if report.padding:
        yield "<h2>Padding</h2>" + _list(
            [
                f"<b>{escape(one.call)}</b>: {100 * one.share:.1f} % of {one.num_values + one.num_padding:,} values"
                for one in report.padding
            ]
        )
    if report.num_skipped:
        yield f"<h2>Skipped</h2><p>{report.num_skipped:,} bad rows.</p>"
        if report.skipped_files:
            files = [f"{one.num_rows:,} of {escape(one.file)}" for one in report.skipped_files[:50]]
            more = len(report.skipped_files) - len(files)
            yield _list([*files, *([f"and of {more} more files"] if more else [])])
        yield "".join(f"<pre>{escape(one)}</pre>" for one in report.skipped)
    if report.ranks:
        yield f'<h2>Ranks</h2><div class="scroll">{_rank_table(report)}</div>'


def _rank_table(report: Measured) -> str:
    rows = [
        f'<tr><td class="num">{one.rank}</td><td class="num">{one.num_rows:,}</td>'
        f'<td class="num">{short(one.num_rows / one.seconds if one.seconds else 0)}</td>'
        f'<td class="num">{clock(one.seconds)}</td><td class="num">{100 * one.waited_share:.0f} %</td>'
        f'<td class="num">{format_nbytes(one.peak_nbytes)}</td><td>{escape(bottleneck(one))}</td></tr>'
        for one in report.ranks
    ]
    return (
        '<table><thead><tr><th class="num">rank</th><th class="num">rows</th><th class="num">rows a second</th>'
        '<th class="num">time</th><th class="num">waited</th><th class="num">peak</th><th>bottleneck</th></tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>"
    )


def _list(items: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{one}</li>' for one in items)}</ul>"
