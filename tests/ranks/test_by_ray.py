"""Ray Train: two workers of a TorchTrainer find their ranks, the store of their cluster, and who of them differs."""

import pytest
from tests.ranks.engine_suite import check_store
from tests.ranks.rank_processes import run_ranks


@pytest.mark.slow
def test_two_workers_find_their_ranks_and_compare_themselves(tmp_path):
    results = run_ranks("ray", tmp_path, processes=1)
    for rank, one in results.items():
        assert (one["found"]["rank"], one["found"]["world"]) == (rank, 2)
        assert one["found"]["engine"] == "torch.distributed"
        assert (one["only ray"]["rank"], one["only ray"]["world"]) == (rank, 2)
        assert one["only ray"]["engine"] == "ray.train"
        assert one["only ray"]["caution"] == ""
        assert one["with jax"]["world"] == 2
        assert one["with jax"]["caution"].startswith(
            "Ray Train runs 2 workers, but jax.distributed is not initialised: workers would train apart"
        )
        assert one["with tensorflow"] == one["only ray"]
    check_store(results)
