"""One rank's part of a global batch: the parts of all ranks are the batch, filled up."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.share import Share


@given(st.integers(1, 7), st.integers(1, 3), st.integers(1, 5), st.integers(0, 200), st.booleans())
def test_the_parts_of_all_ranks_are_the_batch_and_weigh_as_much(
    world: int, replicas: int, factor: int, num_rows: int, static: bool
) -> None:
    size = world * replicas * factor
    num_rows = min(num_rows, size)
    shares = [Share(rank, world, size, replicas, "pad", static) for rank in range(world)]
    filled = shares[0].filled(num_rows)
    assert filled % (world * replicas) == 0
    assert filled == (
        size if static and num_rows else -(-num_rows // (world * replicas)) * world * replicas
    )
    places, weights = np.empty(filled, int), np.empty(filled)
    for share in shares:
        assert share.size(num_rows) == len(share.places(num_rows)) == filled // world
        places[share.rank :: world] = share.places(num_rows)
        weights[share.rank :: world] = share.weights(num_rows)
    assert places[:num_rows].tolist() == list(range(num_rows))
    assert (weights[num_rows:] == 0).all()
    if num_rows:
        assert np.allclose(weights[:num_rows], filled / num_rows)
        assert places[num_rows:].tolist() == [place % num_rows for place in range(num_rows, filled)]
