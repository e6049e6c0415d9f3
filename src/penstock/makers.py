"""Where datasets come from: arrays, files, generators, and other datasets."""

import builtins
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from penstock.core.lazy import lazy
from penstock.core.rows import Node
from penstock.dataset import Dataset, checked_seed
from penstock.engine.plan import Options
from penstock.errors import user_site
from penstock.sources.arrays import Arrays
from penstock.stages.base.stage import whole_number
from penstock.stages.concatenate import concatenated
from penstock.stages.mix import Mixing, mixed
from penstock.stages.zip import zipped

if TYPE_CHECKING:
    from penstock.io.paths import PathLike
    from penstock.sources import files, generator
    from penstock.sources.tfrecord import rows as tfrecord
else:
    # A program uses one or two of them: `import penstock` does not wait for the others.
    files = lazy("penstock.sources.files")
    generator = lazy("penstock.sources.generator")
    tfrecord = lazy("penstock.sources.tfrecord.rows")


def from_arrays(nest: Any) -> Dataset:
    """Return a dataset whose row i is element i of every array of a nest.

    Takes ndarrays of any dtype, memmaps, tensors, anything with shape, dtype and slicing, and
    lists of bytes, str or arrays. Nothing is copied or read.

    >>> import numpy as np, penstock as ps
    >>> len(ps.from_arrays({"x": np.zeros((10, 3)), "y": np.zeros(10)}))
    10
    """
    return Dataset(Arrays(nest), Options())


def from_generator(
    function: Callable[[], Iterable[Any]] | Iterable[Any],
    spec: Any,
    *,
    length: int | None = None,
    rows_per_item: str = "one",
) -> Dataset:
    """Return the rows that a generator yields; it is started anew for every epoch.

    `function` returns an iterator (or is an iterable object). Each row is checked against `spec`, a
    nest of `ArraySpec`. `length` says how many rows there are, if that is known. With
    `rows_per_item="many"` an item is a block of rows: every field has a first axis more.

    >>> import penstock as ps
    >>> def squares():
    ...     for number in range(4):
    ...         yield number, float(number) ** 2
    >>> spec = (ps.ArraySpec((), "int64"), ps.ArraySpec((), "float32"))
    >>> [y.tolist() for _, y in ps.from_generator(squares, spec).batch(2)]
    [[0.0, 1.0], [4.0, 9.0]]
    """
    number = None if length is None else whole_number("length", length, least=0)
    site = user_site()
    return Dataset(
        generator.generated(function, spec, length=number, rows_per_item=rows_per_item, site=site),
        Options(),
    )


def interleave(
    functions: Sequence[Callable[[], Iterable[Any]]], spec: Any, *, seed: int | None = 0
) -> Dataset:
    """Return the rows of several generators, each on a thread of its own, in a seeded pattern.

    The order is the same whichever of them is faster. It ends when all have ended.

    >>> import penstock as ps
    >>> ds = ps.interleave([lambda: iter([1, 1]), lambda: iter([2, 2])], ps.ArraySpec((), "int64"))
    >>> sorted(map(int, ds))
    [1, 1, 2, 2]
    """
    return mix([from_generator(one, spec) for one in functions], seed=seed, stop="all")


def from_files(
    paths: "PathLike | Iterable[PathLike]",
    fields: Any = None,
    *,
    format: str | None = None,
    spec: Any = None,
    size: tuple[int, int] | None = None,
    on_error: str = "raise",
) -> Dataset:
    """Return the rows of files, as they lie there, in any of the formats.

    `paths` is a path, a list, a glob, a folder or a URL; files come one after the other. `.npy`,
    `.npz`, HDF5, Zarr, Parquet and Arrow files can be shuffled; CSV and text are read forward. A
    folder of images (one folder a class) gives `image` and `label`; `size` resizes them.

    `fields` names arrays or columns, as a nest like the row that is wanted. A raw file needs
    `format="raw"` and the `spec` of a row; a CSV file takes a `spec` of {column: dtype}. Reads
    headers, no data.

    A file that can't be opened, or is not like the first, is an error here; `on_error="skip"` leaves
    it out and names it in each report. What turns out bad later is a matter of `with_options`.

    >>> import numpy as np, penstock as ps, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(3))
    >>> np.save(f"{folder}/b.npy", np.arange(3, 5))
    >>> list(map(int, ps.from_files(f"{folder}/*.npy")))
    [0, 1, 2, 3, 4]
    """
    node = files.open_files(paths, fields, format=format, spec=spec, size=size, on_error=on_error)
    return Dataset(node, Options())


def from_tfrecord(
    paths: "PathLike | Iterable[PathLike]",
    features: Any = None,
    *,
    compression: str | None = None,
    verify: bool = True,
    raw: bool = False,
    index: bool = True,
) -> Dataset:
    """Return the tf.train.Examples of TFRecord files, decoded without TensorFlow.

    `features` is a nest of `FixedFeature`, `VarFeature` and `TensorFeature`, by name; without it they
    are inferred from the first records. `raw=True` gives each record as bytes. Files packed with
    GZIP or ZLIB are known by their first bytes, and read forward; so are others with `index=False`.
    Else one scan finds where records begin (8 bytes of memory each), and is kept in the user's cache
    directory: rows then have numbers, a length, and an exact order. `verify` checks both checksums.

    >>> import numpy as np, penstock as ps, tempfile
    >>> folder = tempfile.mkdtemp() + "/out"
    >>> ps.from_arrays({"x": np.arange(6.0, dtype="float32")}).write(folder, format="tfrecord")
    >>> ds = ps.from_tfrecord(folder, {"x": ps.FixedFeature((), "float32")})
    >>> [batch["x"].tolist() for batch in ds.batch(4)]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """
    node = tfrecord.open_tfrecord(
        paths, features, compression=compression, verify=verify, raw=raw, index=index
    )
    return Dataset(node, Options())


def zip(*datasets: Dataset, strict: bool = True) -> Dataset:  # The name users know.
    """Return rows that are tuples of one row of each dataset.

    >>> import numpy as np, penstock as ps
    >>> a, b = ps.from_arrays(np.arange(2)), ps.from_arrays(np.arange(2) * 10)
    >>> [(int(x), int(y)) for x, y in ps.zip(a, b)]
    [(0, 0), (1, 10)]
    """
    nodes, options = _joined("zip", datasets)
    return Dataset(zipped(nodes, strict=strict), options)


def concatenate(*datasets: Dataset) -> Dataset:
    """Return all rows of the first dataset, then all of the next, and so on.

    >>> import numpy as np, penstock as ps
    >>> a = ps.from_arrays(np.arange(2))
    >>> list(map(int, ps.concatenate(a, a)))
    [0, 1, 0, 1]
    """
    nodes, options = _joined("concatenate", datasets)
    return Dataset(concatenated(nodes), options)


def mix(
    datasets: Sequence[Dataset],
    *,
    weights: Sequence[float] | None = None,
    seed: int | None = 0,
    stop: str = "first",
) -> Dataset:
    """Return rows of all datasets in the proportion of `weights`, in a seeded pattern.

    `stop="first"` ends when a dataset has no row left for its turn, `stop="all"` when none has.

    >>> import numpy as np, penstock as ps
    >>> a, b = ps.from_arrays(np.zeros(300)), ps.from_arrays(np.ones(100))
    >>> len(ps.mix([a, b], weights=[3, 1], stop="all"))
    400
    """
    nodes, options = _joined("mix", datasets)
    numbers = tuple(float(w) for w in weights) if weights is not None else (1.0,) * len(nodes)
    if len(numbers) != len(nodes):
        raise ValueError(
            f"mix needs a weight for each of {len(nodes)} datasets, got {len(numbers)}."
        )
    if not all(0 < number < float("inf") for number in numbers):
        raise ValueError(f"the weights of mix must be greater than 0, got {list(numbers)}.")
    if stop not in ("first", "all"):
        raise ValueError(f'stop must be "first" or "all", got {stop!r}.')
    return Dataset(mixed(nodes, Mixing(numbers, checked_seed(seed), stop)), options)


def _joined(call: str, datasets: Sequence[Dataset]) -> tuple[list[Node], Options]:
    if not datasets:
        raise ValueError(f"{call} needs at least one dataset.")
    for number, dataset in builtins.enumerate(datasets):
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"{call} needs datasets, got {type(dataset).__name__} for input {number}; "
                "arrays become one with ps.from_arrays(...)."
            )
    options = Options()
    for dataset in datasets:
        options = options.joined(dataset.options)
    nodes = [dataset.node for dataset in datasets]
    if options.on_error is not None:
        nodes = [node.with_errors(options.on_error) for node in nodes]
    return nodes, options
