"""What users import and see: the names, their signatures, the tree of errors, and how things show themselves."""

import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
import typing
from collections.abc import Callable

import numpy as np
import pytest

import penstock as ps
from penstock import errors

# All of the interface. A name that comes or goes is announced in CHANGELOG.md.
NAMES = """
    AccessError ArraySpec BudgetError CannotPickle DataError Dataset DiskFullError Explanation FieldError
    FileChangedError FileError FixedFeature FunctionError ImageFeature LengthError MissingFileError NotAFileError
    PenstockError PenstockWarning RangeError RankMismatchError
    ReadError RecordError Report SequenceFeature SpecMismatchError StaleCacheError StateError Stream StreamClosedError
    TargetExistsError TensorFeature VarFeature WorkersUnavailable WriteError concatenate fit_arrays from_arrays
    from_files from_generator from_tfrecord interleave merge_reports mix spec_of tfrecord zip
""".split()  # noqa: SIM905  # a list, one a line, would be a page
DATASET = """
    apply batch bucket_by_sequence_length cache close distribute enumerate explain filter flat_map map node options pack
    padded_batch peek prefetch rebatch reduce repeat resample shard shuffle skip spec split statistics stream take
    take_while to_jax to_keras to_tf to_torch unbatch window with_options write
""".split()  # noqa: SIM905  # a list, one a line, would be a page
# Each error, with the one that it is derived from; what Python calls it stands behind the comma.
TREE = {
    "BudgetError": "PenstockError, MemoryError",
    "CannotPickle": "PenstockError, TypeError",
    "FunctionError": "PenstockError, RuntimeError",
    "LengthError": "PenstockError, ValueError",
    "RangeError": "PenstockError, OverflowError",
    "RankMismatchError": "PenstockError, ValueError",
    "RecordError": "PenstockError, ValueError",
    "SpecMismatchError": "PenstockError, ValueError",
    "StaleCacheError": "PenstockError, ValueError",
    "StateError": "PenstockError, ValueError",
    "StreamClosedError": "PenstockError, RuntimeError",
    "WorkersUnavailable": "PenstockError, RuntimeError",
    "FileError": "PenstockError",
    "DataError": "FileError, ValueError",
    "AccessError": "DataError, PermissionError",
    "FieldError": "DataError",
    "FileChangedError": "DataError",
    "MissingFileError": "DataError, FileNotFoundError",
    "NotAFileError": "DataError, IsADirectoryError",
    "ReadError": "DataError, OSError",
    "WriteError": "FileError, OSError",
    "DiskFullError": "WriteError",
    "TargetExistsError": "WriteError, FileExistsError",
}


def test_the_exported_names_are_these():
    assert ps.__all__ == NAMES


def test_dir_shows_what_is_exported_and_nothing_else():
    shown = [name for name in dir(ps) if not name.startswith("__")]
    assert sorted(shown) == NAMES
    # Modules that were imported on the way, before and after, are not shown.
    code = "import penstock as ps, penstock.io.paths; ps.fit_arrays; print(*sorted(dir(ps)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == sorted([*NAMES, "__version__"])


@pytest.mark.parametrize("name", NAMES)
def test_every_exported_name_is_there_and_documented(name: str):
    value = getattr(ps, name)
    assert inspect.getdoc(value), name


def test_the_methods_of_a_dataset_are_these():
    assert [name for name in dir(ps.Dataset) if not name.startswith("_")] == DATASET


def test_every_error_of_ours_is_in_one_tree_and_exported():
    ours = {
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, Exception) and not issubclass(kind, Warning)
    }
    bases = {
        name: ", ".join(base.__name__ for base in kind.__bases__) for name, kind in ours.items()
    }
    assert bases == {"PenstockError": "Exception", **TREE}
    assert all(getattr(ps, name) is kind for name, kind in ours.items())


def test_no_error_of_ours_is_defined_elsewhere_but_those_that_are_caught_on_the_way():
    for module in pkgutil.walk_packages(ps.__path__, "penstock."):
        if "feeds" not in module.name:
            importlib.import_module(module.name)

    def below(kind: type) -> set[type]:
        return {kind} | {more for one in kind.__subclasses__() for more in below(one)}

    elsewhere = {
        one.__name__ for one in below(ps.PenstockError) if one.__module__ != "penstock.errors"
    }
    # Of a pool of workers, which stands behind a FunctionError; of a line without an end, a DataError.
    assert elsewhere == {"PoolClosed", "RemoteError", "WorkerDied", "UnclosedError"}


@pytest.mark.parametrize(
    "mistake",
    [
        lambda folder: ps.from_files(folder / "missing.npy"),
        lambda folder: ps.from_tfrecord(folder / "missing.tfrecord"),
        lambda folder: ps.from_files(folder / "damaged.npy"),
        lambda folder: ps.from_files(folder, format="npz"),
        lambda folder: ps.from_arrays(np.arange(3)).write(folder / "taken"),
        lambda folder: ps.from_arrays(np.arange(3)).cache(folder / "damaged.npy"),
        lambda folder: ps.tfrecord.decode_example(b"garbage"),
        lambda folder: ps.from_arrays((np.arange(3), np.arange(4))),
        lambda folder: ps.from_arrays(np.arange(3)).stream(state={}),
        lambda folder: list(ps.from_arrays(np.zeros((9, 9))).with_options(memory=1)),
        lambda folder: list(ps.from_arrays(np.arange(3)).map(lambda x: 1 // (x - 1))),
    ],
)
def test_one_except_catches_what_can_go_wrong(mistake: Callable[..., object], tmp_path):
    (tmp_path / "damaged.npy").write_bytes(b"no array")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "notes.txt").write_text("mine")
    with pytest.raises(ps.PenstockError):
        mistake(tmp_path)


def arguments(function: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name != "self"]


def test_stages_take_their_arguments_by_the_names_and_in_the_order_of_tf_data():
    tf = pytest.importorskip("tensorflow")
    theirs = tf.data.Dataset
    for name in DATASET:
        # A shuffle needs no buffer, a cache has a path and not a file name; what is spread over workers,
        # and what a padded batch is padded to, is found by itself.
        if not hasattr(theirs, name) or name in ("shuffle", "cache", "options"):
            continue
        known = arguments(getattr(theirs, name))
        signature = inspect.signature(getattr(ps.Dataset, name))
        positional = [
            one.name
            for one in signature.parameters.values()
            if one.kind is one.POSITIONAL_OR_KEYWORD and one.name != "self"
        ]
        assert positional == known[: len(positional)], name


@pytest.mark.parametrize("function", [ps.from_arrays, ps.from_files, ps.from_generator, ps.from_tfrecord,
    ps.zip, ps.concatenate, ps.mix, ps.interleave], ids=lambda one: one.__name__)  # fmt: skip
def test_makers_say_what_they_return(function: Callable[..., object]):
    assert inspect.signature(function).return_annotation is ps.Dataset


def test_feeds_have_types_of_their_own():
    for name in ("to_keras", "to_jax", "to_torch", "to_tf"):
        returned = inspect.signature(getattr(ps.Dataset, name)).return_annotation
        assert "Feed" in str(returned), name


def test_choices_are_literals():
    hints = inspect.signature(ps.mix).parameters["stop"].annotation
    assert typing.get_args(hints) == ("first", "all")
    assert "skip" in str(inspect.signature(ps.from_files).parameters["on_error"].annotation)
    assert "tfrecord" in str(inspect.signature(ps.Dataset.write).parameters["format"].annotation)


METHODS = {
    f"Dataset.{name}": getattr(ps.Dataset, name)
    for name in DATASET
    if name not in ("node", "options", "spec")
}
FUNCTIONS = {
    name: getattr(ps, name) for name in NAMES if inspect.isfunction(getattr(ps, name, None))
}


@pytest.mark.parametrize("name", [*METHODS, *FUNCTIONS])
def test_every_argument_is_explained_where_it_is_used(name: str):
    function = METHODS.get(name) or FUNCTIONS[name]
    text = inspect.getdoc(function) or ""
    for argument in arguments(function):
        assert f"`{argument}`" in text or re.search(rf"^\s+{argument}: ", text, re.MULTILINE), (
            argument
        )


def test_prefetch_is_an_option_as_well():
    ds = ps.from_arrays(np.arange(100)).batch(10)
    assert ds.prefetch(0).options == ds.with_options(prefetch=0).options
    assert ds.with_options(prefetch=0).explain().threads == 0
    assert ds.prefetch(0).prefetch(-1).explain() == ds.explain()
    assert ds.prefetch(0).prefetch().explain() == ds.explain()
    with pytest.raises(ValueError, match="prefetch must be at least -1, got -3"):
        ds.prefetch(-3)


def test_a_stream_tells_what_it_is_and_where_it_stands():
    stream = ps.from_arrays(np.arange(10)).batch(4).stream(epoch=2)
    assert repr(stream) == "<Stream of batch(4): epoch 2, after batch 0 of 3>"
    next(stream)
    assert repr(stream) == "<Stream of batch(4): epoch 2, after batch 1 of 3>"
    list(stream)
    assert repr(stream) == "<Stream of batch(4): epoch 2, after batch 3 of 3, closed>"
    with ps.from_arrays(np.arange(10)).repeat().stream() as endless:
        next(endless)
        assert repr(endless) == "<Stream of repeat(): epoch 0, after row 1>"
