"""What concatenate and mix make of rows whose shapes differ."""

import numpy as np

import penstock as ps


def test_what_is_combined_may_have_batches_of_different_lengths():
    a = ps.from_arrays(np.arange(5)).batch(2)
    b = ps.from_arrays(np.arange(9)).batch(3, drop_remainder=True)
    found = [batch.tolist() for batch in ps.concatenate(a, b)]
    assert found == [[0, 1], [2, 3], [4], [0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert ps.concatenate(a, b).spec == ps.ArraySpec((None,), "int64")
    mixed = sorted(batch.tolist() for batch in ps.mix([a, b], stop="all"))
    assert mixed == sorted(found)
