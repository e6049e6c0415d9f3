"""Some rows of a dataset instead of all: the parts of a split, and rows drawn by class."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from penstock.core.arguments import whole_number
from penstock.core.habits import teaching
from penstock.core.lazy import lazy
from penstock.core.nest import field_names
from penstock.core.rows import Flow, Rows
from penstock.core.seeds import checked_seed
from penstock.engine.stream import open_stream
from penstock.errors import warn_user
from penstock.memory import Account, default_budget, process_ledger
from penstock.outlets import Outlets
from penstock.regrouping import Regrouping

if TYPE_CHECKING:
    from penstock.stages import resample as resampling
    from penstock.stages import split as splitting
    from penstock.stages.base import classes
else:
    # What most programs never use.
    resampling = lazy("penstock.stages.resample")
    splitting = lazy("penstock.stages.split")
    classes = lazy("penstock.stages.base.classes")


class Subsets(Regrouping):
    """The part of a `Dataset` that makes other datasets of some of its rows."""

    __slots__ = ()

    @teaching
    def split(
        self, *fractions: float, seed: int | None = 0, stratify: Any = None, by: Any = None
    ) -> "tuple[Self, ...]":
        """Return datasets that share the rows between them: `train, valid = ds.split(0.9)`.

        No row is in two of them, each is in one, and in the same one in every epoch; rows stay in order. So it
        comes before `shuffle`, `repeat`, `batch` and `window`. Which rows a part has follows from the seed: of every
        run of rows each part has its exact share, for 0.9 nine of every ten, picked at random. It takes no memory
        and no time, and a part reads as the whole does. N rows are cut at `N * fraction`, rounded down: 10 rows split
        by 0.9 are 9 and 1, 25 rows are 22 and 3. Of rows whose number nobody knows (behind `filter`), those after
        the last whole run are dealt as if more were to come.

        Args:
            fractions: The share of each part. If they add up to less than 1, the rest is one more part, the last:
                `ds.split(0.8, 0.1)` gives three. A share that is no fraction with a denominator up to 10,000 is
                rounded to one; several shares whose common denominator is beyond 100,000 are rounded to 10,000ths.
            seed: Which split it is; None draws a seed now, and keeps it.
            stratify: The field with the class of a row: its name, its number in a tuple, or a path like "meta.id".
                Each part then has its share of each class, to one row. That field is read once, now, and a bit
                is kept for each row and part.
            by: The field with the group of a row, such as a patient. Rows of a group stay together, in one part; parts
                have their shares as nearly as whole groups allow. It is read as `stratify` is.

        >>> import numpy as np, penstock as ps
        >>> train, valid = ps.from_arrays(np.arange(10)).split(0.8, seed=1)
        >>> list(map(int, train)), list(map(int, valid))
        ([0, 1, 2, 3, 5, 6, 8, 9], [4, 7])
        """
        deal = splitting.deal_of(fractions, checked_seed(seed))
        words = [f"{float(fraction):g}" for fraction in fractions] + [f"seed={deal.seed}"]
        words += [f"stratify={stratify!r}"] if stratify is not None else []
        words += [f"by={by!r}"] if by is not None else []
        call = f"split({', '.join(words)})"
        splitting.check_splittable(self.node, call)
        marked = None
        if stratify is not None or by is not None:
            if stratify is not None and by is not None:
                raise ValueError(
                    "split takes stratify or by, not both: groups that stay together can't be cut by class."
                )
            marked = self._marked(deal, "stratify" if by is None else "by", call, stratify, by)
        return tuple(
            self._with(splitting.Split(deal, part, call, marked)) for part in range(deal.num_parts)
        )

    @teaching
    def resample(
        self,
        by: Any,
        *,
        weights: Mapping[Any, float] | None = None,
        seed: int | None = 0,
        num_rows: int | None = None,
    ) -> "Self":
        """Return rows drawn so that each class has its exact share of an epoch: all the same, or by `weights`.

        For classes that are rare. Rows of a class that has too few come several times, all equally often to one
        draw; of a class that has too many, some are left out. Which ones is drawn anew in each epoch. Classes take
        turns, and rows of a class come in the order of the input, copies next to each other: put `shuffle` behind it.
        It is by index: length, resume and shuffle are exact. The field is read once, now, and 4 bytes are kept for
        each row.

        It is what `rejection_resample` of tf.data and `WeightedRandomSampler` of torch are used for, without
        chance: shares are exact. To mix datasets, as `sample_from_datasets` does, there is `ps.mix`.

        Args:
            by: The field with the class of a row: its name, its number in a tuple, or a path like "meta.id".
            weights: The weight of each class, by its value, such as {0: 1, 1: 3}; 0 leaves a class out.
            seed: Which draw it is; None draws a seed now, and keeps it.
            num_rows: How many rows an epoch has; by default as many as there are.

        >>> import numpy as np, penstock as ps
        >>> ds = ps.from_arrays((np.arange(6), np.array([0, 0, 0, 0, 0, 1]))).resample(by=1)
        >>> sorted(int(label) for _, label in ds), len(ds)
        ([0, 0, 0, 1, 1, 1], 6)
        """
        drawn = checked_seed(seed)
        resampling.check_resampled(self.node)
        number = classes.field_number(self.node.structure, by, "by")
        words = [f"by={by!r}"] + ([] if weights is None else [f"weights={weights!r:.60}"])
        words += [f"seed={drawn}"] + ([] if num_rows is None else [f"num_rows={num_rows}"])
        call = f"resample({', '.join(words)})"
        wanted = (
            None if num_rows is None else whole_number("num_rows", num_rows, least=0, most=2**62)
        )
        found, account = self._read_classes(number, "by", by, call)
        try:
            if wanted and not found.num_rows:
                raise ValueError(f"{call} has no rows to draw from.")
            size = found.num_rows if wanted is None else wanted
            counts = resampling.shares(found.values, weights, size) if found.num_rows else ()
            members = resampling.Members.of(found, account.budget)
        finally:
            account.close()
        resampling.check_size(members, counts)
        name = field_names(self.node.structure)[number]
        return self._with(resampling.Resample(members, counts, drawn, name, call))

    def _marked(
        self, deal: "splitting.Deal", argument: str, call: str, stratify: Any, by: Any
    ) -> "splitting.Marked":
        """Return the parts by a field, which is read now."""
        which = stratify if by is None else by
        number = classes.field_number(self.node.structure, which, argument)
        name = field_names(self.node.structure)[number]
        found, account = self._read_classes(number, argument, which, call)
        try:
            make = splitting.marks_by_class if by is None else splitting.marks_by_group
            marks = make(deal, found, account.budget)
        finally:
            account.close()
        sizes = [marks.size(part) for part in range(deal.num_parts)]
        if 0 in sizes and found.num_rows:
            raise ValueError(
                f"{call} of {found.num_rows} rows would leave part {sizes.index(0)} without any: its sizes would be "
                f"{sizes}."
            )
        return splitting.Marked(marks, name, by is not None, isinstance(self.node, Flow))

    def _read_classes(
        self, number: int, argument: str, which: Any, call: str
    ) -> "tuple[classes.Classes, Account]":
        """Return the values of a field in all rows, and the account that their memory is counted by."""
        node = self.node
        floats = argument != "by" or "resample" in call
        classes.check_field(node.fields[number].spec, argument, which, floats=floats)
        alone = node.only(number) if isinstance(node, Rows) else None
        account = Account(process_ledger, f"{call}: the field {argument}={which!r}")
        budget = self.options.memory
        if budget is None:
            budget = default_budget(own_nbytes=process_ledger.mapped)
        why = "a number for the value of each row, until all are read"
        account.open(budget=budget, need=0, want=0, why=why)

        def reserve(nbytes: int) -> None:
            process_ledger.extend(account, nbytes, budget=budget, why=why)

        found = classes.Classes(reserve)
        try:
            with open_stream(node if alone is None else alone, self.options) as stream:
                for block, size in stream.blocks():
                    column = block.columns[number if alone is None else 0]
                    found.add(column, size, f"{argument}={which!r}")
        except BaseException:
            account.close()
            raise
        return found, account


def warn_of_leak(dataset: Outlets, call: str) -> None:
    """Warn of what leaves out rows by their place behind a shuffle: another epoch has these."""
    if splitting.live_shuffle(dataset.node):
        warn_user(
            f"{call} behind shuffle leaves out other rows in each epoch: rows that were kept for validation get into "
            "training.\n"
            "  the same rows in every epoch: train, valid = ds.split(0.9, seed=0), then train.shuffle()\n"
            "  to keep the order of the first epoch: ds.shuffle().cache()"
        )
