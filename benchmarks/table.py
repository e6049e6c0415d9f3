"""Outcomes as text for people and as JSON for programs."""

from __future__ import annotations

import statistics

from contention import TOLERATED_CORES
from harness import Case, Outcome, Outcomes

_SI = ((1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))


def quantity(value: float, unit: str) -> str:
    """Return a value as people write it.

    >>> quantity(5_120_000.0, "rows/s"), quantity(0.00042, "s"), quantity(0.8129, "x")
    ('5.12M rows/s', '420 us', '0.813x')
    """
    if unit == "x":
        return f"{value:.3g}x" if value < 1000 else f"{value:,.0f}x"
    if unit == "s":
        for factor, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
            if abs(value) >= factor:
                return f"{value / factor:.3g} {name}"
        return f"{value / 1e-9:.3g} ns"
    if unit == "":
        return f"{value:.3g}"
    for factor, prefix in _SI:
        if abs(value) >= factor:
            # Three digits, but never 1e+02.
            digits = max(0, 2 - len(str(int(abs(value) / factor))) + 1)
            return f"{value / factor:.{digits}f}{prefix} {unit}"
    return f"{value:.3g} {unit}"


def as_text(case: Case, outcomes: Outcomes) -> str:
    """Return the table of a case."""
    header = ("contender", "best", "median", "penstock is", "how")
    rows = [header] + [_row(case, outcomes, contender) for contender in case.contenders]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    lines = [f"{case.name}: {case.title}"]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        lines.append(("  " + "  ".join(cells) + "  " + row[4]).rstrip())
    for text, value, verdict in verdicts(case, outcomes):
        lines.append(f"  bar: {text}: {value}: {verdict}")
    return "\n".join(lines)


def _row(case: Case, outcomes: Outcomes, contender) -> tuple[str, ...]:
    outcome = outcomes[contender.name]
    if outcome.missing is not None:
        return contender.name, "-", "-", "-", f"not there yet: {outcome.missing}"
    if not outcome.measured:
        why = (outcome.failed or "no rounds").splitlines()
        return contender.name, "-", "-", "-", f"failed: {' | '.join(why)}"
    return (
        contender.name,
        quantity(case.best(outcome), case.unit),
        quantity(case.median(outcome), case.unit),
        _compared(case, outcomes, outcome),
        contender.how,
    )


def _compared(case: Case, outcomes: Outcomes, outcome: Outcome) -> str:
    ours = outcomes.get("penstock")
    if ours is None or not ours.measured or ours is outcome:
        return ""
    return quantity(case.speedup(ours, outcome), "x")


def verdicts(case: Case, outcomes: Outcomes) -> list[tuple[str, str, str]]:
    """Return each bar's text, the value reached, and whether that meets it."""
    cores = other_cores(outcomes)
    disturbed = f" (provisional: other work took {cores:.1f} cores)" if is_busy(cores) else ""
    result = []
    for bar in case.bars:
        try:
            value = bar.value(case, outcomes)
        except (KeyError, ValueError):
            result.append((bar.text, "-", "not measured"))
            continue
        verdict = ("met" if bar.met(value) else "NOT MET") + disturbed
        result.append((bar.text, quantity(value, bar.unit), verdict))
    return result


def other_cores(outcomes: Outcomes) -> float:
    """Return the median over all rounds of the cores that other work kept busy."""
    cores = [
        sample.facts.get("other_cores", 0.0)
        for outcome in outcomes.values()
        for sample in outcome.samples
    ]
    return statistics.median(cores) if cores else 0.0


def is_busy(cores: float) -> bool:
    return cores > TOLERATED_CORES


def as_json(case: Case, outcomes: Outcomes) -> dict:
    """Return all of a case that a program might want, every sample included."""
    contenders = {}
    for contender in case.contenders:
        outcome = outcomes[contender.name]
        entry: dict = {"how": contender.how}
        if outcome.missing is not None:
            entry["missing"] = outcome.missing
        elif not outcome.measured:
            entry["failed"] = outcome.failed or "no rounds"
        else:
            entry |= {
                "best": case.best(outcome),
                "median": case.median(outcome),
                "samples": [sample.value for sample in outcome.samples],
                "facts": [dict(sample.facts) for sample in outcome.samples],
            }
        contenders[contender.name] = entry
    bars = []
    for bar in case.bars:
        try:
            value: float | None = bar.value(case, outcomes)
        except (KeyError, ValueError):
            value = None
        bars.append(
            {
                "text": bar.text,
                "value": value,
                "at_least": bar.at_least,
                "at_most": bar.at_most,
                "met": None if value is None else bar.met(value),
            }
        )
    return {
        "name": case.name,
        "title": case.title,
        "unit": case.unit,
        "higher_is_better": case.higher_is_better,
        "contenders": contenders,
        "bars": bars,
        "other_cores": other_cores(outcomes),
    }
