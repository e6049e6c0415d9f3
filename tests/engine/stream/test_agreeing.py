"""Ranks that read a dataset compare themselves; those that differ stop, and no rank waits for another."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.processes import free_ports

import penstock as ps

SCRIPT = Path(__file__).with_name("agreeing_rank.py")


def ranks(case: str) -> list[dict[str, str]]:
    environ = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_ports(1)[0])}
    started = [
        subprocess.Popen(
            [sys.executable, SCRIPT, case],
            env={**environ, "RANK": str(rank), "WORLD_SIZE": "3"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        told = [one.communicate(timeout=180) for one in started]
    finally:
        for one in started:
            one.kill()
    assert all(one.returncode == 0 for one in started), told
    return [json.loads(out.splitlines()[-1]) for out, _ in told]


@pytest.mark.slow
def test_all_ranks_raise_and_name_the_one_that_differs() -> None:
    for found in ranks("differ"):
        assert "does not read the same as rank 0" in found["rows"]
        assert "rank 2 does not read the same as rank 0" in found["seed"]
        assert "seed" in found["seed"]
        assert "rank 1 does not read the same as rank 0" in found["length"]
        assert "1188" in found["length"]
        assert "1200" in found["length"]


@pytest.mark.slow
def test_ranks_that_agree_go_on_and_one_may_read_alone() -> None:
    first, *others = ranks("agree")
    assert first == {"same": "", "alone": "", "after": ""}
    assert others == [{"same": "", "after": ""}] * 2


def test_without_an_engine_there_is_nobody_to_compare_with() -> None:
    ds = ps.from_arrays(np.arange(8)).batch(4).distribute(rank=1, world=2)
    with ds.stream() as stream:
        assert [batch.tolist() for batch in stream] == [[1, 3], [5, 7]]
        assert stream._agreement is None


def test_a_chain_that_found_one_rank_is_not_read_by_one_of_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("RANK", "WORLD_SIZE", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    found = ps.from_arrays(np.arange(8)).batch(4).distribute()
    given = ps.from_arrays(np.arange(8)).batch(4).distribute(rank=0, world=1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match=r"by RANK and WORLD_SIZE this is rank 1 of 2 now"):
        next(iter(found))
    assert next(iter(given)).tolist() == [0, 1, 2, 3]
