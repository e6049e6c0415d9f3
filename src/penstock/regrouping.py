"""The methods of a Dataset that make other rows of its rows: groups, parts, or more of them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from penstock.core.arguments import one_of, whole_number
from penstock.core.habits import teaching
from penstock.core.lazy import lazy
from penstock.errors import user_site
from penstock.outlets import Outlets
from penstock.stages.base.functions import UserFunction
from penstock.stages.base.stage import Stage
from penstock.stages.flat_map import FlatMap
from penstock.stages.rebatch import rebatched
from penstock.stages.take_while import TakeWhile
from penstock.stages.unbatch import Unbatch

if TYPE_CHECKING:
    from penstock.stages import bucket_by_sequence_length as buckets
    from penstock.stages import packing
else:
    # Only those who have sequences need them.
    buckets = lazy("penstock.stages.bucket_by_sequence_length")
    packing = lazy("penstock.stages.packing")

Applied = TypeVar("Applied")


class Regrouping(Outlets):
    """The part of a `Dataset` that regroups rows; `dataset.py` has the other stages."""

    __slots__ = ()

    @teaching
    def bucket_by_sequence_length(
        self,
        element_length_func: Callable[..., Any] | str | int,
        bucket_boundaries: Sequence[int],
        bucket_batch_sizes: Sequence[int],
        padded_shapes: Any = None,
        padding_values: Any = None,
        pad_to_bucket_boundary: bool = False,  # noqa: FBT001, FBT002  # As in tf.data.
        no_padding: bool = False,  # noqa: FBT001, FBT002
        drop_remainder: bool = False,  # noqa: FBT001, FBT002
    ) -> Self:
        """Return padded batches of rows of about one length: there is less padding than in `padded_batch`.

        A row waits in the bucket of its length until that has a batch. Batches come in the order in which they are
        full, and what is left in the buckets at the end, shortest first. Rows that wait are held in memory, at most
        `sum(bucket_batch_sizes)` of them, and `state()` has their numbers. `stream.report()` tells the share of
        padding.

        Args:
            element_length_func: Gets a row as the function of `map` does, and returns its length. Or the name of the
                field whose first axis is the length, such as "tokens", or its number in a tuple: no function is
                called then.
            bucket_boundaries: Lengths that buckets begin with, but for the first, which begins with 0: ascending.
            bucket_batch_sizes: The rows of a batch of each bucket: one more than there are boundaries.
            padded_shapes: A nest of shapes like a row that rows are padded to; None in a shape is the longest of the
                batch. By default all are.
            padding_values: The value to pad with (0, empty text), or a nest of values like a row.
            pad_to_bucket_boundary: Whether rows are padded to the longest length of their bucket, which is one less
                than the next boundary: so shapes are few. A row that is not shorter than the last boundary is an error.
            no_padding: Whether nothing is padded: the rows of a batch must have one shape.
            drop_remainder: Whether batches that are not full at the end are left out.

        >>> import numpy as np, penstock as ps
        >>> rows = [np.full(length, length) for length in [1, 5, 2, 4, 1]]
        >>> ds = ps.from_arrays({"tokens": rows}).bucket_by_sequence_length("tokens", [3], [2, 2])
        >>> for batch in ds:
        ...     print(batch["tokens"].tolist())
        [[1, 0], [2, 2]]
        [[5, 5, 5, 5, 5], [4, 4, 4, 4, 0]]
        [[1]]
        """
        boundaries = _ascending("bucket_boundaries", bucket_boundaries)
        sizes = _whole_numbers("bucket_batch_sizes", bucket_batch_sizes)
        if len(sizes) != len(boundaries) + 1:
            raise ValueError(
                f"bucket_batch_sizes must have one number more than bucket_boundaries, got {len(sizes)} and "
                f"{len(boundaries)}: rows that are longer than the last boundary have a batch size, too."
            )
        if no_padding and pad_to_bucket_boundary:
            raise ValueError(
                "bucket_by_sequence_length takes no_padding=True or pad_to_bucket_boundary=True, not both."
            )
        if pad_to_bucket_boundary and not boundaries:
            raise ValueError("pad_to_bucket_boundary=True needs at least one of bucket_boundaries.")
        is_named = isinstance(element_length_func, str | int)
        name = str(element_length_func) if is_named else None
        stages: list[Stage] = []
        if name is None:
            function: Any = element_length_func
            site = user_site()
            stages.append(
                buckets.Lengths(UserFunction(function, "bucket_by_sequence_length", site))
            )
        stage = buckets.BucketBySequenceLength(
            max(sizes),
            bool(drop_remainder),
            padding_values,
            name=name,
            boundaries=boundaries,
            sizes=sizes,
            to_boundary=bool(pad_to_bucket_boundary),
            shapes=padded_shapes,
            no_padding=bool(no_padding),
        )
        return self._with(*stages, stage)

    @teaching
    def pack(
        self,
        length: int,
        *,
        method: Literal["first_fit", "concat"] = "first_fit",
        bins: int = 32,
        long: Literal["error", "split", "truncate"] = "error",
        padding_values: Any = None,
        drop_remainder: bool = False,
    ) -> Self:
        """Return rows of `length` values, each packed with several sequences: nearly no padding, and one shape.

        All fields of a row are sequences of one length, such as tokens and their loss mask; each is packed alike.
        `segment_ids` (int32) tell the sequences of a packed row apart: 1, 2, ..., and 0 for padding. `positions`
        (int32) count from 0 in each of them. A row that is a dict gets both as fields; any other row becomes the triple
        (row, segment_ids, positions). Empty sequences take no room.

        Nothing is drawn by lot, so that there is no seed: shuffle before it. Open bins are held in memory, and
        `state()` has the numbers of the rows in them. `stream.report()` tells the share of padding.

        Args:
            length: The values of a packed row.
            method: "first_fit" leaves sequences whole: each goes to the first open bin that has room, and the fullest
                bin closes when none has. "concat" puts them one after the other and cuts wherever a row is full, so
                that nothing is padded but the last row.
            bins: How many bins are open at once, for "first_fit": more of them leave less padding.
            long: What becomes of a sequence longer than `length`, for "first_fit": an error that names it, or it is
                split into sequences that fit, or its end is cut off.
            padding_values: The value to pad with (0), or a nest of values like a row.
            drop_remainder: Whether bins that are not full at the end are left out.

        >>> import numpy as np, penstock as ps
        >>> rows = [np.array([1, 1, 1]), np.array([2, 2]), np.array([3]), np.array([4, 4])]
        >>> for row in ps.from_arrays({"tokens": rows}).pack(4):
        ...     print(row["tokens"], row["segment_ids"], row["positions"])
        [1 1 1 3] [1 1 1 2] [0 1 2 0]
        [2 2 4 4] [1 1 2 2] [0 1 0 1]
        """
        one_of("method", method, ("first_fit", "concat"))
        one_of("long", long, ("error", "split", "truncate"))
        number = whole_number("bins", bins, least=1, most=2**16)
        stage = packing.Pack(
            whole_number("length", length, least=1, most=2**31 - 1),
            number if method == "first_fit" else 1,
            method,
            long if method == "first_fit" else "split",
            padding_values,
            drop_remainder=bool(drop_remainder),
        )
        return self._with(stage)

    @teaching
    def flat_map(self, map_func: Callable[..., Any], *, spec: Any = None) -> Self:
        """Return the rows that `map_func` makes of each row, one after the other; the length is then unknown.

        The function is called in order, on one thread beside the consumer. Where it takes long and returns arrays,
        `.map(map_func).unbatch()` runs it on all threads, or in processes.

        Args:
            map_func: Gets a row as the function of `map` does. It returns, or yields, any number of rows: a list or a
                generator of rows; a nest of arrays whose first axis are the rows; or, as in tf.data, a dataset. Of a
                generator and of a dataset only a block of rows is held at a time.
            spec: The nest of `ArraySpec` of a row. Without it, the function is run once now, on the first row, to
                learn that from the first row that it makes.

        >>> import numpy as np, penstock as ps
        >>> def words(line):
        ...     return line.split()
        >>> list(ps.from_arrays(["to be", "or not"]).flat_map(words))
        ['to', 'be', 'or', 'not']
        >>> ds = ps.from_arrays(np.array([2, 0, 1]))
        >>> list(map(int, ds.flat_map(lambda n: ps.from_arrays(np.arange(n)))))
        [0, 1, 0]
        """
        return self._with(FlatMap(UserFunction(map_func, "flat_map", user_site()), spec))

    @teaching
    def take_while(self, predicate: Callable[..., Any]) -> Self:
        """Return the rows before the first one for which `predicate` is false; the length is then unknown.

        Args:
            predicate: Gets a row as the function of `map` does, and returns one True or False. Threads call it ahead,
                so that it may see rows behind the end; what it returns or raises there has no effect.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.array([1, 2, 9, 3])).take_while(lambda x: x < 5)))
        [1, 2]
        """
        return self._with(TakeWhile(UserFunction(predicate, "take_while", user_site())))

    @teaching
    def rebatch(self, batch_size: int, drop_remainder: bool = False) -> Self:  # noqa: FBT001, FBT002  # As in tf.data.
        """Return batches of another size, made of the rows of batches: `unbatch()`, then `batch(batch_size)`.

        There is random access where the batches have one size, or are those of `batch` itself: then these are never
        made. Rows of `padded_batch` can be stacked only if they have one shape; others are an error that says so.

        Args:
            batch_size: The rows of a batch.
            drop_remainder: Whether a last batch that would be shorter is left out.

        >>> import numpy as np, penstock as ps
        >>> [batch.tolist() for batch in ps.from_arrays(np.arange(6).reshape(3, 2)).rebatch(4)]
        [[0, 1, 2, 3], [4, 5]]
        """
        size = whole_number("batch_size", batch_size, least=1)
        if any(field.spec.shape == () for field in self.node.fields):
            raise ValueError(
                f"rebatch needs batches, and {self.node.describe()} gives single rows; write .batch({size})."
            )
        rows = Unbatch().build(self.node)
        stage = rebatched(rows, size, drop_remainder=bool(drop_remainder))
        return self._with(Unbatch(), stage)

    @teaching
    def apply(self, transformation_func: Callable[[Self], Applied]) -> Applied:
        """Return `transformation_func` of this dataset, so that functions of datasets can stand in a chain.

        Args:
            transformation_func: Takes a dataset and returns one.

        >>> import numpy as np, penstock as ps
        >>> def pairs(ds):
        ...     return ds.batch(2, drop_remainder=True)
        >>> [pair.tolist() for pair in ps.from_arrays(np.arange(5)).apply(pairs)]
        [[0, 1], [2, 3]]
        """
        if not callable(transformation_func):
            raise TypeError(
                f"apply needs a function of a dataset, got {type(transformation_func).__name__}."
            )
        made = transformation_func(self)
        if not isinstance(made, Regrouping):
            name = getattr(transformation_func, "__name__", type(transformation_func).__name__)
            hint = " Did it forget to return it?" if made is None else ""
            raise TypeError(
                f"apply({name}) must return a Dataset, got {type(made).__name__}.{hint} "
                "For a function of rows, use map."
            )
        return made

    def _with(self, *stages: Stage) -> Self:
        node = self.node
        for stage in stages:
            node = stage.build(node)
        on_error = self.options.on_error
        return type(self)(node if on_error is None else node.with_errors(on_error), self.options)


def _whole_numbers(name: str, values: Any) -> tuple[int, ...]:
    try:
        found = list(values)
    except TypeError:
        raise TypeError(f"{name} must be a list of whole numbers, got {values!r}.") from None
    return tuple(whole_number(f"each of {name}", one, least=1, most=2**31) for one in found)


def _ascending(name: str, values: Any) -> tuple[int, ...]:
    found = _whole_numbers(name, values)
    if list(found) != sorted(set(found)):
        raise ValueError(f"{name} must be ascending, got {list(found)}.")
    return found
