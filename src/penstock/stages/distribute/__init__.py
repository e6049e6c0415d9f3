"""distribute: of every global batch, the rows of one rank."""

from penstock.stages.distribute.stage import Distribute

__all__ = ["Distribute"]
