"""jax.distributed: two processes find their ranks, their store, and who of them differs."""

import pytest
from tests.ranks.engine_suite import check_store
from tests.ranks.rank_processes import run_ranks


@pytest.mark.slow
def test_two_processes_find_their_ranks_and_compare_themselves(tmp_path):
    results = run_ranks("jax", tmp_path)
    for rank, one in results.items():
        assert one["before"]["engine"] == ""
        assert one["no store before"]
        assert one["found"] == found(rank)
        assert one["no devices"]  # Asking does not initialise them.
        assert one["contradiction"].startswith(
            f"torch.distributed says that this is rank {1 - rank} of 2, and jax.distributed says that this is "
            f"rank {rank} of 2. Give the numbers"
        )
        assert "distribute(rank=..., world=...)" in one["contradiction"]
        assert one["after"] == found(rank)
    check_store(results)


def found(rank):
    return {"rank": rank, "world": 2, "replicas": 1, "engine": "jax.distributed", "caution": ""}
