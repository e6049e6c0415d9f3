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
_LOADER = {
    "batch_size": "batches are made by the dataset: ds.batch(32).",
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
        "deterministic": _IN_ORDER,
        "drop_last": "write drop_remainder=True.",
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
        "columns": "write fields=('a', 'b').",
        "image_size": "write size=(height, width).",
        "sep": "write separator=.",
        "delimiter": "write separator=.",
        "dtype": "write spec={'column': 'float32'}.",
        "header": (
            "a first line that is not all numbers has the names of the columns; if it is a row, put a line with "
            "the names above it."
        ),
        "names": "the first line of a CSV file has the names: write them there; fields=('a', 'b') chooses some.",
        "usecols": "write fields=('a', 'b').",
        "": (
            "Several files are one list: from_files(['a.npy', 'b.npy']); "
            "side by side: from_files({'x': 'a.npy', 'y': 'b.npy'})."
        ),
    },
    "from_tfrecord": {
        "compression_type": "its name is compression, and it is found by itself.",
        "num_parallel_reads": _WORKERS,
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
        "class_func": "write by='label', the name of the field with the class.",
        "target_dist": "write weights={0: 1, 1: 3}.",
        "num_samples": "write num_rows=.",
    },
    "mix": {"weight": "write weights=[...].", "": "The datasets are one list: mix([a, b])."},
    "zip": {"datasets": "they are arguments: zip(a, b)."},
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

_ONE_FOR_ALL = "it is a function of the module: "
METHODS = {
    "as_numpy_iterator": "batches are NumPy arrays already: for batch in ds.",
    "cardinality": "write len(ds).",
    "choose_from_datasets": f"{_ONE_FOR_ALL}ps.mix([a, b], weights=[3, 1]).",
    "concatenate": f"{_ONE_FOR_ALL}ps.concatenate(a, b).",
    "element_spec": "write ds.spec.",
    "from_generator": f"{_ONE_FOR_ALL}ps.from_generator(function, spec).",
    "from_tensor_slices": f"{_ONE_FOR_ALL}ps.from_arrays((x, y)).",
    "from_tensors": f"{_ONE_FOR_ALL}ps.from_arrays((x, y)), whose first axis are the rows.",
    "get_single_element": "write next(iter(ds)).",
    "group_by_window": "rows of like lengths go together by ds.bucket_by_sequence_length(...).",
    "interleave": f"{_ONE_FOR_ALL}ps.mix([a, b]) for datasets, ps.interleave([f, g], spec) for generators.",
    "list_files": "write ps.from_files('data/*.npy').",
    "random": "ds.map(f, seed=0) hands f a generator of random numbers for each row.",
    "range": "write ps.from_arrays(np.arange(n)).",
    "ragged_batch": "write ds.padded_batch(32, lengths=True).",
    "rejection_resample": "write ds.resample(by='label').",
    "sample_from_datasets": f"{_ONE_FOR_ALL}ps.mix([a, b], weights=[3, 1]).",
    "save": "write ds.write(path).",
    "load": "write ps.from_files(path).",
    "snapshot": "write ds.cache(path).",
    "sparse_batch": "write ds.padded_batch(32).",
    "to_dict": "a batch of a dict is a dict of arrays: for batch in ds.",
    "zip": f"{_ONE_FOR_ALL}ps.zip(a, b).",
    "fit": "write model.fit(ds.to_keras()).",
}
"""What to write instead of a method that a Dataset has not."""
NAMES = {
    "DataLoader": "write ps.from_arrays((x, y)).shuffle(seed=0).batch(32).to_torch().",
    "FixedLenFeature": 'write ps.FixedFeature((), "int64").',
    "TFRecordDataset": "write ps.from_tfrecord(paths).",
    "TextLineDataset": "write ps.from_files('*.txt').",
    "VarLenFeature": 'write ps.VarFeature("int64").',
    "from_csv": "write ps.from_files('*.csv').",
    "from_numpy": "write ps.from_arrays((x, y)).",
    "from_parquet": "write ps.from_files('*.parquet').",
    "from_tensor_slices": "write ps.from_arrays((x, y)).",
    "from_tfrecords": "write ps.from_tfrecord(paths).",
    "image_dataset_from_directory": "write ps.from_files('images/', size=(height, width)).",
    "read_csv": "write ps.from_files('*.csv').",
    "sample_from_datasets": "write ps.mix([a, b], weights=[3, 1]).",
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
    cures = ARGUMENTS.get(function.__name__, {})

    @functools.wraps(function)
    def taught(*args: P.args, **kwargs: P.kwargs) -> R:
        if not kwargs.keys() <= known:
            unknown = min(kwargs.keys() - known)
            raise TypeError(_argument_words(function.__name__, unknown, names))
        if len(args) > len(placed) and not takes_any:
            own = [name for name in names if name != "self"]
            cure = cures.get("", f"Others need their names: {', '.join(own)}.")
            most = sum(one.name != "self" for one in placed)
            came = most + len(args) - len(placed)
            raise TypeError(f"{function.__name__} takes {most} by position, got {came}. {cure}")
        for one in placed[len(args) :]:
            if one.default is one.empty and one.name not in kwargs and one.name in cures:
                raise TypeError(f"{function.__name__} needs {one.name!r}: {cures[one.name]}")
        return function(*args, **kwargs)

    return taught


def _argument_words(function: str, unknown: str, names: list[str]) -> str:
    cure = ARGUMENTS.get(function, {}).get(unknown)
    own = [name for name in names if name != "self"]
    if cure is None:
        near = difflib.get_close_matches(unknown, own, 1)
        cure = f"did you mean {near[0]}?" if near else f"it takes {', '.join(own) or 'none'}."
    return f"{function} has no argument {unknown!r}: {cure}"


def attribute_words(owner: str, name: str, own: list[str], table: dict[str, str]) -> str:
    """Return the message for a name that a module or an object has not.

    >>> attribute_words("a Dataset", "cardinality", [], METHODS)
    "a Dataset has no 'cardinality': write len(ds)."
    """
    cure = table.get(name)
    if cure is None and not name.startswith("_"):
        near = difflib.get_close_matches(name, own, 1)
        cure = f"did you mean {near[0]}?" if near else None
    return f"{owner} has no {name!r}{f': {cure}' if cure else '.'}"
