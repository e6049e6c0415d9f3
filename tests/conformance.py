"""What every dataset must do, whatever it is made of: shared by the suites for sources and stages."""

import contextlib
import gc
import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.nest import flatten
from penstock.memory import process_ledger

ALIGNMENT = 64


@dataclass(frozen=True)
class Case:
    """A dataset, made anew at each call, and what iterating it must give."""

    make: Callable[[], ps.Dataset]
    elements: list[Any]
    second: list[Any] | None = None
    """The elements of epoch 1, where they differ from those of epoch 0."""
    is_pickled: bool = True
    has_length: bool = True

    @property
    def following(self) -> list[Any]:
        return self.elements if self.second is None else self.second


def assert_same(found: list[Any], expected: list[Any]) -> None:
    """Assert that two lists of elements agree in nests, values, shapes and dtypes."""
    assert len(found) == len(expected)
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        leaves, structure = flatten(mine)
        others, other = flatten(theirs)
        assert structure == other, number
        for leaf, want in zip(leaves, others, strict=True):
            assert_leaf(leaf, want)


def assert_leaf(leaf: Any, want: Any) -> None:
    if isinstance(want, bytes | str) and not isinstance(want, np.generic):
        assert type(leaf) is type(want)
        assert leaf == want
        return
    got, want = np.asarray(leaf), np.asarray(want)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    if got.dtype.hasobject:
        assert got.tolist() == want.tolist()
        assert list(map(type, got.flat)) == list(map(type, want.flat))
    elif got.dtype.names or got.dtype.char in "gG":
        assert repr(got.tolist()) == repr(want.tolist())  # Padding has no value.
    else:
        assert got.tobytes() == want.tobytes()  # Not values: NaN, NaT and -0.0 must come through.


def run(ds: ps.Dataset, **options: Any) -> list[Any]:
    """Return all elements of one epoch."""
    with ds.stream(**options) as stream:
        return list(stream)


class Conformance:
    """Inherit it and define a fixture `case`: every test of it must pass."""

    def test_the_elements_are_right_in_two_epochs(self, case: Case) -> None:
        ds = case.make()
        assert_same(run(ds), case.elements)
        assert_same(run(ds, epoch=1), case.following)
        assert_same(list(ds), case.elements)

    def test_the_spec_matches_the_data(self, case: Case) -> None:
        ds = case.make()
        specs, structure = flatten(ds.spec)
        for element in case.elements:
            leaves, nest = flatten(element)
            assert nest == structure
            for spec, leaf in zip(specs, leaves, strict=True):
                assert spec.admits(np.shape(leaf))
                if spec.is_text:
                    values = [leaf] if isinstance(leaf, bytes | str) else list(leaf.flat)
                    assert all(type(value) is spec.dtype for value in values)
                else:
                    # NumPy's scalars have the machine's byte order, and text of its own width.
                    found = np.asarray(leaf).dtype
                    is_scalar = isinstance(leaf, np.generic)
                    native = spec.dtype.newbyteorder("=") if is_scalar else spec.dtype
                    assert found in (native, spec.dtype) or (is_scalar and spec.dtype.kind in "SU")

    def test_the_length_is_right_or_a_type_error(self, case: Case) -> None:
        if case.has_length:
            assert len(case.make()) == len(case.elements)
        else:
            ds = case.make()
            if ds.node.num_rows is None or ds.node.is_endless:
                with pytest.raises(TypeError, match="length"):
                    len(ds)
            else:
                assert len(ds) == len(case.elements)

    def test_many_threads_give_what_none_gives(self, case: Case) -> None:
        for threads in (0, 1, 4):
            assert_same(run(case.make().with_options(threads=threads)), case.elements)
        assert_same(run(case.make().prefetch(0)), case.elements)
        assert_same(run(case.make().prefetch(100)), case.elements)

    def test_it_restores_from_every_state(self, case: Case) -> None:
        ds = case.make()
        with ds.stream() as stream:
            states = [stream.state()]
            states += [stream.state() for _ in stream]
        assert len(states) == len(case.elements) + 1
        step = max(1, len(states) // 12)  # Every one of a few; a sample, with both ends, of many.
        for done in {*range(0, len(states), step), len(states) - 2, len(states) - 1} - {-1}:
            state = json.loads(json.dumps(states[done]))
            assert len(json.dumps(state)) < 2000
            rest = case.elements[done:] if done < len(case.elements) else case.following
            for threads in (0, 3):
                assert_same(run(ds.with_options(threads=threads), state=state), rest)

    def test_it_pickles(self, case: Case) -> None:
        ds = case.make()
        if case.is_pickled:
            copy = pickle.loads(pickle.dumps(ds))
            assert copy.spec == ds.spec
            assert_same(run(copy), case.elements)
            state = ds.stream().state()
            assert_same(run(copy, state=state), case.elements)

    def test_it_closes_clean_wherever_it_is_stopped(self, case: Case) -> None:
        if process_ledger.granted:
            gc.collect()  # What is garbage of other tests may go in the middle of this one.
        before = process_ledger.granted
        for stop in {0, 1, len(case.elements)}:
            ds = case.make()
            stream = ds.stream()
            for _ in range(min(stop, len(case.elements))):
                next(stream)
            stream.close()
            stream.close()
            del ds, stream
        assert process_ledger.granted == before

    def test_nothing_aliases_anything(self, case: Case) -> None:
        ds = case.make()
        kept = run(ds)
        for element in kept:
            for leaf in flatten(element)[0]:
                if isinstance(leaf, np.ndarray) and leaf.size and not leaf.dtype.hasobject:
                    assert leaf.flags.writeable
                    leaf[...] = np.zeros((), leaf.dtype)
        assert_same(run(ds), case.elements)

    def test_batches_start_on_64_bytes_and_are_contiguous(self, case: Case) -> None:
        ds = case.make()
        with contextlib.suppress(ValueError):  # Rows whose shapes differ can't be stacked.
            ds = ds.batch(3)
            for batch in run(ds):
                for leaf in flatten(batch)[0]:
                    if leaf.size and not leaf.dtype.hasobject and leaf.dtype.itemsize:
                        assert leaf.ctypes.data % ALIGNMENT == 0
                        assert leaf.flags.c_contiguous

    def test_it_explains_itself_and_reports(self, case: Case) -> None:
        ds = case.make()
        text = str(ds.explain())
        assert "plan" in text
        assert "budget" in text
        with ds.stream() as stream:
            list(stream)
            report = stream.report()
        assert report.num_elements == len(case.elements)
        assert report.peak_nbytes <= report.budget_nbytes
