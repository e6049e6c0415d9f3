"""TensorFlow: strategies, TF_CONFIG, and two workers that compare what they read."""

import json

import pytest
from tests.ranks.engine_suite import check_store
from tests.ranks.rank_processes import run_ranks

from penstock.ranks.by_tensorflow import configured_place


@pytest.mark.slow
def test_chief_and_worker_find_their_ranks_and_compare_themselves(tmp_path):
    results = run_ranks("tensorflow", tmp_path, killed=[0])
    for rank, one in results.items():
        assert one["before"] == found(rank, 2, 1, "TF_CONFIG")
        assert one["no store before"]
        assert one["found"] == found(rank, 2, 1, "tf.distribute")
        assert one["out of scope"] == found(rank, 2, 1, "TF_CONFIG")
        assert one["only mirrored"] == found(0, 1, 4, "tf.distribute")
        caution = one["mirrored"].pop("caution")
        assert f"TF_CONFIG says that this is rank {rank} of 2, but tf.distribute has" in caution
        assert {**one["mirrored"], "caution": ""} == found(0, 1, 4, "tf.distribute")
        assert one["nothing"] == found(0, 1, 1, "")
    check_store(results)
    assert not results[1]["lost"]["was_done"]
    assert "UnavailableError" in results[1]["lost"]["ended"]


def found(rank, world, replicas, engine):
    return {"rank": rank, "world": world, "replicas": replicas, "engine": engine, "caution": ""}


WORKERS = ["a:1", "b:1", "c:1"]


@pytest.mark.parametrize(
    ("config", "place"),
    [
        ({}, None),
        ({"cluster": {}}, None),
        ({"task": {"type": "worker", "index": 0}}, None),
        ({"cluster": {"worker": WORKERS}, "task": {"type": "worker", "index": 2}}, (2, 3, 1)),
        ({"cluster": {"worker": WORKERS}, "task": {"type": "worker", "index": "1"}}, (1, 3, 1)),
        (
            {
                "cluster": {"chief": ["d:1"], "worker": WORKERS},
                "task": {"type": "chief", "index": 0},
            },
            (0, 4, 1),
        ),
        (
            {
                "cluster": {"chief": ["d:1"], "worker": WORKERS},
                "task": {"type": "worker", "index": 2},
            },
            (3, 4, 1),
        ),
        (
            {
                "cluster": {"worker": WORKERS, "evaluator": ["e:1"]},
                "task": {"type": "worker", "index": 0},
            },
            (0, 3, 1),
        ),
        (
            {
                "cluster": {"worker": {"0": "a:1", "1": "b:1"}},
                "task": {"type": "worker", "index": 1},
            },
            (1, 2, 1),
        ),
        ({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}, (0, 1, 1)),
    ],
)
def test_tf_config_tells_the_rank(config, place, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert configured_place() == place


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_tf_config_says_nothing(text, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    assert configured_place() is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{'cluster': 1}",
            r"must be JSON, got \"\{'cluster': 1\}\" \(Expecting.*\)\. Set TF_CONFIG to",
        ),
        ("[1]", r"must have a cluster of jobs, got '\[1\]'"),
        ('{"cluster": 3}', "must have a cluster of jobs"),
        (
            '{"cluster": {"worker": ["a:1"]}}',
            "which task of its cluster this process is, got task None",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}}',
            "got task {'type': 'worker'}",
        ),
        ('{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}}', "got task"),
        (
            '{"cluster": {"worker": "a:1"}, "task": {"type": "worker", "index": 0}}',
            "list the tasks of each job",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}}',
            "this process is worker 1, and its cluster has 0 chief and 1 workers",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}}',
            "this process is chief 0",
        ),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "evaluator", "index": 0}}',
            r"evaluator 0 of its cluster, which is no data rank.*distribute\(rank=0, world=1\)",
        ),
        (
            '{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "worker", "index": 0}}',
            r"parameter servers has no ranks.*distribute\(rank=\.\.\., world=\.\.\.\)",
        ),
    ],
)
def test_a_wrong_tf_config_is_refused_with_what_came(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    with pytest.raises(ValueError, match=message):
        configured_place()
