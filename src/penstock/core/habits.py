"""Names and arguments that users bring along from other libraries: the error says what to write here instead."""

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from penstock.core.lazy import lazy

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy("difflib")  # Only errors need it.

P = ParamSpec("P")
R = TypeVar("R")

_BY_ITSELF = (
    "threads and processes are found by themselves; with_options(threads=..., processes=...) sets them for the "
    "whole chain."
)
_IN_ORDER = "rows always come in the order that seed and chain give, at no cost: leave it out."
_ROW_SPEC = 'write spec=, a nest of ps.ArraySpec: ps.ArraySpec((100,), "float32").'
_BY_NAME = (
    "several arrays are one nest: from_arrays((x, y)), or by name from_arrays({'x': x, 'y': y})."
)
_WORKERS = f"leave it out; {_BY_ITSELF}"
_BATCHES = "batches are made by the dataset: ds.batch(32)."
_SHUFFLED = "rows are shuffled by the dataset: ds.shuffle(seed=0)."
_COLUMNS = "write fields=('a', 'b')."
_SEPARATOR = "write separator=."
_HEADER = (
    "a first line that is not all numbers has the names of the columns; if it is a row, put a line with the names "
    "above it."
)
_OPENED = {
    "batch_size": _BATCHES,
    "shuffle": _SHUFFLED,
    "num_epochs": "write ds.repeat(count).",
    "num_parallel_reads": _WORKERS,
    "num_parallel_calls": _WORKERS,
    "nrows": "write ds.take(count).",
    "validation_split": "part the dataset: train, valid = ds.split(0.9, seed=0).",
    "filenames": "its name is paths, and it comes first.",
    "files": "its name is paths, and it comes first.",
}
_LOADER = {
    "batch_size": _BATCHES,
    "shuffle": "rows are shuffled by the dataset: ds.shuffle(seed=0).batch(32).",
    "num_workers": _WORKERS,
    "pin_memory": "leave it out: with device= batches are copied to the device ahead of time.",
    "prefetch_factor": "leave it out: batches are made ahead by themselves; ds.prefetch(n) sets how many.",
    "collate_fn": "rows become batches by ds.batch(32) or ds.padded_batch(32); change those with ds.map(...).",
    "sampler": "the order is the dataset's: ds.shuffle(seed=0); ranks take their part by ds.batch(B).distribute().",
    "drop_last": "write ds.batch(32, drop_remainder=True).",
    "worker_init_fn": "ds.map(f, seed=0) hands f a generator of random numbers for each row.",
    "persistent_workers": "leave it out: worker processes outlive an epoch by themselves.",
}
ARGUMENTS: dict[str, dict[str, str]] = {
    "shuffle": {
        "buffer_size": "a shuffle needs no buffer: it mixes all rows. Write shuffle(seed=0).",
        "reshuffle_each_iteration": "every epoch has a new order; shuffle(seed=0).cache() keeps the first for good.",
    },
    "map": {
        "num_parallel_calls": _WORKERS,
        "deterministic": _IN_ORDER,
        "batched": "a function that stands after batch gets whole batches: ds.batch(32).map(f).",
        "num_proc": _WORKERS,
        "fn": "its name is map_func, and it comes first: map(f).",
    },
    "flat_map": {"num_parallel_calls": _WORKERS, "deterministic": _IN_ORDER},
    "filter": {"function": "its name is predicate, and it comes first: filter(f)."},
    "batch": {
        "num_parallel_calls": _WORKERS,
        "num_workers": _WORKERS,
        "deterministic": _IN_ORDER,
        "drop_last": "write drop_remainder=True.",
        "shuffle": _LOADER["shuffle"],
        "collate_fn": (
            "rows are stacked; write ds.padded_batch(32) to pad them, and ds.batch(32).map(f) to change batches."
        ),
    },
    "padded_batch": {
        "padded_shapes": "each batch is padded to its longest row; for one length, pad rows in a map.",
        "drop_last": "write drop_remainder=True.",
    },
    "window": {"drop_remainder": "windows that would be cut short are left out: leave it out."},
    "cache": {"filename": "write path=.", "name": "leave it out."},
    "prefetch": {"num_elements": "its name is buffer_size, and None finds it by itself."},
    "repeat": {"num_epochs": "its name is count."},
    "with_options": {
        "num_workers": "write threads= or processes=.",
        "num_threads": "write threads=.",
        "memory_limit": "write memory=.",
        "seed": "each stage has its own: shuffle(seed=0), map(f, seed=0).",
    },
    "from_arrays": {
        "labels": "several arrays are one nest: from_arrays((x, labels)).",
        "x": _BY_NAME,
        "y": "several arrays are one nest: from_arrays((x, y)).",
        "fields": "choose columns before: from_arrays(table[['a', 'b']]).",
        "": "Several arrays are one nest: from_arrays((x, y)), or from_arrays({'x': x, 'y': y}).",
    },
    "interleave": {
        "num_parallel_calls": "leave it out; each generator has a thread of its own.",
        "cycle_length": "leave it out; all of them are open at once.",
        "block_length": "leave it out; which one is next follows from seed=.",
        "deterministic": _IN_ORDER,
        "spec": _ROW_SPEC,
    },
    "from_generator": {
        "output_signature": _ROW_SPEC,
        "output_types": _ROW_SPEC,
        "output_shapes": _ROW_SPEC,
        "args": "bind them: from_generator(functools.partial(function, 1, 2), spec).",
        "spec": (
            'spec says what a row is: (ps.ArraySpec((100,), "float32"), ps.ArraySpec((), "int64")); '
            "ps.spec_of(row) makes it from an example."
        ),
    },
    "from_files": {
        **_OPENED,
        "columns": _COLUMNS,
        "image_size": "write size=(height, width).",
        "sep": _SEPARATOR,
        "delimiter": _SEPARATOR,
        "field_delim": _SEPARATOR,
        "dtype": "write spec={'column': 'float32'}.",
        "dtypes": "write spec={'column': 'float32'}.",
        "record_defaults": "write spec={'column': 'float32'}; a number that is missing is nan.",
        "converters": "write ds.map(f).",
        "parse_dates": "write spec={'day': 'datetime64[D]'}.",
        "na_values": (
            "an empty cell, NA, N/A, NULL, null and None among numbers are nan; read a column with other words as "
            "text, spec={'column': str}, and change it with ds.map(f)."
        ),
        "encoding": "files must be UTF-8: convert them once, iconv -f latin1 -t utf-8.",
        "skiprows": "the first line has the names of the columns, or is a row; leave out rows by ds.skip(count).",
        "chunksize": "rows are read as they are needed: leave it out, or write ds.batch(size).",
        "compression": "leave it out: .csv.gz, .jsonl.gz and .txt.gz are unpacked as they are read.",
        "label_name": "write fields=('a', 'label'), or ds.map(f) to part rows into (x, y).",
        "mmap_mode": "leave it out: rows are read as they are needed.",
        "streaming": "leave it out: rows are read as they are needed.",
        "filters": "write ds.filter(predicate).",
        "header": _HEADER,
        "names": "the first line of a CSV file has the names: write them there; fields=('a', 'b') chooses some.",
        "usecols": _COLUMNS,
        "select_cols": _COLUMNS,
        "select_columns": _COLUMNS,
        "": (
            "Several files are one list: from_files(['a.npy', 'b.npy']); "
            "side by side: from_files({'x': 'a.npy', 'y': 'b.npy'})."
        ),
    },
    "from_tfrecord": {
        **_OPENED,
        "compression_type": "its name is compression, and it is found by itself.",
        "buffer_size": "leave it out: reads are as large as they should be.",
        "description": "write features=.",
    },
    "split": {
        "test_size": "the shares come first: train, test = ds.split(0.9) for test_size=0.1.",
        "train_size": "the shares come first: train, test = ds.split(0.9) for train_size=0.9.",
        "shuffle": "rows are picked at random, and stay in order: write train.shuffle(seed=0) behind it.",
        "random_state": "write seed=0.",
        "lengths": "the shares come first: train, test = ds.split(0.9).",
        "generator": "write seed=0.",
        "groups": "write by='patient', the name of their field.",
    },
    "resample": {
        "by": "write by='label', the name of the field with the class, or its number in a tuple.",
        "class_func": "write by='label', the name of the field with the class.",
        "target_dist": "write weights={0: 1, 1: 3}.",
        "num_samples": "write num_rows=.",
    },
    "mix": {"weight": "write weights=[...].", "": "The datasets are one list: mix([a, b])."},
    "zip": {"datasets": "they are arguments: zip(a, b)."},
    "concatenate": {"datasets": "they are arguments: concatenate(a, b)."},
    "to_torch": _LOADER,
    "to_jax": {
        "device": "write sharding=jax.devices()[0]: a device is a sharding, too.",
        "batch_size": _LOADER["batch_size"],
        "shuffle": _LOADER["shuffle"],
    },
    "to_keras": {
        "batch_size": _LOADER["batch_size"],
        "shuffle": _LOADER["shuffle"],
        "workers": _WORKERS,
        "steps_per_epoch": "give it to fit: model.fit(feed, steps_per_epoch=...).",
        "validation_split": "part the dataset: train, valid = ds.split(0.9, seed=0).",
    },
}
"""What to write instead of an argument that a function has not; "" is for one too many by position."""

_LIKENESS = (
    0.75  # Of a name that is meant: with difflib's own 0.6, "to_iter_dataset" is like "to_keras".
)
_ONE_FOR_ALL = "it is a function of the module: "
_PARTED = "write train, valid = ds.split(0.9, seed=0)."
_FRAMEWORK = (
    "batches are NumPy arrays; ds.batch(32).to_torch(), to_jax(), to_tf() and to_keras() give those of a "
    "framework."
)
_SOME_FIELDS = (
    "of files, write ps.from_files(paths, fields=('a', 'b')); else ds.map(lambda row: row['a'])."
)
_RENAMED = "write ds.map(lambda row: {'new': row['old']}), with all fields that are wanted."
_FUNCTION = "write ds.map(function)."
METHODS = {
    "as_numpy_iterator": "batches are NumPy arrays already: for batch in ds.",
    "assert_cardinality": "ps.from_generator(function, spec, length=...) says how many rows there are.",
    "batch_and_pad": "write ds.padded_batch(32).",
    "cardinality": "write len(ds).",
    "cast": "write ds.map(lambda row: {**row, 'x': row['x'].astype('float32')}).",
    "choose_from_datasets": f"{_ONE_FOR_ALL}ps.mix([a, b], weights=[3, 1]).",
    "column_names": "write ds.spec.",
    "columns": "write ds.spec.",
    "concatenate": f"{_ONE_FOR_ALL}ps.concatenate(a, b).",
    "count": "write len(ds).",
    "counter": "write ds.enumerate().",
    "decode": "leave it out: images, numbers and text are decoded by their extensions; ds.map(function) does the rest.",
    "element_spec": "write ds.spec.",
    "features": "write ds.spec.",
    "fingerprint": "write ds.stream().state()['fingerprint'].",
    "fit": "write model.fit(ds.to_keras()).",
    "from_files": f"{_ONE_FOR_ALL}ps.from_files(paths).",
    "from_generator": f"{_ONE_FOR_ALL}ps.from_generator(function, spec).",
    "from_tensor_slices": f"{_ONE_FOR_ALL}ps.from_arrays((x, y)).",
    "from_tensors": f"{_ONE_FOR_ALL}ps.from_arrays((x, y)), whose first axis are the rows.",
    "get_single_element": "write next(iter(ds)).",
    "group_by_window": "rows of like lengths go together by ds.bucket_by_sequence_length(...).",
    "head": "write ds.take(5), or ds.peek() to see them.",
    "ignore_errors": "write ds.with_options(on_error='skip').",
    "interleave": f"{_ONE_FOR_ALL}ps.mix([a, b]) for datasets, ps.interleave([f, g], spec) for generators.",
    "iter_batches": "write for batch in ds.batch(32).",
    "limit": "write ds.take(count).",
    "list_files": "write ps.from_files('data/*.npy').",
    "load": "write ps.from_files(path).",
    "load_from_disk": "write ps.from_files(path).",
    "make_one_shot_iterator": "write iter(ds).",
    "map_batches": "a function that stands after batch gets whole batches: ds.batch(32).map(function).",
    "map_with_index": "write ds.enumerate().map(function).",
    "mp_prefetch": _WORKERS,
    "num_rows": "write len(ds).",
    "pipe": "write ds.apply(function).",
    "prefetch_to_device": "ds.batch(32).to_jax() and to_torch(device='cuda') copy batches to the device, ahead.",
    "ragged_batch": "write ds.padded_batch(32, lengths=True).",
    "random": "ds.map(f, seed=0) hands f a generator of random numbers for each row.",
    "random_map": "write ds.map(function, seed=0), which hands it a generator of random numbers.",
    "random_shuffle": "write ds.shuffle(seed=0).",
    "random_split": _PARTED,
    "range": "write ps.from_arrays(np.arange(n)).",
    "rejection_resample": "write ds.resample(by='label').",
    "remove_columns": _SOME_FIELDS,
    "rename_column": _RENAMED,
    "rename_columns": _RENAMED,
    "sample": "write ds.shuffle(seed=0).take(count).",
    "sample_from_datasets": f"{_ONE_FOR_ALL}ps.mix([a, b], weights=[3, 1]).",
    "save": "write ds.write(path).",
    "save_to_disk": "write ds.write(path).",
    "scan": (
        "a state that goes from row to row lets nothing run in parallel: write a generator, "
        "ps.from_generator(function, spec)."
    ),
    "schema": "write ds.spec.",
    "select": "write ds.skip(a).take(b - a) for rows a to b, and ds.filter(predicate) for others.",
    "select_columns": _SOME_FIELDS,
    "set_format": _FRAMEWORK,
    "set_transform": _FUNCTION,
    "shape": "write len(ds), and ds.spec for the shape of a row.",
    "slice": "write ds.skip(a).take(b - a).",
    "snapshot": "write ds.cache(path).",
    "sparse_batch": "write ds.padded_batch(32).",
    "to_dict": "a batch of a dict is a dict of arrays: for batch in ds.",
    "to_iter_dataset": "leave it out: for row in ds.",
    "to_list": "write list(ds).",
    "to_tf_dataset": "write ds.batch(32).to_tf().",
    "to_tuple": "write ps.from_files(paths, fields=('jpg', 'cls')).",
    "train_test_split": _PARTED,
    "unique": "all rows that were seen would have to be held: do it once, and keep the rest by ds.write(path).",
    "with_format": _FRAMEWORK,
    "with_transform": _FUNCTION,
    "zip": f"{_ONE_FOR_ALL}ps.zip(a, b).",
}
"""What to write instead of a method that a Dataset has not."""
_ARRAYS = "write ps.from_arrays((x, y))."
_GENERATOR = "write ps.from_generator(function, spec)."
_TABLE = "write ps.from_arrays(table)."
NAMES = {
    "AUTOTUNE": _WORKERS,
    "ChainDataset": "write ps.concatenate(a, b).",
    "ConcatDataset": "write ps.concatenate(a, b).",
    "CsvDataset": "write ps.from_files('*.csv').",
    "DataLoader": "write ps.from_arrays((x, y)).shuffle(seed=0).batch(32).to_torch().",
    "FixedLenFeature": 'write ps.FixedFeature((), "int64").',
    "FixedLengthRecordDataset": "write ps.from_files(paths, format='raw', spec=ps.ArraySpec((3,), 'float32')).",
    "ImageFolder": "write ps.from_files('images/', size=(height, width)).",
    "IterableDataset": _GENERATOR,
    "MapDataset": _ARRAYS,
    "StackDataset": "write ps.zip(a, b).",
    "TFRecordDataset": "write ps.from_tfrecord(paths).",
    "TensorDataset": _ARRAYS,
    "TensorSpec": 'write ps.ArraySpec((3,), "float32").',
    "TextLineDataset": "write ps.from_files('*.txt').",
    "VarLenFeature": 'write ps.VarFeature("int64").',
    "WebDataset": "write ps.from_files('*.tar').",
    "choose_from_datasets": "write ps.mix([a, b], weights=[3, 1]).",
    "concatenate_datasets": "write ps.concatenate(a, b).",
    "from_arrow": _TABLE,
    "from_csv": "write ps.from_files('*.csv').",
    "from_dict": "write ps.from_arrays({'x': x, 'y': y}).",
    "from_hdf5": "write ps.from_files('*.h5').",
    "from_json": "write ps.from_files('*.jsonl').",
    "from_jsonl": "write ps.from_files('*.jsonl').",
    "from_list": "write ps.from_arrays(...) of its columns, or ps.from_generator(lambda: rows, spec).",
    "from_npy": "write ps.from_files('*.npy').",
    "from_numpy": "write ps.from_arrays((x, y)).",
    "from_pandas": _TABLE,
    "from_parquet": "write ps.from_files('*.parquet').",
    "from_tensor_slices": "write ps.from_arrays((x, y)).",
    "from_tensors": "write ps.from_arrays((x, y)), whose first axis are the rows.",
    "from_text": "write ps.from_files('*.txt').",
    "from_tfrecords": "write ps.from_tfrecord(paths).",
    "from_zarr": "write ps.from_files('x.zarr').",
    "image_dataset_from_directory": "write ps.from_files('images/', size=(height, width)).",
    "interleave_datasets": "write ps.mix([a, b]).",
    "list_files": "write ps.from_files('data/*.npy').",
    "load": "write ps.from_files(path).",
    "load_dataset": "write ps.from_files('*.parquet'); a path may begin with hf://datasets/.",
    "random_split": _PARTED,
    "range": "write ps.from_arrays(np.arange(n)).",
    "read_csv": "write ps.from_files('*.csv').",
    "read_json": "write ps.from_files('*.jsonl').",
    "read_parquet": "write ps.from_files('*.parquet').",
    "sample_from_datasets": "write ps.mix([a, b], weights=[3, 1]).",
    "save": "write ds.write(path).",
    "train_test_split": _PARTED,
}
"""What to write instead of a name that the module has not."""


def teaching(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function; called with an argument that it has not, it says what to write instead.

    >>> @teaching
    ... def shuffle(*, seed=0): ...
    >>> shuffle(buffer_size=10)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    TypeError: shuffle has no argument 'buffer_size': a shuffle needs no buffer...
    """
    parameters = inspect.signature(function).parameters.values()
    placed = [one for one in parameters if one.kind is one.POSITIONAL_OR_KEYWORD]
    names = [
        one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    known = frozenset(names)
    takes_any = any(one.kind is one.VAR_POSITIONAL for one in parameters)
    takes_any_name = any(one.kind is one.VAR_KEYWORD for one in parameters)
    cures = ARGUMENTS.get(function.__name__, {})

    @functools.wraps(function)
    def taught(*args: P.args, **kwargs: P.kwargs) -> R:
        if not takes_any_name and not kwargs.keys() <= known:
            unknown = min(kwargs.keys() - known)
            raise TypeError(_argument_words(function.__name__, unknown, names))
        if len(args) > len(placed) and not takes_any:
            own = [name for name in names if name != "self"]
            cure = cures.get("", f"Others need their names: {', '.join(own)}.")
            most = sum(one.name != "self" for one in placed)
            came = most + len(args) - len(placed)
            raise TypeError(f"{function.__name__} takes {most} by position, got {came}. {cure}")
        missing = [
            one.name
            for one in placed[len(args) :]
            if one.default is one.empty and one.name not in kwargs
        ]
        if missing:
            first = next((name for name in missing if name in cures), missing[0])
            cure = cures.get(first, f"it takes {_listed(names)}.")
            raise TypeError(f"{function.__name__} needs {first!r}: {cure}")
        return function(*args, **kwargs)

    return taught


def _argument_words(function: str, unknown: str, names: list[str]) -> str:
    cure = ARGUMENTS.get(function, {}).get(unknown)
    if cure is None:
        near = difflib.get_close_matches(unknown, [name for name in names if name != "self"], 1)
        cure = f"did you mean {near[0]}?" if near else f"it takes {_listed(names)}."
    return f"{function} has no argument {unknown!r}: {cure}"


def _listed(names: list[str]) -> str:
    return ", ".join(name for name in names if name != "self") or "none"


def method_names(owner: type) -> list[str]:
    """Return the names of the methods that a user may have meant: neither properties nor what Python itself calls."""
    return [
        name
        for name in dir(owner)
        if not name.startswith("_") and inspect.isroutine(inspect.getattr_static(owner, name))
    ]


def attribute_words(owner: str, name: str, own: list[str], table: dict[str, str]) -> str:
    """Return the message for a name that a module or an object has not.

    >>> attribute_words("a Dataset", "cardinality", [], METHODS)
    "a Dataset has no 'cardinality': write len(ds)."
    """
    cure = table.get(name)
    if cure is None and not name.startswith("_"):
        near = difflib.get_close_matches(name, own, 1, _LIKENESS)
        cure = f"did you mean {near[0]}?" if near else None
    return f"{owner} has no {name!r}{f': {cure}' if cure else '.'}"
