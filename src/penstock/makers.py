"""Where datasets come from: arrays, files, generators, and other datasets."""

import builtins
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from penstock.core.arguments import one_of, whole_number
from penstock.core.habits import teaching
from penstock.core.lazy import lazy
from penstock.core.rows import Node
from penstock.core.seeds import checked_seed
from penstock.dataset import Dataset
from penstock.engine.plan import Options
from penstock.errors import user_site
from penstock.sources.arrays import Arrays
from penstock.stages.concatenate import concatenated
from penstock.stages.mix import Mixing, mixed
from penstock.stages.zip import zipped

if TYPE_CHECKING:
    from penstock.io import paths as io_paths
    from penstock.io.paths import PathLike
    from penstock.sources import files, generator
    from penstock.sources.files import FormatName
    from penstock.sources.tfrecord import rows as tfrecord
else:
    # A program uses one or two of them: `import penstock` does not wait for the others.
    io_paths = lazy("penstock.io.paths")
    files = lazy("penstock.sources.files")
    generator = lazy("penstock.sources.generator")
    tfrecord = lazy("penstock.sources.tfrecord.rows")


@teaching
def from_arrays(nest: Any) -> Dataset:
    """Return a dataset whose row i is element i of every array of a nest.

    Nothing is copied or read, but for a stream of Arrow batches, which is read into memory.

    Args:
        nest: A nest of tuples and dicts of ndarrays of any dtype, memmaps, tensors, anything with shape,
            dtype and slicing, lists of bytes, str or arrays, and tables: pandas and polars DataFrames and
            Series, pyarrow Tables and arrays, whatever has the Arrow C interface. The row of a table is a
            dict of its columns (`docs/tables.md`).

    >>> import numpy as np, penstock as ps
    >>> len(ps.from_arrays({"x": np.zeros((10, 3)), "y": np.zeros(10)}))
    10
    """
    return Dataset(Arrays(nest), Options())


@teaching
def from_generator(
    function: Callable[[], Iterable[Any]] | Iterable[Any],
    spec: Any,
    *,
    length: int | None = None,
    rows_per_item: Literal["one", "many"] = "one",
) -> Dataset:
    """Return the rows that a generator yields; it is started anew for every epoch.

    Takes the memory of a stream.

    Args:
        function: Returns an iterator, or is an iterable object.
        spec: A nest of `ArraySpec`; each row is checked against it.
        length: How many rows there are, if that is known.
        rows_per_item: With "many" an item is a block of rows: every field has a first axis more.

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


@teaching
def interleave(
    functions: Sequence[Callable[[], Iterable[Any]]], spec: Any, *, seed: int | None = 0
) -> Dataset:
    """Return the rows of several generators, each on a thread of its own, in a seeded pattern.

    The order is the same whichever of them is faster. It ends when all have ended.

    Args:
        functions: Each returns an iterator.
        spec: A nest of `ArraySpec`; each row is checked against it.
        seed: The pattern it stands for; None draws one now, and keeps it.

    >>> import penstock as ps
    >>> ds = ps.interleave([lambda: iter([1, 1]), lambda: iter([2, 2])], ps.ArraySpec((), "int64"))
    >>> sorted(map(int, ds))
    [1, 1, 2, 2]
    """
    return mix([from_generator(one, spec) for one in functions], seed=seed, stop="all")


@teaching
def from_files(
    paths: "PathLike | Iterable[PathLike] | Mapping[str, Any]",
    fields: Any = None,
    *,
    format: "FormatName | None" = None,
    spec: Any = None,
    size: tuple[int, int] | None = None,
    separator: str | None = None,
    decimal: Literal[".", ","] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    on_error: Literal["raise", "skip"] = "raise",
    verify: bool = True,
) -> Dataset:
    """Return the rows of files, as they lie there, in any of the formats.

    There is random access to `.npy`, stored `.npz`, HDF5, Zarr, Parquet and Arrow files, tars, images and raw
    files; deflated `.npz` is read forward. Reads headers, no data.

    Of a tar in the layout of WebDataset, the files that follow each other and have one key (their name up to the
    first dot) are a row. Its fields are their extensions: images are decoded, `cls` is an int64, `txt` and
    `json` are str, `npy` is an array, all others are bytes; `__key__` is the key. The headers are scanned
    once, and the index is kept in the user's cache directory (`$XDG_CACHE_HOME/penstock/tar-index`) for tars of 1 MB
    or more.

    CSV, JSON Lines and text are scanned once, at several GB/s, to find where rows begin: then they have numbers, a
    length and shuffles over all of them. The index (16 bytes for 64 KB) is kept in the user's cache directory
    (`$XDG_CACHE_HOME/penstock/lines-index`) for each version of a file of 1 MB or more. What is behind a URL, or has a
    quote that is never closed, or is packed (`.csv.gz`), is read forward. CSV and JSON are parsed by pyarrow where it
    is installed; rows of text are lines without their ends. `docs/tables.md` has more of tables.

    Args:
        paths: A path, a list, a glob, a folder or a URL; files come one after the other. A dict of these puts files
            side by side, as `zip` does: `from_files({"x": "x.npy", "y": "y.npy"})`. Of a folder, the files of the
            format that most of them have are read, and a warning names the others. A folder of
            images (one folder a class) gives `image` and `label`; a few notes or tables beside them are
            left out likewise.
        fields: The names of arrays or columns, as a nest like the row that is wanted; by default all, but
            for those that rows can't be read from (a single value, Python objects): a warning names them. For a dict
            of paths, a dict with its names; so is `spec`, and so may be `format`, `size`, `separator` and `decimal`.
        format: What the files are, where their endings do not tell: "npy", "npz", "raw", "hdf5",
            "zarr", "parquet", "arrow", "csv", "jsonl", "text", "images" or "tar".
        spec: The `ArraySpec` of a row of a raw file, or {column: dtype} for some columns of CSV or JSON
            Lines: `spec={"age": "float32"}`. The types of the others are found in the first 256 KB.
        size: The (height, width) that images, also those in tars, are resized to: each pixel is a mean of what it
            stands for (bilinear, with antialiasing), the same for every format. Pixels are RGB, as they are stored:
            what EXIF says of turning them is not followed, as in tf.data and Keras.
        separator: What stands between the cells of CSV files; by default found in their first rows (`,`, `;`, tab
            or `|`).
        decimal: The decimal mark of numbers in CSV files, "." or ","; by default a point.
        storage_options: What fsspec needs to know to read URLs, such as credentials. It travels with
            the dataset when that is pickled, and is never printed.
        on_error: A file that can't be opened, or is not like the first, is an error here; "skip" skips it,
            and names it in each report. What turns out bad later is a matter of `with_options`.
        verify: Whether checksums in the files are compared with what is read: those of folders that `write`
            made, of `.npz` archives, of Parquet pages and of PNG images. A row that was damaged is then an error. A
            JPEG has none, but pixels that are missing or can't be are noticed.

    >>> import numpy as np, penstock as ps, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.save(f"{folder}/a.npy", np.arange(3))
    >>> np.save(f"{folder}/b.npy", np.arange(3, 5))
    >>> list(map(int, ps.from_files(f"{folder}/*.npy")))
    [0, 1, 2, 3, 4]
    """
    if isinstance(paths, Mapping):
        if on_error == "skip":
            raise ValueError(
                "files side by side can't be skipped one by one: rows of others would stand beside the wrong ones. "
                "Give one list of files that have all fields, or leave on_error out."
            )
        each = _each_name(
            paths,
            fields=fields,
            spec=spec,
            format=format,
            size=size,
            separator=separator,
            decimal=decimal,
        )
        return zip(
            {
                name: from_files(one, storage_options=storage_options, verify=verify, **each[name])
                for name, one in paths.items()
            }
        )
    with io_paths.connected(paths, storage_options):
        node = files.open_files(
            paths,
            fields,
            format=format,
            spec=spec,
            size=size,
            storage_options=storage_options,
            on_error=on_error,
            verify=verify,
            separator=separator,
            decimal=decimal,
        )
    return Dataset(node, Options())


def _each_name(paths: Mapping[str, Any], **given: Any) -> dict[str, dict[str, Any]]:
    """Return, for each name of a dict of paths, its part of arguments that are dicts with these names.

    A format, a size and the like may also be given once for all.
    """
    each: dict[str, dict[str, Any]] = {name: {} for name in paths}
    for argument, value in given.items():
        if value is None:
            continue
        if argument not in ("fields", "spec") and not isinstance(value, Mapping):
            for one in each.values():
                one[argument] = value
            continue
        if not isinstance(value, Mapping) or not value.keys() <= paths.keys():
            names = ", ".join(map(repr, paths))
            cure = ""
            if argument == "fields" and isinstance(value, tuple | list):
                parts = ", ".join(f"ps.from_files({str(path)!r})" for path in paths.values())
                cure = f" Rows are dicts; for tuples write ps.zip({parts})."
            raise ValueError(
                f"{argument} must be a dict with names of the paths ({names}), as these are, got {value!r}.{cure}"
            )
        for name, one in value.items():
            each[name][argument] = one
    return each


@teaching
def from_tfrecord(
    paths: "PathLike | Iterable[PathLike]",
    features: Any = None,
    *,
    compression: Literal["GZIP", "ZLIB", ""] | None = None,
    verify: bool = True,
    raw: bool = False,
    index: bool = True,
    storage_options: Mapping[str, Any] | None = None,
) -> Dataset:
    """Return the tf.train.Examples, or SequenceExamples, of TFRecord files, decoded without TensorFlow.

    Args:
        paths: A path, a list, a glob, a folder or a URL; files come one after the other.
        features: A nest of `FixedFeature`, `VarFeature`, `TensorFeature` and `ImageFeature`, by name; by default
            they are inferred from the first records, images as bytes. With a `SequenceFeature` among them, records are
            tf.train.SequenceExamples, and the others are features of their context.
        compression: How the files are packed: "GZIP", "ZLIB", or "" for not at all; by default found in
            their first bytes. Packed files are read forward.
        verify: Whether both checksums of each record are checked.
        raw: Whether each record is given as bytes, without features.
        index: Whether one scan finds where records begin (8 bytes of memory each), which is kept in the
            user's cache directory: there is then random access, a length, and an exact order. Without
            it, records are read forward.
        storage_options: What fsspec needs to know to read URLs, such as credentials; never printed.

    >>> import numpy as np, penstock as ps, tempfile
    >>> folder = tempfile.mkdtemp() + "/out"
    >>> ps.from_arrays({"x": np.arange(6.0, dtype="float32")}).write(folder, format="tfrecord")
    >>> ds = ps.from_tfrecord(folder, {"x": ps.FixedFeature((), "float32")})
    >>> [batch["x"].tolist() for batch in ds.batch(4)]
    [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0]]
    """
    with io_paths.connected(paths, storage_options):
        node = tfrecord.open_tfrecord(
            paths,
            features,
            compression=compression,
            verify=verify,
            raw=raw,
            index=index,
            storage_options=storage_options,
        )
    return Dataset(node, Options())


@teaching
def zip(*datasets: "Dataset | Mapping[str, Dataset]", strict: bool = True) -> Dataset:
    """Return rows that are tuples of one row of each dataset, or dicts.

    Zip first, then shuffle: datasets that are shuffled with one seed, and yet in different orders, are refused.

    Args:
        datasets: What to put side by side; one dict of datasets gives rows that are dicts.
        strict: Whether they must have as many rows; without it the shortest ends it.

    >>> import numpy as np, penstock as ps
    >>> a, b = ps.from_arrays(np.arange(2)), ps.from_arrays(np.arange(2) * 10)
    >>> [(int(x), int(y)) for x, y in ps.zip(a, b)]
    [(0, 0), (1, 10)]
    >>> next(iter(ps.zip({"x": a, "y": b}).batch(2)))["y"].tolist()
    [0, 10]
    """
    names = None
    if len(datasets) == 1 and isinstance(datasets[0], Mapping):
        named = datasets[0]
        for name in named:
            if not isinstance(name, str):
                raise TypeError(f"the names of zip's datasets must be str, got {name!r}.")
        names = tuple(sorted(named))
        datasets = tuple(named[name] for name in names)
    nodes, options = _joined("zip", datasets, names)
    node = zipped(nodes, strict=strict, names=names)
    return Dataset(node.with_errors(options.on_error or "raise"), options)


@teaching
def concatenate(*datasets: Dataset) -> Dataset:
    """Return the rows of all `datasets`: all of the first, then all of the next, and so on.

    >>> import numpy as np, penstock as ps
    >>> a = ps.from_arrays(np.arange(2))
    >>> list(map(int, ps.concatenate(a, a)))
    [0, 1, 0, 1]
    """
    nodes, options = _joined("concatenate", datasets)
    return Dataset(concatenated(nodes), options)


@teaching
def mix(
    datasets: Sequence[Dataset],
    *,
    weights: Sequence[float] | None = None,
    seed: int | None = 0,
    stop: Literal["first", "all"] = "first",
) -> Dataset:
    """Return rows of all datasets in the proportion of `weights`, in a seeded pattern.

    Args:
        datasets: What to take rows from.
        weights: The share of each; by default all have the same.
        seed: The pattern it stands for; None draws one now, and keeps it.
        stop: "first" ends when a dataset has no row left for its turn, "all" when none has.

    >>> import numpy as np, penstock as ps
    >>> a, b = ps.from_arrays(np.zeros(300)), ps.from_arrays(np.ones(100))
    >>> len(ps.mix([a, b], weights=[3, 1], stop="all"))
    400
    """
    if isinstance(datasets, Dataset | Mapping):
        values = "*datasets.values()" if isinstance(datasets, Mapping) else "a, b"
        kind = type(datasets).__name__
        raise TypeError(f"mix needs a list of datasets, got {kind}; write ps.mix([{values}]).")
    nodes, options = _joined("mix", tuple(datasets))
    numbers = tuple(float(w) for w in weights) if weights is not None else (1.0,) * len(nodes)
    if len(numbers) != len(nodes):
        raise ValueError(
            f"mix needs a weight for each of {len(nodes)} datasets, got {len(numbers)}."
        )
    if not all(0 < number < float("inf") for number in numbers):
        raise ValueError(f"the weights of mix must be greater than 0, got {list(numbers)}.")
    one_of("stop", stop, ("first", "all"))
    return Dataset(mixed(nodes, Mixing(numbers, checked_seed(seed), stop)), options)


def _joined(
    call: str, datasets: Sequence[Any], names: Sequence[str] | None = None
) -> tuple[list[Node], Options]:
    if not datasets:
        raise ValueError(f"{call} needs at least one dataset.")
    for number, dataset in builtins.enumerate(datasets):
        if not isinstance(dataset, Dataset):
            place = number if names is None else repr(names[number])
            cure = _dataset_cure(call, dataset, is_alone=len(datasets) == 1 and names is None)
            raise TypeError(
                f"{call} needs datasets, got {type(dataset).__name__} for input {place}; {cure}"
            )
    options = Options()
    for dataset in datasets:
        options = options.joined(dataset.options)
    nodes = [dataset.node for dataset in datasets]
    if options.on_error is not None:
        made = {id(node): node.with_errors(options.on_error) for node in nodes}
        nodes = [made[id(node)] for node in nodes]  # One that stands twice stays one.
    return nodes, options


def _dataset_cure(call: str, value: Any, *, is_alone: bool) -> str:
    """Return what to write where no dataset came; `is_alone` if nothing else came."""
    is_several = isinstance(value, Iterator) or (
        isinstance(value, list | tuple) and all(isinstance(one, Dataset) for one in value)
    )
    if is_several and is_alone and call != "mix":
        return f"write ps.{call}(a, b), or ps.{call}(*datasets)."
    if is_several:
        return "make it one first, with ps.zip(*datasets) or ps.concatenate(*datasets)."
    if isinstance(value, Mapping):
        if is_alone:
            return f"write ps.{call}(*datasets.values())."
        return "datasets with names are one dict: ps.zip({'x': a, 'y': b})."
    if isinstance(value, str | os.PathLike):
        return "files become one with ps.from_files(...)."
    return "arrays become one with ps.from_arrays(...)."
