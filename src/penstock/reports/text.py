"""A report as text: what `print` shows."""

from collections.abc import Iterator
from textwrap import indent

from penstock.memory import format_nbytes
from penstock.reports.advice import advice
from penstock.reports.figures import StageTime
from penstock.reports.measured import Measured


def as_text(report: Measured) -> str:
    """Return a report as lines of text."""
    return "\n".join(_lines(report))


def _lines(report: Measured) -> Iterator[str]:
    yield from _counts(report)
    for stage in report.stages:
        yield f"  {stage.seconds:9.3f} s  {stage.call}, {stage.num_rows} rows{_where(stage)}"
    yield (
        f"  memory            peak {format_nbytes(report.peak_nbytes)} of a budget of "
        f"{format_nbytes(report.budget_nbytes)}, held by the consumer {format_nbytes(report.held_nbytes)}"
    )
    yield from _bytes(report)
    for shuffle in report.shuffles:
        yield f"  shuffled          {shuffle.call}: {shuffle.kind}"
    for one in report.padding:
        total = one.num_values + one.num_padding
        yield f"  padding           {100 * one.share:.1f} % of {total} values of {one.call}"
    for decision in report.decisions:
        yield f"  decided           {decision}"
    if report.num_skipped:
        yield f"  skipped           {report.num_skipped} bad rows"
        for file in report.skipped_files[:10]:
            yield f"    {file.num_rows} of {file.file}"
        more = len(report.skipped_files) - 10
        if more > 0:
            yield f"    and of {more} more files"
        yield from (indent(error, "    ") for error in report.skipped)
    if report.error:
        yield f"  failed            {report.error}"
    yield f"  bottleneck        {advice(report)}"


def _counts(report: Measured) -> Iterator[str]:
    ranks = len(report.ranks)
    some = "" if ranks == report.world else f"{ranks} of "
    of = f" of {some}{report.world} ranks" if ranks else ""
    if report.world > 1 and not report.ranks:
        of = f" (rank {report.rank} of {report.world})"
    rows = f" with {report.num_rows} rows" if report.is_batched else ""
    what = "batches" if report.is_batched else "rows"
    pace = (
        f"{report.rows_per_second:,.0f} rows"
        if report.is_batched
        else f"{report.rows_per_second:,.0f}"
    )
    yield (
        f"epoch {report.epoch}{of}: {report.num_elements} {what}{rows}, {format_nbytes(report.nbytes)} in "
        f"{report.num_blocks} blocks, {report.seconds:.3f} s ({pace} a second)"
    )
    yield f"  waited for data   {report.waited_seconds:.3f} s ({100 * report.waited_share:.1f} %)"


def _where(stage: StageTime) -> str:
    where = f", {stage.num_processes} processes" if stage.num_processes else ""
    return where + ("" if stage.queue is None else f", {stage.queue:.1f} blocks waiting")


def _bytes(report: Measured) -> Iterator[str]:
    if report.read_nbytes:
        yield f"  read              {format_nbytes(report.read_nbytes)} from files"
    if report.net_nbytes or report.cache_nbytes:
        yield (
            f"  remote files      {format_nbytes(report.net_nbytes)} over the network, "
            f"{format_nbytes(report.cache_nbytes)} from the cache"
        )
    device = report.device
    if device is not None:
        yield f"  to the device     {device}"
