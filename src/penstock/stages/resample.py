"""resample: rows drawn so that each class has its exact share of an epoch, whatever its share of the rows is.

Classes take turns in a seeded pattern. The rows of a class come in the order of the input: each as often as it must
be, next to each other, and once more, or once at all, those that are drawn anew for every epoch.
"""

import math
import weakref
import zlib
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from penstock.core.arrays import Array, Index
from penstock.core.fields import repeated
from penstock.core.order import Permutation, hashes, mix_all
from penstock.core.rows import ENDLESS, Flow, Node, Rows, RowSet, as_index
from penstock.memory import Account, process_ledger
from penstock.stages.base.classes import Classes
from penstock.stages.base.stage import Stage, StageRows
from penstock.stages.mix import Pattern
from penstock.stages.split.stage import batching, live_shuffle

_CYCLE = (
    4096  # The pattern of classes repeats after about so many rows: long enough to look random.
)
_PER_CLASS = 16  # And after so many for each class, so that few rows are left over.
_ALL_AT_ONCE = 1 << 16  # So many rows have a pattern that does not repeat.
_WORD = 0x5245534D  # Keeps these draws apart from the order of a shuffle with the same seed.
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_UNBOUNDED = 1 << 62
_MOST_SHOWN = 5


class Members:
    """The numbers of all rows, class after class; the ledger counts them for as long as a dataset has them."""

    def __init__(self, rows: Array, sizes: Index, names: dict[int, str], budget: int) -> None:
        self.rows = rows
        self.sizes = sizes
        self.names = names
        """What the smallest classes are called."""
        self.starts = np.cumsum(sizes) - sizes
        self.checksum = zlib.crc32(np.ascontiguousarray(rows).data)
        account = Account(process_ledger, "the classes of resample")
        account.open(
            budget=budget,
            need=rows.nbytes,
            want=rows.nbytes,
            why="the number of each row, by class",
        )
        weakref.finalize(self, account.close)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the numbers; they are counted wherever they come to."""
        return Members, (self.rows, self.sizes, self.names, _UNBOUNDED)

    @staticmethod
    def of(classes: Classes, budget: int) -> "Members":
        """Return the rows of each class."""
        sizes = classes.counts()
        rows = np.empty(classes.num_rows, np.int64 if classes.num_rows >> 31 else np.int32)
        places = np.cumsum(sizes) - sizes
        done = 0
        for numbers in classes.pieces():
            order = np.argsort(numbers, kind="stable")
            mine = numbers[order]
            here = np.bincount(mine, minlength=len(sizes))
            ranks = np.arange(len(mine)) - (np.cumsum(here) - here)[mine]
            rows[places[mine] + ranks] = done + order
            places += here
            done += len(numbers)
        smallest = np.argsort(sizes, kind="stable")[:_MOST_SHOWN].tolist()
        names = {number: f"{classes.values[number]!r:.40}" for number in smallest}
        return Members(rows, sizes, names, budget)


def shares(
    values: Sequence[Hashable], weights: Mapping[Any, float] | None, num_rows: int
) -> tuple[int, ...]:
    """Return how many of `num_rows` rows each class gets: by its weight, and rounded so that all are given out.

    >>> shares(["a", "b", "c"], {"a": 2, "b": 1, "c": 0}, 10)
    (7, 3, 0)
    """
    if weights is None:
        least, more = divmod(num_rows, len(values))
        return tuple(least + (number < more) for number in range(len(values)))
    if not isinstance(weights, Mapping):
        raise TypeError(
            f"weights must be a dict with the weight of each class, as {{0: 1, 1: 2}} is, got {weights!r:.80}."
        )
    known = set(values)
    strange = [key for key in weights if key not in known]
    missing = [value for value in values if value not in weights]
    if strange or missing:
        wrong = (
            f"there are no rows of {_shown(strange)}"
            if strange
            else f"{_shown(missing)} is not there"
        )
        raise ValueError(f"weights must name each class, {_shown(values)}, and no other: {wrong}.")
    exact = [_weight(value, weights[value]) for value in values]
    total = sum(exact, Fraction(0))
    if not total:
        raise ValueError("weights must not all be 0.")
    wanted = [weight * num_rows / total for weight in exact]
    counts = [math.floor(one) for one in wanted]
    by_rest = sorted(range(len(counts)), key=lambda number: counts[number] - wanted[number])
    for number in by_rest[: num_rows - sum(counts)]:
        counts[number] += 1
    return tuple(counts)


def _weight(value: Hashable, weight: Any) -> Fraction:
    if isinstance(weight, bool) or not isinstance(weight, int | float | np.number | Fraction):
        raise TypeError(f"the weight of class {value!r} must be a number, got {weight!r}.")
    if not (math.isfinite(weight) and weight >= 0):
        raise ValueError(f"the weight of class {value!r} must be 0 or more, got {weight!r}.")
    return Fraction(weight if isinstance(weight, Fraction) else float(weight))


def _shown(values: Sequence[Hashable]) -> str:
    shown = ", ".join(map(repr, values[:10]))
    return f"{shown} and {len(values) - 10} more" if len(values) > 10 else shown


@dataclass(frozen=True, slots=True)
class Resample(Stage):
    """So many rows of each class."""

    repeats_rows: ClassVar[bool] = True
    moves_rows: ClassVar[bool] = True
    members: Members
    counts: tuple[int, ...]
    seed: int
    field: str
    call: str

    def check(self, node: Node) -> None:
        """Raise if rows have no fixed numbers, or are not those whose classes were read."""
        check_resampled(node)
        if node.num_rows != len(self.members.rows):
            raise ValueError(
                f"{self.call} was made for {len(self.members.rows)} rows, and there are {node.num_rows}."
            )

    def of_rows(self, rows: Rows) -> Node:
        """Return the drawn rows."""
        return ResampledRows(self, rows)

    def of_flow(self, flow: Flow) -> Node:
        """Refuse: rows are drawn by their numbers."""
        raise AssertionError("check_resampled refuses flows")

    def describe(self) -> str:
        """Return the call that made it."""
        return self.call

    def fingerprint(self) -> Any:
        """Return its name, how many rows each class has, and which rows these are."""
        return ["resample", self.seed, self.field, list(self.counts), self.members.checksum]


def check_resampled(node: Node) -> None:
    """Raise if rows have no numbers that stay the same."""
    if node.is_batched:
        wrong = batching(node)
        raise ValueError(
            f"resample draws rows, and can't follow {wrong}.\n"
            f"  wrong: ds.{wrong}(...).resample(by=...)\n  right: ds.resample(by=...).{wrong}(...)"
        )
    if live_shuffle(node):
        raise ValueError(
            "resample can't follow shuffle: rows change their places each epoch.\n"
            "  wrong: ds.shuffle().resample(by=...)\n  right: ds.resample(by=...).shuffle()"
        )
    if node.is_endless:
        raise ValueError("resample can't follow repeat() without a count: there is no last row.")
    is_forward = isinstance(node, Flow)
    if is_forward:
        raise ValueError(
            f"resample needs random access to the rows, and {node.describe()} can only be read forward (as is all "
            'that may have bad rows under on_error="skip").\n'
            '  keep the rows first: ds.write("folder"), then ps.from_files("folder").resample(by=...)'
        )


@dataclass(frozen=True, slots=True)
class _Phase:
    """Rows of which classes have the shares of one pattern."""

    start: int
    pattern: Pattern
    used: Index
    """Rows of each class before this phase."""


class ResampledRows(StageRows):
    """Row i is of the class that the pattern says, and the so-and-so-many-th draw of that class."""

    stage: Resample

    def __init__(self, stage: Resample, node: Rows) -> None:
        super().__init__(stage, node)
        self.num_rows = sum(stage.counts)
        self.follows_epoch = True
        if self.num_rows < node.num_rows and self.num_rows:
            self.grains = tuple(
                grain.thinned(self.num_rows, node.num_rows) for grain in node.grains
            )
        self.draws = np.array(stage.counts, np.int64)
        sizes = np.maximum(1, stage.members.sizes)
        self.times, self.more = np.divmod(self.draws, sizes)
        # Copies of a row stand next to each other: a block may have the largest one that often.
        most = int((self.times + (self.more > 0)).max(initial=1))
        self.fields = tuple(replace(f, tops=repeated(f.tops, most)) for f in node.fields)
        self.phases = _phases(stage.counts, stage.seed)
        self.phase_starts = np.array([phase.start for phase in self.phases], np.int64)

    def input_rows(self, rows: RowSet, epoch: int) -> Index:
        """Return the numbers of the drawn rows in the input."""
        index = as_index(rows)
        owners = np.empty(len(index), np.int64)
        ordinals = np.empty(len(index), np.int64)
        phases = np.searchsorted(self.phase_starts, index, side="right") - 1
        for number in np.unique(phases).tolist():
            phase = self.phases[number]
            slots = np.flatnonzero(phases == number)
            owners[slots], ordinals[slots] = phase.pattern.at(index[slots] - phase.start)
            ordinals[slots] += phase.used[owners[slots]]
        members = self.stage.members
        places = members.starts[owners] + self._drawn(owners, ordinals, epoch)
        found: Index = members.rows[places].astype(np.int64)
        return found

    def _drawn(self, owners: Index, ordinals: Index, epoch: int) -> Index:
        """Return which row of its class each draw is.

        With n rows and n * times + more draws, the rows are cut into `more` stretches, of each of which one row, a
        random one, is drawn once more than the others.
        """
        sizes, times, more = self.stage.members.sizes[owners], self.times[owners], self.more[owners]
        stretches = np.maximum(1, more)
        numbers = ordinals * more // np.maximum(1, self.draws[owners])
        numbers += (numbers + 1) * sizes // stretches * times + numbers + 1 <= ordinals
        numbers = np.where(more == 0, 0, numbers)
        firsts = numbers * sizes // stretches
        lengths = (numbers + 1) * sizes // stretches - firsts
        keys = hashes((self.stage.seed, _WORD, epoch), len(self.draws))[owners]
        found = mix_all(keys + (numbers + 1).astype(np.uint64) * _GOLDEN)
        extra = (found % np.maximum(1, lengths).astype(np.uint64)).astype(np.int64)
        left = ordinals - firsts * times - numbers
        divisor = np.maximum(1, times)
        before = left < extra * times
        after = left > extra * times + times
        drawn = np.where(before, left // divisor, np.where(after, (left - 1) // divisor, extra))
        return np.where(more == 0, ordinals // divisor, firsts + drawn)

    def kept_nbytes(self) -> dict[int, int]:
        """Return the bytes of the rows by class, too."""
        members = self.stage.members
        return {**super().kept_nbytes(), id(members): members.rows.nbytes}

    def choice(self) -> str:
        """Return how many rows of each class there are, and how often each comes."""
        words = []
        members = self.stage.members
        for number, name in members.names.items():
            times, more = int(self.times[number]), int(self.more[number])
            often = f"{times} to {times + 1} times each" if more else f"{times} times each"
            size, count = int(members.sizes[number]), self.stage.counts[number]
            words.append(f"{name}: {count} draws of {size} rows, {often}")
        rest = len(members.sizes) - len(words)
        text = "; ".join(words) + (f"; and {rest} classes more" if rest else "")
        return f"by index, drawn anew each epoch, classes in a seeded pattern ({text}); shuffle behind it"


def _phases(counts: tuple[int, ...], seed: int) -> list[_Phase]:
    """Return patterns of which all together have so many rows of each class."""
    phases: list[_Phase] = []
    left, start = list(counts), 0
    cycle = max(_CYCLE, _PER_CLASS * len(counts))
    while total := sum(left):
        repeats, each = 1, left
        if total > max(_ALL_AT_ONCE, cycle):
            repeats = total // cycle
            each = [count * cycle // total for count in left]
        sorted_owners = np.repeat(np.arange(len(counts)), each)
        words = (seed, _WORD, len(phases), 0)
        order = Permutation(len(sorted_owners), words).rows(np.arange(len(sorted_owners)))
        owners = sorted_owners[order]
        mine = np.argsort(owners, kind="stable")
        ranks = np.empty(len(owners), np.int64)
        amounts = np.array(each, np.int64)
        ranks[mine] = np.arange(len(owners)) - np.repeat(np.cumsum(amounts) - amounts, amounts)
        used = np.array(counts, np.int64) - np.array(left, np.int64)
        phases.append(_Phase(start, Pattern(owners, ranks, amounts), used))
        start += repeats * len(owners)
        left = [count - repeats * one for count, one in zip(left, each, strict=True)]
    return phases


def check_size(members: Members, counts: Sequence[int]) -> None:
    """Raise if a class has so many rows and draws that their product can't be a number."""
    for size, count in zip(members.sizes.tolist(), counts, strict=True):
        if size * (count + 1) >= ENDLESS:
            raise ValueError(f"resample draws {count} rows of {size}, which is more than it can.")
