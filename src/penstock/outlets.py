"""Where the rows of a dataset go: a loop, a folder, a number, or a framework."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from penstock.core import idle
from penstock.core.arguments import local_path, one_of, whole_number
from penstock.core.askers import asking_keras
from penstock.core.habits import teaching
from penstock.core.lazy import lazy
from penstock.core.rows import Node, refuse_endless
from penstock.core.state import StateDict
from penstock.engine.functions.trays import function_nodes
from penstock.engine.plan import Explanation, Options, explain, make_plan
from penstock.engine.plan.explain import shown
from penstock.engine.stream import Stream, open_stream
from penstock.engine.stream.statistics import in_any_order, statistics

if TYPE_CHECKING:
    from penstock import writers
    from penstock.engine.stream import first_rows
    from penstock.feeds.jax.feed import JaxFeed
    from penstock.feeds.keras.feed import KerasFeed
    from penstock.feeds.keras.pydataset import PyDatasetFeed
    from penstock.feeds.tf.feed import TfFeed
    from penstock.feeds.torch.feed import TorchFeed
    from penstock.io import paths as io_paths
    from penstock.io.paths import PathLike
    from penstock.reports.peek import Peek
else:
    first_rows = lazy("penstock.engine.stream.first_rows")
    io_paths = lazy("penstock.io.paths")  # What most programs never use.
    writers = lazy("penstock.writers")

T = TypeVar("T")


class Outlets:
    """The half of a `Dataset` that reads it; the other half, in `dataset.py`, declares it."""

    __slots__ = ("__weakref__", "_epochs", "node", "options")

    def __init__(self, node: Node, options: Options) -> None:
        self.node = node
        self.options = options
        self._epochs = itertools.count()

    @property  # type: ignore[misc]  # It can't be set, and nobody does.
    def __class__(self) -> type:
        """Its class. Keras asks for it when it is given a dataset in place of a feed: the moment to refuse that."""
        asking = asking_keras()
        if asking:
            feed = "to_keras()" if asking == "keras" else "to_tf()"
            batch = "" if self.node.is_batched else "batch(32)."
            raise TypeError(
                f"{asking} can't read a penstock dataset itself: give it a feed of one.\n"
                f"  wrong: model.fit(ds)\n  right: model.fit(ds.{batch}{feed})"
            )
        return type(self)

    @teaching
    def explain(self) -> Explanation:
        """Return what iterating will do: stages, sizes, threads and bytes. Reads nothing."""
        return explain(make_plan(self.node, self.options))

    def _repr_html_(self) -> str:
        return shown(self.node)

    @teaching
    def peek(self, num_rows: int = 5) -> "Peek":
        """Return the first rows of epoch 0, and a few statistics of them: a table to print, or for a notebook.

        In a notebook, images are pictures, and series lines. Of a dataset of batches it is the first rows of the first
        batch. Reads no more than that, on the calling thread; rows that can only be read forward are not shuffled for
        it. Takes the memory of the rows.

        Args:
            num_rows: How many.

        >>> import numpy as np, penstock as ps
        >>> print(ps.from_arrays({"x": np.arange(40.0).reshape(4, 10)}).batch(4).peek(2))
        batch(4): the first 2 of 4 rows of batch 0 of 1
             x float64[10]
          0  ▁▁▂▃▄▅▆▇██ 0..9 (10)
          1  ▁▁▂▃▄▅▆▇██ 10..19 (10)
             0 to 19, mean 9.5
        """
        number = whole_number("num_rows", num_rows, least=1)
        return first_rows.peek(self.node, number, self.options.memory)

    def __iter__(self) -> Iterator[Any]:
        return self.stream(epoch=next(self._epochs))

    def stream(self, *, epoch: int = 0, state: StateDict | None = None) -> Stream:
        """Return one epoch as an iterator with `state()`, `report()` and `close()`.

        Args:
            epoch: Which one; each is shuffled anew.
            state: Where to go on, from `state()` of a stream or a feed of the same dataset.

        >>> import numpy as np, penstock as ps
        >>> ds = ps.from_arrays(np.arange(4)).batch(2)
        >>> with ds.stream() as stream:
        ...     first = next(stream)
        ...     state = stream.state()
        >>> next(ds.stream(state=state)).tolist()
        [2, 3]
        """
        number = whole_number("epoch", epoch, least=0)
        return open_stream(self.node, self.options, epoch=number, state=state, by_element=True)

    def close(self) -> None:
        """End worker processes that wait for the next epoch; without this they do so by themselves after 10 seconds.

        Streams that are open go on, and the dataset can be read again: its next epoch starts new processes. Processes
        belong to the stage that calls the function: datasets that were made of one dataset share them.

        >>> import numpy as np, penstock as ps
        >>> ds = ps.from_arrays(np.arange(4)).map(lambda x: x + 1).with_options(processes=1)
        >>> [[int(x) for x in ds] for epoch in range(2)]  # by one process
        [[1, 2, 3, 4], [1, 2, 3, 4]]
        >>> ds.close()
        """
        idle.close(function_nodes(self.node))

    @teaching
    def reduce(self, initial_state: T, reduce_func: Callable[[T, Any], T]) -> T:
        """Return `reduce_func(... reduce_func(reduce_func(initial_state, row 0), row 1) ...)`.

        Args:
            initial_state: What the first call gets.
            reduce_func: Takes the result so far and an element; returns the next result.

        >>> import numpy as np, penstock as ps
        >>> int(ps.from_arrays(np.arange(4)).reduce(0, lambda total, x: total + x))
        6
        """
        if callable(initial_state) and not callable(reduce_func):
            raise TypeError(
                "reduce takes the initial state first, as in tf.data.\n"
                "  wrong: ds.reduce(lambda total, x: total + x, 0)\n"
                "  right: ds.reduce(0, lambda total, x: total + x)"
            )
        refuse_endless(self.node, "reduce")
        result = initial_state
        with self.stream() as stream:
            for element in stream:
                result = reduce_func(result, element)
        return result

    @teaching
    def statistics(self) -> Any:
        """Return count, mean, variance, minimum, maximum and classes of every field, in one pass.

        The result is a nest like a row. `classes` tells how many rows have each value, for fields of one whole number,
        bool or text a row; it is None, and `has_many_classes` is True, if there are more than 1,000 values. Takes the
        memory of a stream. What only orders rows, as `shuffle` does, is left out.

        >>> import numpy as np, penstock as ps
        >>> x, label = ps.from_arrays(
        ...     (np.array([1.0, 3.0, 2.0]), ["cat", "dog", "cat"])
        ... ).statistics()
        >>> float(x.mean), float(x.maximum), label.classes
        (2.0, 3.0, {'cat': 2, 'dog': 1})
        """
        refuse_endless(self.node, "statistics")
        node = in_any_order(self.node)
        return statistics(open_stream(node, self.options), node)

    @teaching
    def write(
        self,
        path: "PathLike",
        *,
        format: Literal["npy", "parquet", "tfrecord", "zarr"] | None = None,
        shard_rows: int | None = None,
        shards: int | None = None,
        overwrite: bool = False,
        progress: bool | None = None,
        engine: Literal["local", "ray"] = "local",
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Write all rows of epoch 0 to a folder, which appears when it is whole.

        Takes the memory of a stream, and a few MB (of Zarr: that of a shard); with `engine="ray"`, that of a stream
        for each task.

        Args:
            path: The folder to make, or the URL of one in an object store: `s3://bucket/prefix`. There its files appear
                one by one, and it can be read once the last is there; docs/object_stores.md tells more.
            format: By default what the ending of `path` says (`.parquet`, `.zarr`, `.tfrecord`); "npy" for a name
                without one. "npy" makes plain `.npy` shards and a `manifest.json`; `from_files(path)` reads them
                back with the nest they had. After an interruption the same call goes on after the last
                finished shard, if files, arrays and functions are proven to be the same; else it starts
                over, with a warning. The others always start over. "parquet" makes Parquet files, which pyarrow,
                pandas and others read as one table: a leaf of the nest is a column, an axis a list. "zarr" makes one
                store (Zarr 3): an array for each field; text, and rows that differ in shape, are values and
                offsets, as in `.npy` shards. `from_files(path)` gives both back with nests and dtypes as they were;
                a dtype that the format does not have is refused, with the cure. "tfrecord" makes a
                tf.train.Example of each row, for `from_tfrecord(path)` and for TensorFlow.
            shard_rows: The rows of a file; by default those of 256 MB. (Of Zarr: of 16 MB, and rounded up to whole
                chunks, which have 256 KB.)
            shards: The number of files, instead of `shard_rows`; not for Zarr.
            overwrite: Whether a folder that penstock wrote is replaced, once the new one is whole. A folder
                with anything else in it is refused.
            progress: Whether to show a bar; by default if rich is installed and stderr is a terminal.
            engine: "local" writes in this process. "ray" writes the same bytes by tasks of Ray, a shard each: on the
                Ray that is initialised here or running, else on a local one. `path` must be one that all nodes share,
                and the rows must have random access; docs/cluster.md tells more.
            storage_options: What fsspec needs to know to write to a URL, such as credentials; never printed.

        >>> import numpy as np, penstock as ps, tempfile
        >>> folder = tempfile.mkdtemp() + "/out"
        >>> ps.from_arrays((np.arange(3), ["a", "b", "c"])).write(folder)
        >>> [(int(x), y) for x, y in ps.from_files(folder)]
        [(0, 'a'), (1, 'b'), (2, 'c')]
        """
        if format is not None:
            one_of("format", format, writers.WRITERS)
        one_of("engine", engine, writers.ENGINES)
        if self.node.is_endless:
            raise ValueError("rows without end can't be written: use .take(n) first.")
        rows = None if shard_rows is None else whole_number("shard_rows", shard_rows, least=1)
        if shards is not None:
            if shard_rows is not None or self.node.num_rows is None:
                raise ValueError(
                    "shards needs a dataset with a length, and no shard_rows: one follows from the other."
                )
            rows = max(1, -(-self.node.num_rows // whole_number("shards", shards, least=1)))
        url = io_paths.remote_target(path)
        target = local_path("path", "." if url else io_paths.local_target(path))
        job = writers.Job(
            self.node, self.options, target, rows, overwrite, progress, shards, engine
        )
        if url:
            job = replace(job, url=url, storage_options=io_paths.own_options(storage_options))
        writers.write(job, writers.format_of(url or str(target), format))

    @teaching
    def to_keras(
        self,
        *,
        class_weight: "dict[int, float] | Literal['balanced'] | None" = None,
        device_memory: int | str | None = None,
    ) -> "KerasFeed | PyDatasetFeed":
        """Return what `model.fit`, `evaluate` and `predict` take as data, on each backend of Keras.

        Each epoch of `fit` is the next one of the dataset: `model.fit(ds.to_keras(), epochs=3)`. It
        takes the memory of the stream; nothing is copied on the CPU.

        Args:
            class_weight: The weight of each class, as `fit` takes it; "balanced" makes all classes count alike, by one
                pass over the labels when this is called. Give it here or to `fit`. A class that no label can be, or
                that the model has no output for, is refused; one that no label of an epoch has is warned of.
            device_memory: Data that fits it is copied to the device once, and gathered there; in bytes
                or like "2GB". By default half of what an accelerator has free.
        """
        from penstock.feeds.keras.feed import keras_feed

        return keras_feed(self, class_weight=class_weight, device_memory=device_memory)

    @teaching
    def to_jax(self, *, sharding: Any = None, device_memory: int | str | None = None) -> "JaxFeed":
        """Return batches as jax Arrays; each `iter` is the next epoch.

        On the CPU they are our memory, not a copy.

        A sharding over several processes makes one global array of the parts of all ranks of `distribute`: the same
        rows as in one process, those of rank 0 first, then those of rank 1, and so on. Processes whose devices get the
        same rows are one rank.

        Args:
            sharding: A device, a sharding that spreads each batch, or a nest of them like a batch; by default JAX's own
                choice.
            device_memory: Data that fits it is copied to the device once, and gathered there.
        """
        from penstock.feeds.jax.feed import jax_feed

        return jax_feed(self, sharding=sharding, device_memory=device_memory)

    @teaching
    def to_torch(
        self, *, device: Any = None, device_memory: int | str | None = None
    ) -> "TorchFeed":
        """Return batches as torch tensors, to stand where a DataLoader would; each `iter` is an epoch.

        On the CPU they are our memory, not a copy.

        Args:
            device: A torch.device or its name; by default the CPU.
            device_memory: Data that fits it is copied to the device once, and gathered there.
        """
        from penstock.feeds.torch.feed import torch_feed

        return torch_feed(self, device=device, device_memory=device_memory)

    @teaching
    def to_tf(
        self, *, device: str | None = None, device_memory: int | str | None = None
    ) -> "TfFeed":
        """Return a `tf.data.Dataset` of the batches; each iteration of it is the next epoch.

        TensorFlow does not look for Ctrl-C while it waits for a batch: where a function of yours does not return,
        `close()` of what this returns, called on another thread, ends the wait.

        Args:
            device: The name of a device that batches are copied to; by default they stay on the CPU.
            device_memory: Data that fits it is copied to the device once, and gathered there.
        """
        from penstock.feeds.tf.feed import tf_feed

        return tf_feed(self, device=device, device_memory=device_memory)
