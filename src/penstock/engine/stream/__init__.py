"""A plan being run: threads, buffers, state, statistics."""

from penstock.engine.stream.stream import Stream, open_stream

__all__ = ["Stream", "open_stream"]
