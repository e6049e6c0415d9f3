"""The Dataset: rows and what happens to them, declared; nothing is read until it is iterated."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, Never

from penstock.core.arguments import local_path, one_of, whole_number
from penstock.core.habits import METHODS, attribute_words, method_names, teaching
from penstock.core.lazy import lazy
from penstock.core.rows import Node
from penstock.core.seeds import checked_seed
from penstock.engine.plan import Options
from penstock.errors import user_site, user_sites, warn_user
from penstock.memory import parse_nbytes
from penstock.ranks.found import find_rank
from penstock.stages.base.functions import UserFunction
from penstock.stages.batch import Batch
from penstock.stages.cache import Cache
from penstock.stages.enumerate import Enumerate
from penstock.stages.filter import Filter
from penstock.stages.map import Map
from penstock.stages.padded_batch import PaddedBatch
from penstock.stages.repeat import Repeat
from penstock.stages.shard import Shard
from penstock.stages.shuffle import Shuffle
from penstock.stages.skip import Skip
from penstock.stages.take import Take
from penstock.stages.unbatch import Unbatch
from penstock.stages.window import Window
from penstock.subsets import Subsets, warn_of_leak

if TYPE_CHECKING:
    from penstock.core import digests
    from penstock.io import paths as io_paths
    from penstock.io.paths import PathLike
    from penstock.stages import distribute
else:
    # Together they take a quarter of the time of `import penstock`, and only ranks need them.
    digests = lazy("penstock.core.digests")
    distribute = lazy("penstock.stages.distribute")
    io_paths = lazy("penstock.io.paths")


class Dataset(Subsets):
    """Rows, and a chain of stages. Immutable: every method returns a new one and reads nothing.

    >>> import numpy as np, penstock as ps
    >>> ds = ps.from_arrays((np.arange(6), np.arange(6) * 10)).batch(4)
    >>> for x, y in ds:
    ...     print(x, y)
    [0 1 2 3] [ 0 10 20 30]
    [4 5] [40 50]
    """

    __slots__ = ()

    def __init__(self, node: Node | None = None, options: Options | None = None) -> None:
        """Hold what a function of the module has made; a user who calls this is told of those."""
        if not isinstance(node, Node) or options is None:
            raise TypeError(
                "a Dataset is made by a function: write ps.from_arrays((x, y)), ps.from_files(paths) or "
                "ps.from_generator(function, spec)."
            )
        super().__init__(node, options)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the declaration; how often it was iterated stays behind."""
        return Dataset, (self.node, self.options)

    def __getattr__(self, name: str) -> Never:
        """Say what to write instead of a name that other libraries have."""
        raise AttributeError(attribute_words("a Dataset", name, method_names(type(self)), METHODS))

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
                "iterate, or count with ds.reduce(0, lambda count, row: count + 1)."
            )
        if self.node.is_endless:
            raise TypeError("the length is infinite: repeat() has no count; use .take(n).")
        return self.node.num_rows

    def __getitem__(self, row: Any) -> Never:
        """Say what to write instead: a loop of PyTorch's DataLoader asks for rows by their numbers."""
        raise TypeError(
            f"a Dataset has no rows by number, got [{row!r}]: next(iter(ds.skip(i))) is row i.\n"
            "  wrong: DataLoader(ds, batch_size=32, shuffle=True)\n"
            "  right: ds.shuffle(seed=0).batch(32).to_torch(), which takes the place of a DataLoader"
        )

    def __bool__(self) -> bool:
        """Whether there is a dataset: always, as in tf.data, whatever its length."""
        return True

    def __repr__(self) -> str:
        return f"<Dataset {self.node.describe()}: {self.spec}>"

    # -- what happens to the rows -------------------------------------------------------------

    @teaching
    def shuffle(
        self,
        *positional: Never,  # A buffer size, as tf.data has it, gets an error that says what to write instead.
        seed: int | None = 0,
        exact: bool = False,
        window: int | str | None = None,
    ) -> "Dataset":
        """Return the rows in a seeded random order, new each epoch.

        Arrays in memory, and rows of 64 KB and more, are shuffled exactly, at no cost in memory. Smaller
        rows on storage are shuffled in windows: random blocks of about 64 KB each (all fields together), or
        the chunks that they are stored in, mixed over `window` bytes. Rows that can only be read forward are
        mixed within `window` bytes of rows that follow each other. `explain()` says which it is, and its
        mixing, from 0 (the order of the file) to 1 (a true shuffle). Mixing is measured on the worst data:
        all rows of a block alike. Average every 100 rows that follow each other; mixing is how much these
        averages differ after a true shuffle, divided by how much they differ after this one. Below 0.5, a
        warning says so when the first stream opens, and so it does for rows that can only be read forward,
        if they are more than a window.

        Args:
            positional: Nothing: a shuffle needs no buffer size.
            seed: The order it stands for; None draws a seed now, and keeps it.
            exact: The very order that the rows would have in memory, for data that does not fit there:
                each epoch writes it to scratch files once, and reads them back. Needs random access.
            window: How far rows are mixed where they are not shuffled exactly, in bytes or like "1GB";
                by default 64 MB. A window is held in memory, and the next one as well if there is room.

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

    @teaching
    def map(
        self, map_func: Callable[..., Any], *, seed: int | None = None, spec: Any = None
    ) -> "Dataset":
        """Return `map_func` of every row; after `batch`, of every batch.

        Args:
            map_func: Gets the parts of a tuple as arguments, anything else as one.
            seed: With one, the function gets a NumPy generator as its last argument, which depends on
                seed, epoch and row alone.
            spec: The nest of `ArraySpec` that it returns. Without it, the function is run once now, on
                the first row, to learn that.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(3)).map(lambda x: x * x)))
        [0, 1, 4]
        """
        checked = None if seed is None else whole_number("seed", seed, least=0)
        return self._with(Map(UserFunction(map_func, "map", user_site()), checked, spec))

    @teaching
    def filter(self, predicate: Callable[..., Any]) -> "Dataset":
        """Return the rows for which `predicate` is true; the length is then unknown.

        Args:
            predicate: Gets a row as the function of `map` does, and returns one True or False.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(6)).filter(lambda x: x % 2 == 0)))
        [0, 2, 4]
        """
        if isinstance(getattr(self.node, "stage", None), Enumerate):
            warn_of_leak(self, "filter(...) of the numbers of enumerate()")
        return self._with(Filter(UserFunction(predicate, "filter", user_site())))

    @teaching
    def batch(self, batch_size: int, drop_remainder: bool = False) -> "Dataset":  # noqa: FBT001, FBT002  # As in tf.data.
        """Return batches of `batch_size` rows, stacked.

        Args:
            batch_size: The rows of a batch.
            drop_remainder: Whether a last batch that would be shorter is left out.

        >>> import numpy as np, penstock as ps
        >>> [batch.tolist() for batch in ps.from_arrays(np.arange(5)).batch(2)]
        [[0, 1], [2, 3], [4]]
        """
        size = whole_number("batch_size", batch_size, least=1)
        return self._with(Batch(size, bool(drop_remainder)))

    @teaching
    def padded_batch(
        self,
        batch_size: int,
        *,
        padding_values: Any = None,
        drop_remainder: bool = False,
        lengths: bool = False,
    ) -> "Dataset":
        """Return batches of rows whose shapes differ, padded at their ends to the longest.

        Args:
            batch_size: The rows of a batch.
            padding_values: The value to pad with (0, empty text), or a nest of values like a row.
            drop_remainder: Whether a last batch that would be shorter is left out.
            lengths: Whether the result is (batch, lengths): a nest like a row with the true length of
                each row, for every field that is padded, and () for the others. A field with k open
                dimensions has k lengths a row.

        >>> import numpy as np, penstock as ps
        >>> rows = [np.array([1, 2, 3]), np.array([4])]
        >>> next(iter(ps.from_arrays(rows).padded_batch(2))).tolist()
        [[1, 2, 3], [4, 0, 0]]
        """
        size = whole_number("batch_size", batch_size, least=1)
        return self._with(PaddedBatch(size, drop_remainder, padding_values, lengths=lengths))

    @teaching
    def window(self, size: int, shift: int | None = None, stride: int = 1) -> "Dataset":
        """Return windows of `size` rows of a series, as arrays with a first axis more.

        Rows are not copied, but gathered from where they are when a window is read, so that windows can
        be shuffled and batched like rows. Windows that would be cut short are left out; tf.data keeps
        those unless `drop_remainder=True`, and its windows are datasets. Needs random access.

        Args:
            size: The rows of a window.
            shift: How many rows further each window starts; None is `size`, so that none overlap.
            stride: How many rows further the next row of the same window is.

        >>> import numpy as np, penstock as ps
        >>> [w.tolist() for w in ps.from_arrays(np.arange(6)).window(3, shift=2)]
        [[0, 1, 2], [2, 3, 4]]
        >>> [w.tolist() for w in ps.from_arrays(np.arange(6)).window(3, 1, 2)]
        [[0, 2, 4], [1, 3, 5]]
        """
        length = whole_number("size", size, least=1)
        step = length if shift is None else whole_number("shift", shift, least=1, most=2**62)
        return self._with(Window(length, step, whole_number("stride", stride, least=1)))

    @teaching
    def unbatch(self) -> "Dataset":
        """Return the rows along the first axis of every field.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(4).reshape(2, 2)).unbatch()))
        [0, 1, 2, 3]
        """
        return self._with(Unbatch())

    @teaching
    def take(self, count: int) -> "Dataset":
        """Return the first `count` rows (or batches); -1 is all of them.

        >>> import numpy as np, penstock as ps
        >>> len(ps.from_arrays(np.arange(10)).take(3))
        3
        """
        return self._with(Take(whole_number("count", count, least=-1)))

    @teaching
    def skip(self, count: int) -> "Dataset":
        """Return all rows (or batches) after the first `count`; -1 skips all of them.

        Behind `shuffle` it warns: each epoch skips other rows. Use `split` to hold rows back for validation.

        >>> import numpy as np, penstock as ps
        >>> len(ps.from_arrays(np.arange(10)).skip(3))
        7
        """
        number = whole_number("count", count, least=-1)
        if number > 0:
            warn_of_leak(self, f"skip({number})")
        return self._with(Skip(number))

    @teaching
    def repeat(self, count: int | None = None) -> "Dataset":
        """Return `count` passes over the rows, each shuffled anew; None, or -1, is passes without end.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(2)).repeat(2)))
        [0, 1, 0, 1]
        """
        number = None if count is None else whole_number("count", count, least=-1)
        return self._with(Repeat(None if number == -1 else number))

    @teaching
    def shard(self, num_shards: int, index: int) -> "Dataset":
        """Return rows index, index + num_shards, index + 2 * num_shards, and so on.

        Args:
            num_shards: How many shards the rows are dealt to, one after the other.
            index: Which of them this is, from 0 to num_shards - 1.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(7)).shard(3, 1)))
        [1, 4]
        """
        number = whole_number("num_shards", num_shards, least=1, most=2**62)
        return self._with(Shard(number, whole_number("index", index, least=0)))

    @teaching
    def distribute(
        self,
        *,
        rank: int | None = None,
        world: int | None = None,
        uneven: Literal["drop", "pad"] | None = None,
        static: bool = False,
    ) -> "Dataset":
        """Return, of every global batch, the rows of one rank: `ds.batch(B).distribute()`, where B counts all ranks.

        Global batch k has the same rows whatever the world; rank r gets rows r, r + world, r + 2 * world, ... of it.
        All ranks have the same number of steps. A state counts global batches, so that any world goes on where another
        stopped. Shuffles of files load only what their rank needs, where the world divides 192; `explain()` says how
        much is read.

        Args:
            rank: Which of the data-parallel ranks this process is; several processes may share one. By default found
                from torch.distributed, jax.distributed, tf.distribute, Ray Train, or the variables TF_CONFIG or RANK
                and WORLD_SIZE.
            world: How many ranks there are.
            uneven: What becomes of a last global batch that is not whole. "drop" leaves it out. "pad" fills it up to
                the next multiple of the world with repeats, and gives pairs (batch, weight): repeats weigh 0, and the
                others so much that the mean of weight * loss over all ranks is that of the real rows. `to_keras`
                hands the weight on as `sample_weight`. Without either, such a batch is an error.
            static: Whether it is filled up to B instead, for compiled shapes; with "pad".

        >>> import numpy as np, penstock as ps
        >>> ds = ps.from_arrays(np.arange(8)).batch(4)
        >>> [batch.tolist() for batch in ds.distribute(rank=1, world=2)]
        [[1, 3], [5, 7]]
        """
        if uneven is not None:
            one_of("uneven", uneven, ("drop", "pad"))
        if not isinstance(static, bool):
            raise TypeError(f"static must be True or False, got {static!r}.")
        if static and uneven != "pad":
            raise ValueError(
                'static=True fills a short batch up: it needs uneven="pad", '
                f"got uneven={uneven!r}. Without it all batches are whole."
            )
        return self._with(placed(rank, world, uneven, static=static))

    @teaching
    def enumerate(self, start: int = 0) -> "Dataset":
        """Return (number, row) pairs, the number an int64 that begins with `start`.

        >>> import numpy as np, penstock as ps
        >>> [(int(i), int(x)) for i, x in ps.from_arrays(np.array([7, 8])).enumerate()]
        [(0, 7), (1, 8)]
        """
        return self._with(Enumerate(whole_number("start", start, least=-(2**63), most=2**63 - 1)))

    @teaching
    def cache(self, path: "PathLike | None" = None, *, key: str | None = None) -> "Dataset":
        """Return the same rows, kept after they were first read, in the order of epoch 0.

        Args:
            path: Without one, rows are kept in memory: they count against the memory budget, and are
                refused if they do not fit. With one they are written to that folder by the first pass,
                and read from there by the next ones and by other processes. A folder is refused unless it
                is proven to be made from the same files, arrays, stages and functions.
            key: What you call this version of your functions, such as "v1". With it they are not compared,
                and neither is what can't be: generators, models, files without a version. Change it when
                these change.

        >>> import numpy as np, penstock as ps
        >>> list(map(int, ps.from_arrays(np.arange(3)).map(lambda x: x + 1).cache()))
        [1, 2, 3]
        """
        if key is not None and (path is None or not isinstance(key, str)):
            raise TypeError(f"key must be a str, for a cache with a path, got {key!r}.")
        folder = None if path is None else str(local_path("path", io_paths.local_target(path)))
        return self._with(Cache(folder, key))

    @teaching
    def prefetch(self, buffer_size: int | None = None) -> "Dataset":
        """Say how many batches are made ahead; the same as `with_options(prefetch=...)`.

        Args:
            buffer_size: How many. 0 makes each batch when it is asked for. None, or -1 as in tf.data, is
                found by itself: work is done ahead without this call, too.
        """
        return self.with_options(prefetch=-1 if buffer_size is None else buffer_size)

    @teaching
    def with_options(
        self,
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        prefetch: int | None = None,
        processes: int | None = None,
        retries: int | None = None,
        scratch: "PathLike | None" = None,
        on_error: Literal["raise", "skip"] | None = None,
        max_errors: int | None = None,
        remote_cache: int | str | None = None,
        watch: bool | None = None,
    ) -> "Dataset":
        """Say how the whole chain runs, wherever this stands in it; of two calls the last one wins.

        Args:
            memory: The budget of all that the library holds, in bytes or like "512MB"; by default half
                of what is free to this process, and at most 2 GiB.
            threads: How many work ahead; 0 is none. By default one a core, tuned while it runs.
            prefetch: How many batches are made ahead; 0 makes each when it is asked for, -1 is found by itself.
            processes: How many run the functions of `map` and `filter`; 0 runs them on threads. By
                default measured: a function that holds the interpreter lock goes to processes.
            retries: How often a block is tried again when such a process dies.
            scratch: The folder for what `shuffle(exact=True)` writes, and shards on their way to a URL; by default
                the temporary one. The cache of remote files is in it, too, if it is given.
            on_error: "skip" skips bad rows, and counts and lists them in the report. What can have bad rows
                is then read forward, without a length.
            max_errors: How many errors may be skipped (a chunk or file that can't be read is one); the
                next is raised.
            remote_cache: The most bytes of files behind URLs that are kept on this machine, like "50GB"; 0 is none,
                which is the default. A fixed part of the blocks is kept, as many as fit, in the user's cache directory
                or under `scratch`, for the next epoch and for other processes; docs/object_stores.md tells more.
            watch: Whether to show what is read on a live page, for this machine only: its address is printed when
                the first stream is opened. `penstock watch` shows it, too, also after the end; docs/live_page.md.

        >>> import numpy as np, penstock as ps
        >>> ps.from_arrays(np.arange(3)).with_options(memory="16MB").explain().budget_nbytes
        16000000
        """
        options = Options.checked(
            memory=memory,
            threads=threads,
            prefetch=prefetch,
            processes=processes,
            retries=retries,
            scratch=scratch,
            on_error=on_error,
            max_errors=max_errors,
            remote_cache=remote_cache,
            watch=watch,
        )
        node = self.node if on_error is None else self.node.with_errors(on_error)
        return Dataset(node, self.options.updated(options))


_sites: Counter[str] = Counter()
"""How often `distribute` was called from the same lines of the user's."""


def placed(
    rank: int | None, world: int | None, uneven: Literal["drop", "pad"] | None, *, static: bool
) -> "distribute.Distribute":
    """Return the declaration of one rank's part; the rank is found if it is not given."""
    if (rank is None) != (world is None):
        raise ValueError(
            f"distribute takes rank and world together, or finds both, got rank={rank!r} and world={world!r}."
        )
    # All lines that led here: a rank that evaluates alone calls the same function, but from another line.
    sites = list(user_sites())
    site = f"{sites[0] if sites else ''} {digests.digest(sites)}"
    _sites[site] += 1
    key = f"{site} #{_sites[site]}"
    if rank is None:
        found = find_rank()
        if found.caution:
            warn_user(found.caution)
        return distribute.Distribute(
            found.rank,
            found.world,
            uneven,
            static,
            found.replicas,
            found.engine,
            is_found=True,
            key=key,
        )
    size = whole_number("world", world, least=1)
    number = whole_number("rank", rank, least=0)
    if number >= size:
        raise ValueError(f"distribute needs 0 <= rank < world, got rank={number} and world={size}.")
    return distribute.Distribute(number, size, uneven, static, _replicas(), key=key)


def _replicas() -> int:
    """Return how many devices share the rows of this process, whatever its rank."""
    try:
        return find_rank().replicas
    except ValueError:
        return 1  # What engines say of the rank does not matter: the user has said it.
