"""The Dataset: rows and what happens to them, declared; nothing is read until it is iterated."""

import itertools
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Never

from penstock.core.lazy import lazy
from penstock.core.rows import Node
from penstock.engine.plan import Explanation, Options, Plan, explain, make_plan
from penstock.engine.stream import Stream
from penstock.engine.stream.statistics import statistics
from penstock.errors import user_site
from penstock.memory import parse_nbytes
from penstock.stages.base.functions import UserFunction
from penstock.stages.base.stage import Stage, whole_number
from penstock.stages.batch import Batch
from penstock.stages.cache.in_memory import Cache
from penstock.stages.enumerate import Enumerate
from penstock.stages.filter import Filter
from penstock.stages.map import Map
from penstock.stages.padded_batch import PaddedBatch
from penstock.stages.repeat import Repeat
from penstock.stages.shard import Shard
from penstock.stages.shuffle.stage import Shuffle
from penstock.stages.take import Skip, Take
from penstock.stages.unbatch import Unbatch
from penstock.stages.window import SlidingWindow

if TYPE_CHECKING:
    from penstock import writers
    from penstock.io.paths import PathLike
    from penstock.stages.cache import on_disk as cache_on_disk
else:
    # What most programs never use: `import penstock` does not wait for it.
    cache_on_disk = lazy("penstock.stages.cache.on_disk")
    writers = lazy("penstock.writers")


class Dataset:
    """Rows, and a chain of stages. Immutable: every method returns a new one and reads nothing.

    >>> import numpy as np, penstock as ps
    >>> ds = ps.from_arrays((np.arange(6), np.arange(6) * 10)).batch(4)
    >>> for x, y in ds:
    ...     print(x, y)
    [0 1 2 3] [ 0 10 20 30]
    [4 5] [40 50]
    """

    __slots__ = ("__weakref__", "_epochs", "node", "options")

    def __init__(self, node: Node, options: Options) -> None:
        self.node = node
        self.options = options
        self._epochs = itertools.count()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the declaration; how often it was iterated stays behind."""
        return Dataset, (self.node, self.options)

    # -- what it is ---------------------------------------------------------------------------

    @property
    def spec(self) -> Any:
        """The nest of `ArraySpec` of what iterating gives.

        >>> import numpy as np, penstock as ps
        >>> ps.from_arrays({"x": np.zeros((8, 3), "float32")}).batch(4).spec
        {'x': ArraySpec((4, 3), float32)}
        """
        return self.node.spec

    def __len__(self) -> int:
        if self.node.num_rows is None:
            raise TypeError(
                f"the length can't be known before {self.node.describe()} has run; "
                "iterate, or count with ds.reduce(lambda count, row: count + 1, 0)."
            )
        if self.node.is_endless:
            raise TypeError("the length is infinite: repeat() has no count; use .take(n).")
        return self.node.num_rows

    def __bool__(self) -> bool:
        """Whether there is a dataset: always, as in tf.data, whatever its length."""
        return True

    def __repr__(self) -> str:
        return f"<Dataset {self.node.describe()}: {self.spec}>"

    def explain(self) -> Explanation:
        """Return what iterating will do: stages, sizes, threads and bytes. Reads nothing."""
        return explain(make_plan(self.node, self.options))

    # -- what happens to the rows -------------------------------------------------------------

    def shuffle(
        self,
        *positional: Never,
        seed: int | None = 0,
        exact: bool = False,
        window: int | str | None = None,
    ) -> "Dataset":
        """Return the rows in a seeded random order, new each epoch.

        Rows that can be had by number are shuffled exactly, at no cost in memory. Rows that can
        only be read forward are shuffled in windows of `window` bytes (64 MB). `seed=None` draws
        a seed now, and keeps it.

        >>> import numpy as np, penstock as ps
        >>> ds = ps.from_arrays(np.arange(5)).shuffle(seed=7)
        >>> sorted(map(int, ds))
        [0, 1, 2, 3, 4]
        """
        if positional:
            raise TypeError(
                f"shuffle takes no buffer size: it mixes all rows without one.\n"
                f"  wrong: ds.shuffle({positional[0]!r})\n  right: ds.shuffle(seed=0)"
            )
        return self._with(
            Shuffle(checked_seed(seed), exact, None if window is None else parse_nbytes(window))
        )

    def map(
        self, function: Callable[..., Any], *, seed: int | None = None, spec: Any = None
    ) -> "Dataset":
        """Return `function` of every row; after `batch`, of every batch.

        The parts of a tuple are passed as arguments, anything else as one. The function is run
        once on the first row, to learn what it returns, unless `spec` says so. With a seed it
        gets a NumPy generator as its last argument, which depends on seed, epoch and row alone.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(3)).map(lambda x: x * x)))
        [0, 1, 4]
        """
        checked = None if seed is None else whole_number("seed", seed, least=0)
        return self._with(Map(UserFunction(function, "map", user_site()), checked, spec))

    def filter(self, function: Callable[..., Any]) -> "Dataset":
        """Return the rows for which `function` is true; the length is then unknown.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(6)).filter(lambda x: x % 2 == 0)))
        [0, 2, 4]
        """
        return self._with(Filter(UserFunction(function, "filter", user_site())))

    def batch(self, batch_size: int, *, drop_remainder: bool = False) -> "Dataset":
        """Return batches of `batch_size` rows, stacked; the last may be shorter.

        >>> import numpy as np, penstock as ps
        >>> [batch.tolist() for batch in ps.from_arrays(np.arange(5)).batch(2)]
        [[0, 1], [2, 3], [4]]
        """
        return self._with(Batch(whole_number("batch_size", batch_size, least=1), drop_remainder))

    def padded_batch(
        self,
        batch_size: int,
        *,
        pad: Any = None,
        drop_remainder: bool = False,
        lengths: bool = False,
    ) -> "Dataset":
        """Return batches of rows whose shapes differ, padded at their ends to the longest.

        `pad` is the value to pad with (0, empty text), or a nest of values like a row. With `lengths`
        the result is (batch, lengths): a nest like a row with the true length of each row, for every
        field that is padded, and () for the others. A field with k open dimensions has k lengths a row.

        >>> import numpy as np, penstock as ps
        >>> rows = [np.array([1, 2, 3]), np.array([4])]
        >>> next(iter(ps.from_arrays(rows).padded_batch(2))).tolist()
        [[1, 2, 3], [4, 0, 0]]
        """
        size = whole_number("batch_size", batch_size, least=1)
        return self._with(PaddedBatch(size, drop_remainder, pad, lengths=lengths))

    def window(self, size: int, *, stride: int = 1) -> "Dataset":
        """Return windows of `size` consecutive rows, each `stride` rows after the one before.

        For series: the rows are not copied, but gathered from where they are when a window is read,
        so that windows can be shuffled and batched like rows. One that would be cut short is left
        out. What stands before it must be rows that can be had by number.

        >>> import numpy as np, penstock as ps
        >>> [w.tolist() for w in ps.from_arrays(np.arange(6)).window(3, stride=2)]
        [[0, 1, 2], [2, 3, 4]]
        """
        stage = SlidingWindow(
            whole_number("size", size, least=1), whole_number("stride", stride, least=1)
        )
        return self._with(stage)

    def unbatch(self) -> "Dataset":
        """Return the rows along the first axis of every field.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(4).reshape(2, 2)).unbatch()))
        [0, 1, 2, 3]
        """
        return self._with(Unbatch())

    def take(self, count: int) -> "Dataset":
        """Return the first `count` rows (or batches); -1 is all of them.

        >>> import numpy as np, penstock as ps
        >>> len(ps.from_arrays(np.arange(10)).take(3))
        3
        """
        return self._with(Take(whole_number("count", count, least=-1)))

    def skip(self, count: int) -> "Dataset":
        """Return all rows (or batches) after the first `count`.

        >>> import numpy as np, penstock as ps
        >>> len(ps.from_arrays(np.arange(10)).skip(3))
        7
        """
        return self._with(Skip(whole_number("count", count, least=-1)))

    def repeat(self, count: int | None = None) -> "Dataset":
        """Return `count` passes over the rows, each shuffled anew; without a count, endless ones.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(2)).repeat(2)))
        [0, 1, 0, 1]
        """
        number = None if count is None else whole_number("count", count, least=-1)
        return self._with(Repeat(None if number == -1 else number))

    def shard(self, index: int, count: int) -> "Dataset":
        """Return rows index, index + count, index + 2 * count, and so on.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(7)).shard(1, 3)))
        [1, 4]
        """
        number = whole_number("count", count, least=1)
        return self._with(Shard(whole_number("index", index, least=0), number))

    def enumerate(self, start: int = 0) -> "Dataset":
        """Return (number, row) pairs, the number an int64.

        >>> import numpy as np, penstock as ps
        >>> [(int(i), int(x)) for i, x in ps.from_arrays(np.array([7, 8])).enumerate()]
        [(0, 7), (1, 8)]
        """
        return self._with(Enumerate(whole_number("start", start, least=-(2**62))))

    def cache(self, path: "PathLike | None" = None) -> "Dataset":
        """Return the same rows, kept after they were first read, in the order of epoch 0.

        Without a path they are kept in memory: they count against the memory budget, and are
        refused if they do not fit. With one they are written to that folder by the first pass, and
        read from there by the next ones and by other processes; a folder that was made from other
        files or stages is refused. A function counts by its name: remove the folder after changing it.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(3)).map(lambda x: x + 1).cache()))
        [1, 2, 3]
        """
        if path is None:
            return self._with(Cache())
        return self._with(cache_on_disk.CacheOnDisk(str(Path(path).expanduser().absolute())))

    def prefetch(self, count: int | None = None) -> "Dataset":
        """Say how many batches are made ahead; 0 makes each when it is asked for.

        Work is done ahead without it, too: this only sets how far. None, or -1 as in tf.data, is
        found by itself.
        """
        if count == -1:
            count = None
        return Dataset(self.node, self.options.updated(Options.checked(prefetch=count)))

    def with_options(
        self,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        scratch: "PathLike | None" = None,
        processes: int | None = None,
        retries: int | None = None,
        on_error: str | None = None,
        max_errors: int | None = None,
    ) -> "Dataset":
        """Say how the whole chain runs; what comes out of it stays the same.

        `memory` is the budget, in bytes or like "512MB"; `threads` how many work ahead (0: none);
        `scratch` the folder for what `shuffle(exact=True)` writes; `processes` how many run the
        functions of `map` (0: threads; by default measured: a function that holds the interpreter
        lock goes to processes); `retries` how often a block is tried again when a process dies.
        `on_error="skip"` leaves bad rows out, counts and lists them in the report, and raises from
        the error after `max_errors` on (a chunk or file that can't be read is one); what can have bad
        rows is then read forward, without a length.

        >>> import numpy as np, penstock as ps
        >>> ps.from_arrays(np.arange(3)).with_options(memory="16MB").explain().budget_nbytes
        16000000
        """
        options = Options.checked(
            memory=memory,
            threads=threads,
            scratch=scratch,
            processes=processes,
            retries=retries,
            on_error=on_error,
            max_errors=max_errors,
        )
        node = self.node if on_error is None else self.node.with_errors(on_error)
        return Dataset(node, self.options.updated(options))

    # -- where the rows go --------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self.stream(epoch=next(self._epochs))

    def stream(self, *, epoch: int = 0, state: dict[str, Any] | None = None) -> Stream:
        """Return one epoch as an iterator with `state()`, `report()` and `close()`.

        >>> import numpy as np, penstock as ps
        >>> ds = ps.from_arrays(np.arange(4)).batch(2)
        >>> with ds.stream() as stream:
        ...     first = next(stream)
        ...     state = stream.state()
        >>> next(ds.stream(state=state)).tolist()
        [2, 3]
        """
        number = whole_number("epoch", epoch, least=0)
        plan = make_plan(self.node, self.options)
        return Stream(plan, epoch=number, state=state, by_element=True)

    def reduce(self, function: Callable[[Any, Any], Any], initial: Any) -> Any:
        """Return `function(... function(function(initial, row 0), row 1) ...)`.

        >>> import numpy as np, penstock as ps
        >>> int(ps.from_arrays(np.arange(4)).reduce(lambda total, x: total + x, 0))
        6
        """
        result = initial
        with self.stream() as stream:
            for element in stream:
                result = function(result, element)
        return result

    def statistics(self) -> Any:
        """Return count, mean, variance, minimum and maximum of every field, in one pass.

        >>> import numpy as np, penstock as ps
        >>> float(ps.from_arrays(np.array([1.0, 3.0])).batch(2).statistics().variance)
        1.0
        """
        return statistics(Stream(make_plan(self.node, self.options)), self.node)

    def to_keras(
        self,
        *,
        class_weight: dict[int, float] | None = None,
        device_memory: int | str | None = None,
    ) -> Any:
        """Return what `model.fit`, `evaluate` and `predict` take as data, on each backend of Keras.

        Each epoch of `fit` is the next one of the dataset. `model.fit(ds.to_keras(), epochs=3)`.
        It takes the memory of the stream; nothing is copied on the CPU. Data that fits
        `device_memory` (by default half of what an accelerator has free) is copied to the device
        once, and gathered there.
        """
        from penstock.feeds.keras.feed import keras_feed
        from penstock.feeds.recipe import Recipe

        recipe = Recipe(self.node, self.options)
        return keras_feed(recipe, class_weight=class_weight, device_memory=device_memory)

    def write(
        self,
        path: "PathLike",
        *,
        format: str = "npy",
        shard_rows: int | None = None,
        shards: int | None = None,
        overwrite: bool = False,
        progress: bool | None = None,
    ) -> None:
        """Write all rows of epoch 0 to a folder, which appears when it is whole.

        `"npy"` makes plain `.npy` shards of `shard_rows` rows (256 MB) and a `manifest.json`;
        `from_files(path)` reads them back with the nest they had. After an interruption, the same
        call goes on after the last finished shard. `"tfrecord"` makes a tf.train.Example of each
        row, for `from_tfrecord(path)` and for TensorFlow. `shards` is the number of files, instead
        of `shard_rows`. Takes the memory of a stream, and no more.
        `progress` shows a bar: by default if rich is installed and stderr is a terminal.

        >>> import numpy as np, penstock as ps, tempfile
        >>> folder = tempfile.mkdtemp() + "/out"
        >>> ps.from_arrays((np.arange(3), ["a", "b", "c"])).write(folder)
        >>> [(int(x), y) for x, y in ps.from_files(folder)]
        [(0, 'a'), (1, 'b'), (2, 'c')]
        """
        if format not in writers.WRITERS:
            raise ValueError(f"format must be one of {', '.join(writers.WRITERS)}, got {format!r}.")
        if self.node.is_endless:
            raise ValueError("rows without end can't be written: use .take(n) first.")
        rows = None if shard_rows is None else whole_number("shard_rows", shard_rows, least=1)
        if shards is not None:
            if shard_rows is not None or self.node.num_rows is None:
                raise ValueError(
                    "shards needs a dataset with a length, and no shard_rows: one follows from the other."
                )
            rows = max(1, -(-self.node.num_rows // whole_number("shards", shards, least=1)))
        target = Path(path).expanduser().absolute()
        plan = make_plan(self.node, self.options)
        job = writers.Job(
            self.node, partial(_open, plan), target, rows, overwrite, progress, shards
        )
        writers.WRITERS[format](job)

    def to_jax(self, *, sharding: Any = None, device_memory: int | str | None = None) -> Any:
        """Return batches as jax Arrays, on a device or spread by a sharding; each `iter` is an epoch.

        On the CPU they are our memory, not a copy. Data that fits `device_memory` is copied to the
        device once, and gathered there.
        """
        from penstock.feeds.jax.feed import jax_feed
        from penstock.feeds.recipe import Recipe

        recipe = Recipe(self.node, self.options)
        return jax_feed(recipe, sharding=sharding, device_memory=device_memory)

    def to_torch(self, *, device: Any = None, device_memory: int | str | None = None) -> Any:
        """Return batches as torch tensors, to stand where a DataLoader would; each `iter` is an epoch.

        On the CPU they are our memory, not a copy. Data that fits `device_memory` is copied to the
        device once, and gathered there.
        """
        from penstock.feeds.recipe import Recipe
        from penstock.feeds.torch.feed import torch_feed

        recipe = Recipe(self.node, self.options)
        return torch_feed(recipe, device=device, device_memory=device_memory)

    def to_tf(
        self,
        *,
        device: str | None = None,
        state: dict[str, Any] | None = None,
        device_memory: int | str | None = None,
    ) -> Any:
        """Return a `tf.data.Dataset` of the batches; each iteration of it is the next epoch.

        Data that fits `device_memory` is copied to the device once, and gathered there.
        """
        from penstock.feeds.recipe import Recipe
        from penstock.feeds.tf.feed import tf_feed

        recipe = Recipe(self.node, self.options)
        return tf_feed(recipe, device=device, state=state, device_memory=device_memory)

    def _with(self, stage: Stage) -> "Dataset":
        node = stage.build(self.node)
        on_error = self.options.on_error
        return Dataset(node if on_error is None else node.with_errors(on_error), self.options)


def _open(plan: Plan, state: dict[str, Any] | None) -> Stream:
    return Stream(plan, state=state)


def checked_seed(seed: int | None) -> int:
    """Return a seed that is a whole number below 2**63, drawn if there is none."""
    if seed is None:
        return int.from_bytes(os.urandom(8), "little") >> 1
    number = whole_number("seed", seed, least=0)
    if number >= 1 << 63:
        raise ValueError(f"seed must be below 2**63, got {number}.")
    return number
