"""A shuffle by index: exact, whatever is asked for, with no array of all rows."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import run

import penstock as ps
from penstock.core.order import Permutation
from penstock.stages.shuffle.by_index import ShuffledRows


@given(st.integers(1, 300), st.integers(0, 5), st.integers(0, 3))
def test_row_i_is_row_permutation_of_i(num_rows: int, seed: int, epoch: int):
    ds = ps.from_arrays(np.arange(num_rows)).shuffle(seed=seed).with_options(threads=0)
    expected = Permutation(num_rows, (seed, epoch, 0)).rows(np.arange(num_rows))
    assert [int(row) for row in run(ds, epoch=epoch)] == expected.tolist()


def test_rows_of_64_kb_on_storage_are_shuffled_by_index(tmp_path):
    np.save(tmp_path / "large.npy", np.zeros((4, 1 << 14), "float32"))
    np.save(tmp_path / "small.npy", np.zeros((4, (1 << 14) - 1), "float32"))
    large, small = (ps.from_files(tmp_path / name) for name in ("large.npy", "small.npy"))
    assert isinstance(large.shuffle().node, ShuffledRows)
    assert not isinstance(small.shuffle().node, ShuffledRows)


def test_two_shuffles_with_one_seed_do_not_undo_or_repeat_each_other():
    once = run(ps.from_arrays(np.arange(50)).shuffle(seed=1))
    twice = run(ps.from_arrays(np.arange(50)).shuffle(seed=1).shuffle(seed=1))
    assert sorted(twice) == sorted(once)
    order = [int(row) for row in once]
    assert [int(row) for row in twice] not in (list(range(50)), order, [order[i] for i in order])


def test_a_shuffle_after_batch_says_that_it_mixes_whole_batches():
    ds = ps.from_arrays(np.arange(50)).batch(5).shuffle()
    assert "whole batches, not the rows in them" in str(ds.explain())
    assert "whole batches, not" not in str(ps.from_arrays(np.arange(50)).shuffle().explain())
