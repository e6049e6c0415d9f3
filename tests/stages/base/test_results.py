"""What functions return, in every way out of a dataset: as it was when it was returned."""

import numpy as np
import pytest
from tests.reused_results import (
    FUNCTIONS,
    NUM_ROWS,
    X,
    expected,
    generator,
    on_each_thread,
    plain,
    spec_of,
)

import penstock as ps
from penstock.core.nest import flatten
from penstock.stages.base.results import Misfit, conformed

NOT_IN_PROCESSES = {
    # Pickled, a view and its base become two arrays, and these functions depend on both.
    *("nest_of_the_same_arrays", "read_only_view"),
    "tuple_from_a_cache",  # lru_cache can't be sent
}


def batched(ds):
    rows = []
    for batch in list(ds.padded_batch(5) if not is_fixed(ds) else ds.batch(5)):
        leaves = flatten(batch)[0]
        rows += [[leaf[row] for leaf in leaves] for row in range(len(leaves[0]))]
    return rows


def is_fixed(ds):
    return all(None not in leaf.shape for leaf in flatten(ds.spec)[0])


def cached(ds):
    kept = ds.cache()
    list(kept)
    return list(kept)


def written(ds, path):
    ds.write(path)
    return list(ps.from_files(path))


def cached_on_disk(ds, path):
    kept = ds.cache(path)
    list(kept)
    return list(kept)


WAYS = {
    "elements": lambda ds, path: list(ds),
    "on this thread": lambda ds, path: list(ds.with_options(threads=0)),
    "on threads": lambda ds, path: list(ds.repeat(1).with_options(threads=3, processes=0)),
    "of a flow": lambda ds, path: list(ds.filter(lambda *_: True)),
    "cached": lambda ds, path: cached(ds),
    "cached on disk": cached_on_disk,
    "written": written,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_element_is_what_the_function_returned_whatever_it_does_later(name, way, tmp_path):
    make, spec = FUNCTIONS[name]
    source = X.copy()
    ds = ps.from_arrays(source).map(on_each_thread(make), spec=spec)
    assert [plain(row) for row in WAYS[way](ds, tmp_path / "rows")] == expected(make)
    np.testing.assert_array_equal(source, X)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_so_are_the_rows_of_batches(name):
    make, spec = FUNCTIONS[name]
    found = batched(ps.from_arrays(X).map(on_each_thread(make), spec=spec))
    wanted = batched(ps.from_generator(lambda: iter(snapshots(make)), spec_of(make, spec)))
    assert [plain(tuple(row)) for row in found] == [plain(tuple(row)) for row in wanted]
    assert len(found) == NUM_ROWS


def snapshots(make):
    """Return what a function returns, a new function for each row: nothing is there to be filled anew."""
    return [make()(row.copy()) for row in X]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FUNCTIONS.keys() - NOT_IN_PROCESSES))
def test_so_it_is_in_worker_processes(name):
    make, spec = FUNCTIONS[name]
    ds = ps.from_arrays(X).map(make(), spec=spec).with_options(processes=1)
    assert [plain(row) for row in list(ds)] == expected(make)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_writing_into_an_element_reaches_no_other_and_not_the_function(name):
    make, spec = FUNCTIONS[name]
    ds = ps.from_arrays(X).map(make(), spec=spec).with_options(threads=0)
    wanted = expected(make)
    for element, row in zip(ds, wanted, strict=True):
        assert plain(element) == row
        for leaf in flatten(element)[0]:
            if isinstance(leaf, np.ndarray) and leaf.dtype.kind == "f":
                leaf[...] = 77


@pytest.mark.parametrize("name", FUNCTIONS)
def test_statistics_are_those_of_what_was_returned(name):
    make, spec = FUNCTIONS[name]
    ds = ps.from_arrays(X).map(on_each_thread(make), spec=spec)
    copies = ps.from_generator(lambda: iter(snapshots(make)), ds.spec)
    found, wanted = flatten(ds.statistics())[0], flatten(copies.statistics())[0]
    for mine, theirs in zip(found, wanted, strict=True):
        # Where blocks end depends on how fast they are made, and with it the last digit of a sum.
        assert mine.count == theirs.count
        assert str((mine.minimum, mine.maximum)) == str((theirs.minimum, theirs.maximum))
        for one, other in ((mine.mean, theirs.mean), (mine.variance, theirs.variance)):
            assert (one is None) is (other is None)
            if one is not None:
                np.testing.assert_allclose(one, other, rtol=1e-12)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_batched_functions_are_no_other_case(name):
    def of_batch(make):
        function = make()
        return lambda batch: function(batch[0])

    make, spec = FUNCTIONS[name]
    ds = ps.from_arrays(X).batch(2, drop_remainder=True)
    ds = ds.map(on_each_thread(lambda: of_batch(make)), spec=spec)
    assert [plain(row) for row in list(ds)] == expected(make, X[::2])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_maps_after_each_other_see_what_the_one_before_returned(name):
    make, spec = FUNCTIONS[name]
    kept = []

    def keep(*row):
        kept.append(row)
        return row[0] if len(row) == 1 else row

    ds = ps.from_arrays(X).map(make(), spec=spec)
    ds = ds.map(keep, spec=ds.spec)
    found = list(ds.with_options(threads=0))
    assert [plain(row) for row in found] == expected(make)


def test_generators_of_blocks_may_fill_the_same_block_again():
    def blocks():
        block = np.zeros((5, 4), np.float32)
        for start in range(0, NUM_ROWS, 5):
            size = min(5, NUM_ROWS - start)
            block[:size] = X[start : start + size]
            yield block[:size]

    ds = ps.from_generator(blocks, ps.ArraySpec((4,), "float32"), rows_per_item="many")
    np.testing.assert_array_equal(list(ds), X)
    np.testing.assert_array_equal(np.concatenate(list(ds.batch(7))), X)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_generators_may_yield_the_same_memory_again(name):
    make, spec = FUNCTIONS[name]
    ds = ps.from_generator(generator(make), spec_of(make, spec))
    assert [plain(row) for row in list(ds)] == expected(make)
    assert [plain(row) for row in list(ds.with_options(threads=0))] == expected(make)
    assert [plain(row) for row in cached(ds)] == expected(make)


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [
        (300, "int8", 127),
        (-1, "uint8", 0),
        (np.int64(-300), "int8", -128),
        (np.uint64(2**64 - 1), "int64", 2**63 - 1),
        (np.uint64(5), "int8", 5),
        (np.full(2, -5, "int8"), "uint64", [0, 0]),
        ([300, -300], "int8", [127, -128]),
        (2, "bool", True),
        (np.array([0, 3]), "bool", [False, True]),
        ([0.5, 0.0], "bool", [True, False]),
        (np.array([0.5, 2.5]), "float32", [0.5, 2.5]),
        ([0.5, 2.5], "float16", [0.5, 2.5]),
        (np.array([1, 2]), "float32", [1.0, 2.0]),
        (np.array([1j, 2.5]), "complex64", [1j, 2.5]),
        (np.array([0.5]), "bfloat16", [0.5]),
        (np.array(["2026-01-02T03"], "datetime64[h]"), "datetime64[D]", None),
    ],
)
def test_what_an_error_names_instead_of_a_value_is_a_value_that_fits(value, dtype, wanted):
    spec = ps.ArraySpec(np.shape(value), dtype)
    with pytest.raises(Misfit) as raised:
        conformed(value, spec)
    made = eval(raised.value.instead, {"np": np, "value": value})  # As a user types it in.
    assert np.asarray(made).dtype == spec.dtype
    assert wanted is None or conformed(made, spec).tolist() == wanted


@pytest.mark.parametrize(
    ("value", "dtype"), [(2.5, "int8"), (2j, "float32"), (np.ones(1), "M8[s]")]
)
def test_nothing_is_named_instead_of_a_value_that_would_be_another(value, dtype):
    with pytest.raises(Misfit) as raised:
        conformed(value, ps.ArraySpec(np.shape(value), dtype))
    assert raised.value.instead == ""
