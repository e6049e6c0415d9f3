"""A plan being run: threads, buffers, state, statistics."""

from penstock.stream.report import Report
from penstock.stream.stream import Stream

__all__ = ["Report", "Stream"]
