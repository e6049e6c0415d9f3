"""cache: the rows of the first epoch, stored in memory or in a folder."""

from penstock.stages.cache.stage import Cache

__all__ = ["Cache"]
