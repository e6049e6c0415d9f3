"""A plan being run: threads, buffers, state, statistics."""

from penstock.engine.stream.report import Report
from penstock.engine.stream.stream import Stream

__all__ = ["Report", "Stream"]
