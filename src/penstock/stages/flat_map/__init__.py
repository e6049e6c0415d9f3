"""flat_map: a function that makes any number of rows of each row."""

from penstock.stages.flat_map.stage import FlatMap, FlatMappedFlow

__all__ = ["FlatMap", "FlatMappedFlow"]
