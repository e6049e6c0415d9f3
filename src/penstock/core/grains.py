"""How rows lie on storage: which of them are stored together, and how many bytes each field has of a row."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_MOST_CHUNKS = (
    8  # Chunks that are read together, so that their rows are a whole number of a part's.
)
_FEW_CHUNKS = 4  # Where that can't be: of these, at most one is decoded again for the next block.
_MOST_NBYTES = (
    1 << 18
)  # What such chunks may have together: a window of a shuffle still mixes hundreds of them.


@dataclass(frozen=True, slots=True)
class Grain:
    """One field on storage, seen from a node whose rows are made of it."""

    rows: int
    """How many rows are decoded together: those of a chunk, or 1 where any row can be read by itself."""
    nbytes: int
    """The bytes of the field that one row takes, estimated where rows differ."""
    run: int = 1
    """Reads of multiples of so many rows can be compared with checksums."""

    def grouped(self, count: int) -> "Grain":
        """Return the grain seen from rows that stand for `count` rows each: those of a batch, or of a shard."""
        run = self.run // count if self.run % count == 0 else 1
        return Grain(max(1, self.rows // count), self.nbytes * count, max(1, run))

    def thinned(self, share: int, total: int) -> "Grain":
        """Return the grain seen from rows that are `share` of every `total` rows, with the others lying between."""
        count = 1
        if self.rows > 1:
            # Blocks that begin and end with a chunk decode none twice; of several chunks only the ends are.
            fitting = max(1, _MOST_NBYTES // (self.rows * max(1, self.nbytes)))
            most = min(_MOST_CHUNKS, fitting)
            exact = (one for one in range(1, most + 1) if self.rows * one * share % total == 0)
            count = next(exact, min(_FEW_CHUNKS, most))
        rows = max(1, -(-self.rows * count * share // total))
        run = self.run * share // total if self.run * share % total == 0 else 1
        return Grain(rows, -(-self.nbytes * total // share), max(1, run))

    def divided(self, count: int) -> "Grain":
        """Return the grain seen from rows of which `count` make one: they are read together."""
        count = max(1, count)
        return Grain(self.rows * count, -(-self.nbytes // count), self.run * count)


def grouped(grains: Iterable[Grain], count: int) -> tuple[Grain, ...]:
    """Return all grains seen from rows that stand for `count` rows each."""
    return tuple(grain.grouped(count) for grain in grains)


def widest(grains: Sequence[Grain]) -> Grain:
    """Return the grain of the field that has most of the bytes; of two such fields, that with the larger chunks."""
    return max(grains, key=lambda grain: (grain.nbytes, grain.rows))


def coarsest(inputs: Iterable[Sequence[Grain]]) -> tuple[Grain, ...]:
    """Return the grains of rows that come from either of several inputs: those with the largest chunks."""
    on_storage = [tuple(grains) for grains in inputs if grains]
    return max(on_storage, key=lambda grains: widest(grains).rows, default=())
