"""The report: what a stream did, where the time went, and what to change."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.core.lazy import lazy
from penstock.reports.advice import advice, bottleneck
from penstock.reports.measured import Measured
from penstock.reports.text import as_text

if TYPE_CHECKING:
    from penstock.reports import as_json, html, merging, trace
else:
    # What most programs never use.
    as_json = lazy("penstock.reports.as_json")
    html = lazy("penstock.reports.html")
    merging = lazy("penstock.reports.merging")
    trace = lazy("penstock.reports.trace")


@dataclass(frozen=True, slots=True)
class Report(Measured):
    """What a stream has done so far; `print` it, look at its fields, or write it with `to_html`, `to_json`, `to_trace`.

    >>> import numpy as np, penstock as ps
    >>> with ps.from_arrays(np.zeros((100, 8), "f4")).batch(32).stream() as stream:
    ...     batches = list(stream)
    ...     report = stream.report()
    >>> report.num_rows, report.num_batches, report.state
    (100, 4, 'ended')
    """

    @property
    def bottleneck(self) -> str:
        """The stage that took the most time, or 'the consumer' if data was always there."""
        return bottleneck(self)

    @property
    def advice(self) -> str:
        """The bottleneck, and what to do about it, in words; '' if nothing was read."""
        return advice(self)

    def __str__(self) -> str:
        return as_text(self)

    def _repr_html_(self) -> str:
        return html.fragment(self)

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write it as one page with plots, which needs nothing else to be looked at, and no network.

        Args:
            path: The file; one that is there is replaced.
        """
        html.write(self, path)

    def to_trace(self, path: str | os.PathLike[str]) -> None:
        """Write it as a trace of Chrome's form, for https://ui.perfetto.dev or chrome://tracing.

        Args:
            path: The file; one that is there is replaced.
        """
        trace.write(self, path)

    def to_json(self, path: str | os.PathLike[str]) -> None:
        """Write it as JSON; `Report.from_json` reads it back.

        Args:
            path: The file; one that is there is replaced.
        """
        as_json.write(self, path)

    def to_dict(self, *, spans: bool = True) -> dict[str, Any]:
        """Return it as dicts, lists, numbers and text, as `to_json` writes it; docs/reports.md has the form.

        Args:
            spans: Whether `spans` are in it, which are most of its size.
        """
        return as_json.to_dict(self, spans=spans)

    @staticmethod
    def from_json(path: str | os.PathLike[str]) -> "Report":
        """Return the report that `to_json` wrote to a file."""
        return as_json.read(path, Report)

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Report":
        """Return the report that `to_dict` made a dict of."""
        return as_json.from_dict(found, Report)


def merge_reports(reports: Sequence[Report]) -> Report:
    """Return one report of the reports of several ranks of a run.

    Counts are added. Its time is from when the first was opened to when the last ended, by the clocks of their
    machines; the consumer waited as long as one of theirs did on average.

    Args:
        reports: One of each rank, of the same epoch of the same pipeline; `Report.from_json` reads those of others.

    >>> import numpy as np, penstock as ps
    >>> ds = ps.from_arrays(np.arange(64)).batch(8)
    >>> found = []
    >>> for rank in range(2):
    ...     with ds.distribute(rank=rank, world=2).stream() as stream:
    ...         batches = list(stream)
    ...         found.append(stream.report())
    >>> ps.merge_reports(found).num_rows
    64
    """
    return merging.merged(reports, Report)
