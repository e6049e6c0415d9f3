"""torch.distributed: two processes by gloo find their ranks, their store, and who of them differs."""

import pytest
from tests.ranks.engine_suite import check_store
from tests.ranks.rank_processes import run_ranks


@pytest.mark.slow
def test_two_processes_find_their_ranks_and_compare_themselves(tmp_path):
    results = run_ranks("torch", tmp_path, killed=[0])
    for rank, one in results.items():
        assert one["before"] == found(rank, "RANK and WORLD_SIZE")
        assert one["no store before"]
        assert one["found"] == found(rank, "torch.distributed")
    check_store(results)
    # The store dies with rank 0. Rank 1 goes on: what is wrong, the next collective says.
    assert not results[1]["lost"]["was_done"]
    assert "DistNetworkError" in results[1]["lost"]["ended"]


def found(rank, engine):
    return {"rank": rank, "world": 2, "replicas": 1, "engine": engine, "caution": ""}
