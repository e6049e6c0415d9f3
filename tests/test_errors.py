"""Every classic mistake is told when the chain is built, at the user's line: the rule, what came, the cure."""

import traceback
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.errors import warn_user

X = np.zeros((10, 3), "f4")


def ds() -> ps.Dataset:
    return ps.from_arrays(X)


RAGGED = [np.arange(i) for i in range(4)]

# What a user writes, the error, and what it must say.
MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "lengths that differ": (
        lambda: ps.from_arrays((X, np.zeros(7))),
        ps.LengthError,
        r"same number of rows, got 10 in field '0' and 7 in field '1'.\n.*wrong.*\n.*right: .*x\[:7\], y\[:7\]",
    ),
    "lengths that differ, by name": (
        lambda: ps.from_arrays({"image": X, "meta": {"label": np.zeros(7)}}),
        ps.LengthError,
        "in field 'image' and 7 in field 'meta.label'",
    ),
    "a 0-d array": (
        lambda: ps.from_arrays((X, np.array(3))),
        ValueError,
        r"field '1' has no rows: it is a 0-d array; .* np.broadcast_to\(value, \(num_rows,\)\)",
    ),
    "object dtype": (
        lambda: ps.from_arrays({"a": np.array(["x", None], object)}),
        TypeError,
        r"field 'a' has dtype object.*\n.*array.tolist\(\).*\n.*list\(array\)",
    ),
    "a struct with an object in it": (
        lambda: ps.from_arrays(np.zeros(3, [("a", "O")])),
        TypeError,
        "can't be kept in blocks",
    ),
    "NumPy's text of any length": (
        lambda: ps.from_arrays(np.array(["a"], np.dtypes.StringDType())),
        TypeError,
        "StringDType.*\n.*array.tolist",
    ),
    "a masked array": (
        lambda: ps.from_arrays(np.ma.array([1])),
        TypeError,
        r"lose its mask; fill it: x.filled\(0\)",
    ),
    "masked arrays in a list": (
        lambda: ps.from_arrays([np.ma.array([1])]),
        TypeError,
        "lose its mask",
    ),
    "arrays of objects in a list": (
        lambda: ps.from_arrays([np.array([None])]),
        TypeError,
        "dtype object",
    ),
    "nothing": (lambda: ps.from_arrays(()), ValueError, "at least one array, got an empty nest"),
    "an empty list": (
        lambda: ps.from_arrays([]),
        ValueError,
        r"empty list, which has no dtype; give np.empty",
    ),
    "a list of lists": (
        lambda: ps.from_arrays([[1, 2], [3, 4]]),
        TypeError,
        r"only numbers or only NumPy arrays, got list.\n.*wrong.*\n.*right: from_arrays\(np.asarray",
    ),
    "a list of this and that": (lambda: ps.from_arrays([1, "a"]), TypeError, "got int, str"),
    "bytes and str in a list": (lambda: ps.from_arrays(["a", b"b"]), TypeError, "got bytes, str"),
    "arrays of different dtypes in a list": (
        lambda: ps.from_arrays([np.zeros(2), np.zeros(2, int)]),
        ValueError,
        r"must agree in dtype .* got float64 \(2,\) in row 0 and int64 \(2,\) in row 1",
    ),
    "arrays of different dimensions in a list": (
        lambda: ps.from_arrays([np.zeros(2), np.zeros((2, 2))]),
        ValueError,
        "number of dimensions",
    ),
    "None for an array": (
        lambda: ps.from_arrays((X, None)),
        TypeError,
        "field '1' must be an array .*got NoneType",
    ),
    "a number for an array": (lambda: ps.from_arrays(3), TypeError, "must be an array .*got int"),
    "a generator for an array": (lambda: ps.from_arrays(x for x in X), TypeError, "got generator"),
    "shuffle with a buffer size": (
        lambda: ds().shuffle(1024),
        TypeError,
        r"shuffle takes no buffer size.*\n.*wrong: ds.shuffle\(1024\)\n.*right: ds.shuffle\(seed=0\)",
    ),
    "shuffle of what never ends": (
        lambda: ds().repeat().shuffle(),
        ValueError,
        "there is no last row.\n.*wrong",
    ),
    "an exact shuffle of a flow": (
        lambda: ds().filter(lambda x: True).shuffle(exact=True),
        ValueError,
        r"needs random access to the rows, and filter\(<lambda>\) can only be read forward.*cache\(\).shuffle\(\)",
    ),
    "cache of what never ends": (
        lambda: ds().repeat().cache(),
        ValueError,
        r"put it before repeat\(\)",
    ),
    "batch of 0": (lambda: ds().batch(0), ValueError, "batch_size must be at least 1, got 0"),
    "batch of a fraction": (
        lambda: ds().batch(2.5),
        TypeError,
        "batch_size must be a whole number, got 2.5",
    ),
    "batch of a text": (
        lambda: ds().batch("32"),
        TypeError,
        "batch_size must be a whole number, got '32'",
    ),
    "batch of True": (lambda: ds().batch(True), TypeError, "whole number, got True"),
    "batch of ragged rows": (
        lambda: ps.from_arrays(RAGGED).batch(4),
        ValueError,
        r"can't stack rows whose shapes differ: field 'value' is ArraySpec\(\(None,\), int64\).\n.*\.padded_batch\(4\)",
    ),
    "batch of images of any size": (
        lambda: ps.from_generator(
            lambda: iter([]), spec=ps.ArraySpec((None, None, 3), "uint8")
        ).batch(4),
        ValueError,
        r"3\), uint8\).\n  bring images to one size: .* size=\(224, 224\).*\n  pad them: \.padded_batch\(4\)",
    ),
    "window of ragged rows": (
        lambda: ps.from_arrays(RAGGED).window(4),
        ValueError,
        r"window\(4\) can't stack rows whose shapes differ: .*\n  bring them to one shape: \.map",
    ),
    "padded_batch of 0": (lambda: ds().padded_batch(0), ValueError, "at least 1, got 0"),
    "padding that does not fit the dtype": (
        lambda: ps.from_arrays(RAGGED).padded_batch(2, padding_values=0.5),
        ValueError,
        "padding_values for field 'value' must be a value of int64, got 0.5",
    ),
    "padding of text with a number": (
        lambda: (
            ps.from_arrays(np.arange(3))
            .map(lambda x: x, spec=ps.ArraySpec((None,), str))
            .padded_batch(2, padding_values=0)
        ),
        TypeError,
        "padding_values for field 'value' must be str, got 0",
    ),
    "padding of another nest": (
        lambda: ps.from_arrays({"a": RAGGED}).padded_batch(2, padding_values={"b": 0}),
        ValueError,
        "padding_values must be one value, or a nest like a row",
    ),
    "unbatch of single values": (
        lambda: ps.from_arrays(np.arange(3)).unbatch(),
        ValueError,
        r"unbatch needs a first axis in every field, and 'value' is ArraySpec\(\(\), int64\)",
    ),
    "unbatch of fields that disagree": (
        lambda: ps.from_arrays((np.zeros((3, 2)), np.zeros((3, 4)))).unbatch(),
        ValueError,
        "same first axis in every field, got {'0': 2, '1': 4}",
    ),
    "unbatch of nothing": (
        lambda: ds().map(lambda x: ()).unbatch(),
        ValueError,
        "at least one field",
    ),
    "take of less than all": (
        lambda: ds().take(-2),
        ValueError,
        "count must be at least -1, got -2",
    ),
    "skip of less than all": (
        lambda: ds().skip(-2),
        ValueError,
        "count must be at least -1, got -2",
    ),
    "repeat of less than ever": (
        lambda: ds().repeat(-2),
        ValueError,
        "count must be at least -1, got -2",
    ),
    "shard past the last": (
        lambda: ds().shard(3, 3),
        ValueError,
        "needs 0 <= index < num_shards, got num_shards=3 and index=3",
    ),
    "shard with the index first": (
        lambda: ds().shard(1, 4),
        ValueError,
        r"shard\(num_shards, index\) needs 0 <= index < num_shards, got num_shards=1 and index=4",
    ),
    "reduce with the function first": (
        lambda: ds().reduce(lambda total, x: total + x, 0),
        TypeError,
        r"right: ds.reduce\(0, lambda total, x: total \+ x\)",
    ),
    "enumerate from a fraction": (
        lambda: ds().enumerate(1.5),
        TypeError,
        "start must be a whole number, got 1.5",
    ),
    "map without a function": (lambda: ds().map(3), TypeError, "map needs a function, got int"),
    "filter without a function": (
        lambda: ds().filter(None),
        TypeError,
        "filter needs a function, got NoneType",
    ),
    "map that returns nothing": (
        lambda: ds().map(lambda x: None),
        ps.SpecMismatchError,
        "on row 0: .*Did it forget to return something",
    ),
    "map with the wrong number of arguments": (
        lambda: ps.from_arrays((X, X)).map(lambda pair: pair),
        TypeError,
        r"a row is a tuple of 2, whose parts come as 2 arguments. It takes \(pair\)",
    ),
    "map with a spec that is none": (
        lambda: ds().map(lambda x: x, spec=(3,)),
        TypeError,
        "spec must be a nest of ArraySpec, .*got 3; ps.spec_of",
    ),
    "a seed below 0": (
        lambda: ds().map(lambda x, r: x, seed=-1),
        ValueError,
        "seed must be at least 0, got -1",
    ),
    "a window that is no size": (
        lambda: ds().shuffle(window="big"),
        ValueError,
        "must look like '512MB'",
    ),
    "a budget that is no size": (
        lambda: ds().with_options(memory="lots"),
        ValueError,
        "must look like '512MB'",
    ),
    "a budget of nothing": (
        lambda: ds().with_options(memory=0),
        ValueError,
        "at least 1 byte, got 0",
    ),
    "threads below 0": (
        lambda: ds().with_options(threads=-1),
        ValueError,
        "threads must be at least 0, got -1",
    ),
    "prefetch below 0": (
        lambda: ds().prefetch(-2),
        ValueError,
        "prefetch must be at least -1, got -2",
    ),
    "an epoch below 0": (
        lambda: ds().stream(epoch=-1),
        ValueError,
        "epoch must be at least 0, got -1",
    ),
    "zip of nothing": (lambda: ps.zip(), ValueError, "zip needs at least one dataset"),
    "zip of arrays": (
        lambda: ps.zip(ds(), X),
        TypeError,
        r"zip needs datasets, got ndarray for input 1; arrays become one with ps.from_arrays",
    ),
    "zip of unequal lengths": (
        lambda: ps.zip(ds(), ds().take(3)),
        ps.LengthError,
        "got 10 rows and 3 rows",
    ),
    "concatenate of different nests": (
        lambda: ps.concatenate(ds(), ps.from_arrays((X,))),
        ps.SpecMismatchError,
        "concatenate needs rows of one structure, got .* in input 1",
    ),
    "concatenate of different dtypes": (
        lambda: ps.concatenate(ds(), ps.from_arrays(X.astype("f8"))),
        ps.SpecMismatchError,
        "needs rows of one spec, got .*float32.* for field 'value' and, in input 1, .*float64",
    ),
    "mix of different shapes": (
        lambda: ps.mix([ds(), ps.from_arrays(X[:, :2])]),
        ps.SpecMismatchError,
        "mix needs rows of one spec",
    ),
    "mix with too few weights": (
        lambda: ps.mix([ds(), ds()], weights=[1]),
        ValueError,
        "weight for each of 2 datasets, got 1",
    ),
    "mix with a weight of 0": (
        lambda: ps.mix([ds(), ds()], weights=[1, 0]),
        ValueError,
        "greater than 0",
    ),
    "mix with a weight that is no number": (
        lambda: ps.mix([ds(), ds()], weights=[1, float("nan")]),
        ValueError,
        "greater than 0",
    ),
    "mix with another stop": (
        lambda: ps.mix([ds()], stop="last"),
        ValueError,
        """stop must be "first" or "all", got 'last'""",
    ),
    "a shape that is a number": (lambda: ps.ArraySpec(3, "f4"), TypeError, r"write \(3,\)"),
    "a dimension below 0": (
        lambda: ps.ArraySpec((-1,), "f4"),
        ValueError,
        "None or a whole number >= 0, got -1",
    ),
    "a spec of objects": (
        lambda: ps.ArraySpec((), object),
        TypeError,
        "plain NumPy dtype, bytes or str, got object",
    ),
    "more rows than can be numbered": (
        lambda: ds().repeat(1 << 61),
        ValueError,
        r"more than 2\*\*62",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_when_the_chain_is_built_at_the_users_line(mistake: str):
    make, error, message = MISTAKES[mistake]
    with pytest.raises(error, match=message) as caught:
        make()
    ours = [
        frame
        for frame in traceback.extract_tb(caught.value.__traceback__)
        if frame.filename == __file__
    ]
    assert (
        ours[-1].lineno in range(make.__code__.co_firstlineno, make.__code__.co_firstlineno + 6)
        or len(ours) > 1
    )


@pytest.mark.parametrize("package", ["keras", "torch", "tensorflow"])
def test_a_warning_within_a_framework_is_of_the_line_that_called_it(package: str):
    names: dict[str, Any] = {"__name__": f"{package}.src.trainer"}
    exec(compile("def fit(call):\n    call()\n", "trainer.py", "exec"), names)
    with pytest.warns(ps.PenstockWarning, match="of a feed") as caught:
        names["fit"](partial(warn_user, "of a feed"))
    assert caught[0].filename == __file__


def test_a_warning_within_a_package_of_the_users_is_of_its_line():
    names: dict[str, Any] = {"__name__": "keras_of_mine.trainer"}
    exec(compile("def fit(call):\n    call()\n", "trainer.py", "exec"), names)
    with pytest.warns(ps.PenstockWarning, match="of a feed") as caught:
        names["fit"](partial(warn_user, "of a feed"))
    assert caught[0].filename == "trainer.py"


def test_all_errors_of_its_own_have_one_base_and_a_familiar_one():
    familiar = {
        ps.BudgetError: MemoryError,
        ps.FunctionError: RuntimeError,
        ps.SpecMismatchError: ValueError,
        ps.StateError: ValueError,
        ps.LengthError: ValueError,
        ps.StreamClosedError: RuntimeError,
    }
    for error, base in familiar.items():
        assert issubclass(error, ps.PenstockError)
        assert issubclass(error, base)


def test_what_is_read_is_told_for_odd_but_legal_rows():
    found = ps.from_arrays({1: X, "b": {"c": X}})
    assert "(1: float32[3], b.c: float32[3])" in str(found.explain())
