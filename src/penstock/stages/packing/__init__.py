"""pack: sequences of any length, several of them in each row of one length."""

from penstock.stages.packing.stage import Pack

__all__ = ["Pack"]
