"""resample: each class has its exact share of an epoch, by index."""

import gc
import json
import pickle
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import Case, Conformance, assert_same, run

import penstock as ps
from penstock.memory import process_ledger
from penstock.stages.resample import shares

GOLDEN = [0, 1, 7, 7, 2, 8, 8, 9, 3, 4, 9, 6]
X = np.arange(23)
Y = np.array([0] * 15 + [1] * 6 + [2] * 2)[np.random.default_rng(1).permutation(23)]


def rows_of(ds: ps.Dataset, **options: Any) -> list[int]:
    return [int(row[0]) for row in run(ds, **options)]


class TestResample(Conformance):
    @pytest.fixture
    def case(self) -> Case:
        def make() -> ps.Dataset:
            return ps.from_arrays((X, Y)).resample(by=1, num_rows=20, seed=3)

        epochs = [rows_of(make(), epoch=epoch) for epoch in (0, 1)]
        assert sorted(Counter(Y[epochs[0]].tolist()).values()) == [6, 7, 7]
        first, second = ([(X[i], Y[i]) for i in rows] for rows in epochs)
        return Case(make, first, second)


def check(ds: ps.Dataset, labels: Any, counts: dict[Any, int], epoch: int) -> list[int]:
    """Check the shares of an epoch, and that rows of a class come equally often; return its rows."""
    rows = rows_of(ds, epoch=epoch)
    drawn = np.bincount(np.array(rows, np.int64), minlength=len(labels))
    assert len(rows) == len(ds) == sum(counts.values())
    for label, count in counts.items():
        mine = np.flatnonzero(labels == label)
        assert drawn[mine].sum() == count
        if len(mine):
            assert drawn[mine].max() - drawn[mine].min() <= 1
            of_class = [row for row in rows if labels[row] == label]
            assert of_class == sorted(of_class)  # Storage is read forward.
    return rows


@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=200),
    st.integers(0, 500),
    st.lists(st.integers(0, 9) | st.floats(0, 1), min_size=5, max_size=5),
    st.integers(0, 3),
)
def test_shares_are_exact_and_rows_come_equally_often(
    labels: list[int], num_rows: int, weights: list[float], epoch: int
) -> None:
    array = np.array(labels)
    chosen = {label: weights[label] for label in set(labels)}
    ds = ps.from_arrays((np.arange(len(labels)), array)).with_options(threads=0)
    if not any(weight > 1e-6 for weight in chosen.values()):
        return
    order = list(dict.fromkeys(labels))
    # Within a block classes are numbered as they are sorted; shares do not depend on it but for ties.
    found = Counter(array[rows_of(ds.resample(by=1, weights=chosen, num_rows=num_rows))].tolist())
    total = sum(chosen.values())
    for label in order:
        assert abs(found[label] - num_rows * chosen[label] / total) < 1
    check(ds.resample(by=1, weights=chosen, num_rows=num_rows), array, dict(found), epoch)


@pytest.mark.parametrize("num_rows", [None, 1_000_003, 200_000])
def test_long_epochs_repeat_a_pattern_and_are_exact_to_the_row(num_rows: int | None):
    rng = np.random.default_rng(0)
    labels = rng.choice(7, 150_000, p=[0.5, 0.3, 0.1, 0.05, 0.03, 0.01, 0.01])
    ds = ps.from_arrays((np.arange(len(labels)), labels)).resample(by=1, num_rows=num_rows)
    found = np.concatenate([batch[0] for batch in ds.batch(10_000)])
    counts = np.bincount(labels[found], minlength=7)
    assert counts.max() - counts.min() <= 1
    assert counts.sum() == (num_rows or len(labels))
    drawn = np.bincount(found, minlength=len(labels))
    for label in range(7):
        mine = drawn[labels == label]
        assert mine.max() - mine.min() <= 1
    # Any row by its number, as if it were read in order.
    rows = np.sort(rng.integers(0, len(found), 1000))
    node: Any = ds.node
    np.testing.assert_array_equal(node.input_rows(rows, 0), found[rows])


def test_each_epoch_draws_others():
    labels = np.arange(1000) // 900
    ds = ps.from_arrays((np.arange(1000), labels)).resample(by=1)
    first, second = (set(rows_of(ds, epoch=epoch)) for epoch in (0, 1))
    assert 0.2 < len({row for row in first & second if row < 900}) / 500 < 0.8
    seen = set.union(*(set(rows_of(ds, epoch=epoch)) for epoch in range(30)))
    assert len(seen) == 1000


def test_every_row_is_as_likely_to_be_drawn():
    labels = np.zeros(100, int)
    ds = ps.from_arrays((np.arange(100), labels)).resample(by=1, num_rows=30)
    drawn = np.zeros(100, int)
    for epoch in range(400):
        drawn += np.bincount(rows_of(ds, epoch=epoch), minlength=100)
    assert abs(drawn - 120).max() < 5 * np.sqrt(120)


def test_repeat_behind_it_draws_anew_for_each_pass():
    ds = ps.from_arrays((X, Y)).resample(by=1)
    assert rows_of(ds.repeat(2)) == rows_of(ds) + rows_of(ds, epoch=1)


def test_which_rows_are_drawn_never_changes():
    """Golden: only an announced break may change them."""
    ds = ps.from_arrays((np.arange(10), np.arange(10) // 7)).resample(by=1, seed=5, num_rows=12)
    assert rows_of(ds, epoch=1) == GOLDEN


@pytest.mark.parametrize("kind", ["npy", "hdf5"])
def test_rows_on_storage_are_shuffled_and_resumed(tmp_path: Path, kind: str):
    labels = np.random.default_rng(0).choice(3, 3000, p=[0.9, 0.08, 0.02])
    x = np.arange(3000 * 20).reshape(3000, 20)
    if kind == "npy":
        np.savez(tmp_path / "a.npz", x=x, y=labels)
        ds = ps.from_files(tmp_path / "a.npz", fields=("x", "y"))
    else:
        import h5py

        with h5py.File(tmp_path / "a.h5", "w") as file:
            file.create_dataset("x", data=x, chunks=(128, 20))
            file.create_dataset("y", data=labels)
        ds = ps.from_files(tmp_path / "a.h5", fields=("x", "y"))
    ds = ds.resample(by=1).shuffle(seed=1, window=50_000).batch(100)
    batches = run(ds, epoch=1)
    assert np.bincount(np.concatenate([y for _, y in batches])).tolist() == [1000, 1000, 1000]
    assert min(np.bincount(y, minlength=3).min() for _, y in batches) > 5
    with ds.stream(epoch=1) as stream:
        for _ in range(11):
            next(stream)
        state = json.loads(json.dumps(stream.state()))
    assert_same(run(pickle.loads(pickle.dumps(ds)), state=state), batches[11:])
    tight = ds.with_options(threads=2)
    tight = tight.with_options(memory=tight.explain().need_nbytes)
    with tight.stream() as stream:
        assert sum(1 for _ in stream) == 30
        assert stream.report().peak_nbytes <= tight.explain().budget_nbytes
    ranks = [run(ds.distribute(rank=rank, world=2), epoch=1) for rank in range(2)]
    for number, (_, labels_) in enumerate(batches):
        np.testing.assert_array_equal(labels_[0::2], ranks[0][number][1])
        np.testing.assert_array_equal(labels_[1::2], ranks[1][number][1])


def test_text_labels_and_weights_by_value():
    names = ["cat"] * 90 + ["dog"] * 9 + ["emu"]
    ds = ps.from_arrays({"x": np.arange(100), "label": names})
    found = Counter(
        row["label"] for row in run(ds.resample("label", weights={"cat": 2, "dog": 1, "emu": 0}))
    )
    assert found == {"cat": 67, "dog": 33}


def test_draws_do_not_depend_on_how_rows_are_cut_into_blocks():
    labels = np.random.default_rng(3).integers(0, 60, 3000) ** 2 % 47
    ds = ps.from_arrays((np.arange(3000), labels))
    expected = rows_of(ds.resample(by=1))
    assert rows_of(ds.with_options(threads=0, memory="300KB").resample(by=1)) == expected
    assert rows_of(ds.map(lambda x, y: (x, y)).with_options(processes=0).resample(by=1)) == expected


def test_memory_is_counted_and_given_back():
    gc.collect()
    before = process_ledger.granted
    ds = ps.from_arrays((np.arange(10_000), np.arange(10_000) % 3)).resample(by=1)
    assert process_ledger.granted - before == 40_000
    copy = pickle.loads(pickle.dumps(ds))
    assert process_ledger.granted - before == 80_000
    assert rows_of(copy) == rows_of(ds)
    del ds, copy
    assert process_ledger.granted == before
    big = ps.from_arrays((np.arange(1_000_000, dtype="i4"), np.arange(1_000_000) % 3))
    with pytest.raises(ps.BudgetError, match=r"the (classes of resample|field by=1)"):
        big.with_options(memory="3MB", threads=0).resample(by=1)
    assert process_ledger.granted == before


def test_a_state_belongs_to_its_classes_and_seed():
    def make(labels: Any = Y, **options: Any) -> ps.Dataset:
        return ps.from_arrays((X, labels)).resample(by=1, **options)

    state = make().stream().state()
    make().stream(state=state).close()
    for other in (
        make(Y[::-1].copy()),
        make(seed=1),
        make(num_rows=22),
        make(weights={0: 2, 1: 1, 2: 1}),
    ):
        with pytest.raises(ps.StateError, match="another pipeline"):
            other.stream(state=state)


def test_explain_tells_how_often_rows_come():
    text = str(ps.from_arrays((X, Y)).resample(by=1).explain())
    assert "resample(by=1, seed=0)" in text
    assert re.search("2: [78] draws of 2 rows, (3 to )?4 times each", text)


@pytest.mark.parametrize(
    ("build", "options", "kind", "message"),
    [
        (lambda ds: ds.shuffle(), {}, ValueError, r"right: ds.resample\(by=...\).shuffle"),
        (lambda ds: ds.batch(4), {}, ValueError, r"right: ds.resample\(by=...\).batch"),
        (lambda ds: ds.repeat(), {}, ValueError, "there is no last row"),
        (lambda ds: ds.filter(lambda *_: True), {}, ValueError, "resample needs random access"),
        (lambda ds: ds, {"weights": {0: 1}}, ValueError, "and no other: [12], [12] is not there"),
        (lambda ds: ds, {"weights": {0: 1, 1: 1, 2: 1, 7: 1}}, ValueError, "there are no rows of 7"),
        (lambda ds: ds, {"weights": {0: 0, 1: 0, 2: 0}}, ValueError, "must not all be 0"),
        (lambda ds: ds, {"weights": {0: -1, 1: 0, 2: 0}}, ValueError, "class 0 must be 0 or more, got -1"),
        (lambda ds: ds, {"weights": {0: float("nan"), 1: 1, 2: 1}}, ValueError, "0 or more, got nan"),
        (lambda ds: ds, {"weights": {0: "a", 1: 1, 2: 1}}, TypeError, "class 0 must be a number"),
        (lambda ds: ds, {"weights": [1, 1, 1]}, TypeError, "must be a dict"),
        (lambda ds: ds, {"num_rows": -1}, ValueError, "num_rows must be at least 0"),
        (lambda ds: ds, {"num_rows": 1.5}, TypeError, "num_rows must be a whole number"),
        (lambda ds: ds, {"by": "label"}, ValueError, "by must name a field"),
        (lambda ds: ds.take(0), {"num_rows": 5}, ValueError, "no rows to draw from"),
    ],
)  # fmt: skip
def test_what_can_not_be_is_refused(build: Any, options: Any, kind: Any, message: str):
    ds = build(ps.from_arrays((X, Y)))
    with pytest.raises(kind, match=message):
        ds.resample(**{"by": 1, **options})


def test_rows_that_may_be_bad_have_no_numbers():
    ds = ps.from_arrays((X, Y)).map(lambda x, y: (x, y)).resample(by=1)
    with pytest.raises(ValueError, match="resample needs random access"):
        ds.with_options(on_error="skip")


def test_no_rows_stay_no_rows():
    assert len(ps.from_arrays((X, Y)).take(0).resample(by=1)) == 0
    assert run(ps.from_arrays((X, Y)).resample(by=1, num_rows=0)) == []


@given(st.lists(st.floats(0.01, 5), min_size=1, max_size=20), st.integers(0, 1000))
def test_shares_are_all_given_out(weights: list[float], num_rows: int) -> None:
    counts = shares(range(len(weights)), dict(enumerate(weights)), num_rows)
    assert sum(counts) == num_rows
    for weight, count in zip(weights, counts, strict=True):
        assert abs(count - num_rows * weight / sum(weights)) < 1 + 1e-9
