"""The methods that regroup rows: what they check before a stage is made, and what `apply` returns."""

import numpy as np
import pytest
from tests.conformance import run

import penstock as ps


def test_apply_returns_what_the_function_makes_of_the_dataset():
    def pairs(ds: ps.Dataset) -> ps.Dataset:
        return ds.shuffle(seed=1).batch(2)

    ds = ps.from_arrays(np.arange(5))
    assert [b.tolist() for b in run(ds.apply(pairs))] == [b.tolist() for b in run(pairs(ds))]
    assert ds.apply(lambda ds: ds) is ds


def test_apply_refuses_what_is_no_function_of_datasets():
    ds = ps.from_arrays(np.arange(5))
    with pytest.raises(TypeError, match="apply needs a function of a dataset, got int"):
        ds.apply(3)
    with pytest.raises(
        TypeError, match=r"apply\(<lambda>\) must return a Dataset, got NoneType. Did"
    ):
        ds.apply(lambda ds: None)
    with pytest.raises(TypeError, match=r"got list. For a function of rows, use map"):
        ds.apply(list)


def test_options_hold_for_stages_that_are_put_behind_them():
    ds = ps.from_arrays(np.arange(6)).with_options(memory="64MB", on_error="skip")
    made = ds.flat_map(lambda n: [n] if n != 3 else [1 / 0]).take_while(lambda n: n < 5)
    assert made.explain().budget_nbytes == 64_000_000
    with made.stream() as stream:
        assert list(map(int, stream)) == [0, 1, 2, 4]
        assert stream.report().num_skipped == 1


@pytest.mark.parametrize("sizes", [3, "ab", [1.5, 2]])
def test_sizes_of_buckets_are_whole_numbers(sizes: object):
    with pytest.raises(TypeError, match="bucket_batch_sizes must be"):
        ps.from_arrays([np.arange(3)]).bucket_by_sequence_length("value", [5], sizes)


def test_padded_batch_reports_its_share_of_padding_too():
    rows = [np.arange(size) for size in [1, 3, 8, 8]]
    with ps.from_arrays(rows).padded_batch(2).stream() as stream:
        list(stream)
        (padding,) = stream.report().padding
    assert (padding.num_values, padding.num_padding) == (20, 2)
    with ps.from_arrays(np.arange(8)).batch(2).stream() as stream:
        list(stream)
        assert stream.report().padding == ()
