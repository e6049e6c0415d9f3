"""map: what a function is given, what it may return, and how often it is called."""

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from tests.conformance import run
from tests.stages.conformance import (
    MAPPED,
    NUM_ROWS,
    RAGGED_ROWS,
    RAGGED_SPEC,
    ROWS,
    Chain,
    StageConformance,
    batches,
    cases,
    numbered,
    ragged,
    scaled,
)

import penstock as ps
from penstock.core.nest import flatten


def batch_scaled(x: Any, y: Any) -> Any:
    return x * 2, y + 1


CHAINS: dict[str, Chain] = {
    "map": Chain(lambda ds: ds.map(scaled), MAPPED),
    "map with a spec": Chain(lambda ds: ds.map(ragged, spec=RAGGED_SPEC), RAGGED_ROWS),
    "map of batches": Chain(
        lambda ds: ds.batch(5).map(batch_scaled),
        [(x * 2, y + 1) for x, y in batches(ROWS, 5)],
    ),
    "map to nothing": Chain(lambda ds: ds.map(lambda *_: ()), [()] * NUM_ROWS, is_pickled=False),
}


class TestMap(StageConformance):
    case = cases(CHAINS)


def noisy(x: Any, y: Any, random: np.random.Generator) -> Any:
    return y * 1000 + random.integers(1000)


def test_a_seeded_map_depends_on_seed_epoch_and_row_alone():
    ds = numbered().map(noisy, seed=1)
    first = [int(v) for v in run(ds)]
    assert [int(v) for v in run(ds.with_options(threads=0))] == first
    assert [int(v) for v in run(ds.skip(5))] == first[5:]
    assert [int(v) for v in run(ds, epoch=1)] != first
    assert [int(v) for v in run(numbered().map(noisy, seed=2))] != first
    assert [int(v) for v in run(ds.repeat(2))][:NUM_ROWS] == first
    assert [int(v) for v in run(ds.repeat(2))][NUM_ROWS:] == [int(v) for v in run(ds, epoch=1)]
    assert [int(v) for v in run(ds.cache(), epoch=1)] == first


def test_map_runs_once_a_row_and_once_more_when_the_chain_is_built():
    calls: list[int] = []
    ds = ps.from_arrays(np.arange(50)).map(lambda x: (calls.append(int(x)), x)[1])
    assert calls == [0]
    list(ds.with_options(processes=0))  # Else it is measured first, on the first row.
    assert sorted(calls[1:]) == list(range(50))


def test_map_with_a_spec_is_not_run_when_the_chain_is_built():
    def fails(x: Any) -> Any:
        raise AssertionError

    ds = ps.from_arrays(np.arange(5)).map(fails, spec=ps.ArraySpec((), "f4"))
    assert ds.spec == ps.ArraySpec((), "f4")


def test_map_may_return_one_array_again_and_again():
    buffer = np.zeros(2)

    def fill(x: Any) -> Any:
        buffer[:] = x
        return buffer

    for spec in (ps.ArraySpec((2,), "f8"), ps.ArraySpec((None,), "f8")):
        ds = ps.from_arrays(np.arange(4.0)).map(fill, spec=spec).with_options(threads=0)
        assert [row.tolist() for row in ds] == [[i, i] for i in range(4)]


def test_map_of_fixed_width_text_gives_text():
    ds = ps.from_arrays(np.array(["a", "bcd"], "U5")).map(lambda s: s + "!")
    assert ds.spec == ps.ArraySpec((), str)
    assert list(ds) == ["a!", "bcd!"]
    assert list(ps.from_arrays(np.array([b"a", b"bcd"])).map(lambda s: s)) == [b"a", b"bcd"]


def test_map_of_batches_of_text_without_rows_can_be_built():
    ds = ps.from_arrays(["a", "b"]).batch(2).take(0).map(lambda batch: batch)
    assert list(ds) == []


def test_map_may_change_its_rows_in_place():
    array = np.zeros((6, 2))

    def change(x: Any) -> Any:
        x += 1
        return x

    ds = ps.from_arrays(array).map(change)
    assert sum(float(x.sum()) for x in ds) == 12
    assert array.sum() == 0


def test_map_gets_a_named_tuple_and_a_dict_whole_and_a_tuple_in_parts():
    class Pair(NamedTuple):
        a: Any
        b: Any

    x = np.arange(3)
    assert [int(v) for v in ps.from_arrays(Pair(x, x)).map(lambda p: p.a + p.b)] == [0, 2, 4]
    assert [int(v) for v in ps.from_arrays({"a": x}).map(lambda d: d["a"])] == [0, 1, 2]
    assert [int(v) for v in ps.from_arrays((x, (x, x))).map(lambda a, bc: a + bc[1])] == [0, 2, 4]


@pytest.mark.parametrize("options", [{}, {"threads": 0}, {"threads": 3}, {"processes": 1}], ids=str)
def test_what_a_function_writes_into_its_row_reaches_nothing_before_it(options):
    def changes(x):
        x += 100
        return x

    x = np.arange(40, dtype=np.float32).reshape(20, 2)
    rows = ps.from_arrays(x)
    flow = rows.filter(lambda _: True)
    windows = np.lib.stride_tricks.sliding_window_view(x, 3, axis=0).swapaxes(1, 2)
    chains = {
        "rows": (rows, x),
        "cached": (rows.cache(), x),
        "cached flow": (flow.cache(), x),
        "repeated": (rows.repeat(2), np.concatenate([x, x])),
        "repeated flow": (flow.repeat(2), np.concatenate([x, x])),
        "windows": (rows.window(3, shift=1), windows),
        "batches": (rows.batch(5), x.reshape(4, 5, 2)),
        "list": (ps.from_arrays(list(x)), x),
        "generator": (ps.from_generator(lambda: iter(x), ps.ArraySpec((2,), "float32")), x),
    }
    before = x.copy()
    for name, (ds, wanted) in chains.items():
        mapped = ds.map(changes).with_options(**options)
        for _ in range(2):
            np.testing.assert_array_equal(list(mapped), wanted + 100, err_msg=name)
            np.testing.assert_array_equal(x, before, err_msg=name)
    both = ps.zip(rows.cache().map(changes), rows.cache()).with_options(**options)
    np.testing.assert_array_equal([y for _, y in both], x)


DTYPES = [
    *("bool", "int8", ">i4", "uint16", "uint64", ">u8", "float16", ">f8", "complex64", ">c16"),
    *("S5", "U5", "datetime64[s]", ">M8[ms]", "timedelta64[D]", "V3"),
    [("a", "i4"), ("b", ">f8", (2,))],
    *("bfloat16", "float8_e4m3fn"),
]


@pytest.mark.parametrize("options", [{}, {"threads": 0}, {"processes": 1}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_function_that_returns_its_row_keeps_its_dtype(dtype, options):
    name = getattr(ml_dtypes, dtype, dtype) if isinstance(dtype, str) else dtype
    rng = np.random.default_rng(0)
    item = np.dtype(name).itemsize
    raw = rng.integers(1, 100, (6, 2, item), np.uint8)
    if np.dtype(name).kind in "Ub":
        raw[...] = 0
    values = np.frombuffer(raw.tobytes(), name).reshape(6, 2)
    one, many = ps.from_arrays(values[:, 0].copy()), ps.from_arrays(values)
    ragged = ps.from_arrays([values[row, : row % 3] for row in range(6)])
    for ds in (one, many, many.batch(4), many.filter(lambda _: True), ragged, ps.zip(one, many)):
        same = ds.map(lambda *row: row[0] if len(row) == 1 else row).with_options(**options)
        assert same.spec == ds.spec
        for found, row in zip(list(same), list(ds), strict=True):
            for mine, theirs in zip(flatten(found)[0], flatten(row)[0], strict=True):
                assert np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()
                assert np.asarray(mine).dtype == np.asarray(theirs).dtype


def test_python_numbers_are_int64_and_float64_and_numpys_are_what_they_are():
    values = {"i": 1, "f": 1.0, "b": True, "h": np.float16(1), "u": np.uint8(1), "c": 1j}
    spec = ps.from_arrays(np.arange(3)).map(lambda _: values).spec
    names = {key: str(one.dtype) for key, one in spec.items()}
    assert names == {
        "i": "int64",
        "f": "float64",
        "b": "bool",
        "h": "float16",
        "u": "uint8",
        "c": "complex128",
    }


@pytest.mark.parametrize("kind", [bytes, str])
def test_lists_of_text_are_kept_to_the_last_nul(kind):
    words = [b"a\0", b"", b"\0", b"bb\0\0", b"\0x", b"long" * 5 + b"\0"]
    words = words if kind is bytes else [word.decode() for word in words]
    scalar = np.bytes_ if kind is bytes else np.str_
    rows = ps.from_arrays(np.arange(len(words)))
    functions = {
        "a word": lambda row: words[row],
        "NumPy's": lambda row: scalar(words[row]),
        "a list": lambda row: [words[row], words[0]],
        "a list of NumPy's": lambda row: [scalar(words[row])],
        "lists": lambda row: [[words[row], words[0]], [words[1], words[row]]],
    }
    for name, function in functions.items():
        ds = rows.map(function)
        assert ds.spec.dtype is kind, name
        wanted = [function(row) for row in range(len(words))]
        for way in (ds, ds.with_options(processes=1), ds.cache(), ds.batch(2).unbatch()):
            found = list(way)
            assert [np.asarray(f, object).tolist() for f in found] == wanted, name
