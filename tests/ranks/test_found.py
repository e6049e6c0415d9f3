"""Which of several answers counts. Engines that are initialised are asked for real in the tests of each."""

import json
import subprocess
import sys

import pytest

from penstock.ranks.found import Found, find_rank

TWO = json.dumps({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})
ONE = json.dumps({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}})


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "TF_CONFIG"):
        monkeypatch.delenv(name, raising=False)


def test_a_process_by_itself_is_rank_0_of_1():
    assert find_rank() == Found(0, 1, 1, "", "")


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({"RANK": "1", "WORLD_SIZE": "3"}, Found(1, 3, 1, "RANK and WORLD_SIZE")),
        ({"RANK": "0", "WORLD_SIZE": "1"}, Found(0, 1, 1, "RANK and WORLD_SIZE")),
        ({"TF_CONFIG": TWO}, Found(1, 2, 1, "TF_CONFIG")),
        # Both agree; or one of them has a single process, and does not count.
        ({"TF_CONFIG": TWO, "RANK": "1", "WORLD_SIZE": "2"}, Found(1, 2, 1, "TF_CONFIG")),
        ({"TF_CONFIG": ONE, "RANK": "2", "WORLD_SIZE": "4"}, Found(2, 4, 1, "RANK and WORLD_SIZE")),
        ({"TF_CONFIG": TWO, "RANK": "0", "WORLD_SIZE": "1"}, Found(1, 2, 1, "TF_CONFIG")),
    ],
)
def test_the_environment_tells_the_rank_if_no_engine_is_initialised(
    environment, found, monkeypatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_rank() == found


@pytest.mark.parametrize(("rank", "world"), [("0", "2"), ("1", "3")])
def test_variables_that_contradict_each_other_are_refused_with_both(rank, world, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", TWO)
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", world)
    message = (
        "TF_CONFIG says that this is rank 1 of 2, and RANK and WORLD_SIZE say that this is "
        rf"rank {rank} of {world}\. .*distribute\(rank=\.\.\., world=\.\.\.\)"
    )
    with pytest.raises(ValueError, match=message):
        find_rank()


def test_wrong_variables_are_refused(monkeypatch):
    monkeypatch.setenv("RANK", "x")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="got RANK='x'"):
        find_rank()


@pytest.mark.slow
def test_an_engine_of_one_process_comes_before_variables_and_cautions(monkeypatch):
    import tensorflow as tf

    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        found = find_rank()
        monkeypatch.setenv("RANK", "x")  # Nobody follows it.
        assert find_rank() == Found(0, 1, 1, "tf.distribute")
    assert (found.rank, found.world, found.engine) == (0, 1, "tf.distribute")
    assert found.caution.startswith(
        "RANK and WORLD_SIZE say that this is rank 1 of 2, but tf.distribute has one process: each would train apart"
    )


def test_asking_imports_no_framework():
    code = (
        "import sys; from penstock.ranks.found import find_rank; from penstock.ranks.store import find_store; "
        "find_rank(), find_store(); print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "jax", "tensorflow", "ray", "keras"} & set(ran.stdout.split())
