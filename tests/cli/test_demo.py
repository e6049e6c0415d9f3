"""penstock demo: the main job, small; and the same by others, who are killed."""

import json
import subprocess
import sys

import pytest

from penstock.cli import demo, limits, main
from penstock.cli.limits import Outcome


@pytest.mark.slow
def test_it_trains_within_its_limit_and_shows_what_that_took(tmp_path):
    arguments = ["--data", "80MB", "--memory", "100MB", "--limit", "2GB", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "demo", *arguments, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr.splitlines() == [
        "writing 200,000 rows of 100 float32 ...",
        "training one epoch by penstock ...",
    ]
    found = json.loads(done.stdout)
    mine = found["runs"]["penstock"]
    assert found["data_nbytes"] == 80_800_000
    assert mine["num_rows"] == 196_000
    assert 0 < mine["peak_nbytes"] <= 100_000_000
    assert mine["accuracy"] > 0.5
    assert mine["waited_seconds"] >= 0
    assert not list(tmp_path.iterdir())


MINE = {
    "backend": "jax", "seconds": 2.0, "num_rows": 1000, "waited_seconds": 0.1, "peak_nbytes": 5, "accuracy": 0.9,
    "peak_rss": 7,
}  # fmt: skip
ENDS = {
    "penstock": Outcome(MINE, False, "", 3.0, 9, True),
    "ndarray": Outcome(None, True, "", 4.0, 9, True),
    "tf.data": Outcome(None, False, "ModuleNotFoundError: No module named 'tensorflow'", 1.0, 9, True),
}  # fmt: skip


@pytest.fixture
def ends(monkeypatch):
    """How each way ends, without a training: what is shown of it is tested."""
    ends = dict(ENDS)
    monkeypatch.setattr(demo, "_BLOCK_ROWS", 1000)
    monkeypatch.setattr(limits, "run_limited", lambda _, arguments, **__: ends[arguments[2]])
    return ends


def test_a_comparison_says_who_was_killed(ends, capsys, tmp_path):
    assert main(["demo", "--data", "1KB", "--compare", "--folder", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    for words in (
        "speed                500 samples/s (1,000 in 2.0 s)",
        "waited for data      0.10 s (5.0 %)",
        "penstock             500 samples/s, accuracy 90.0 %",
        "model.fit(ndarray)   KILLED after 4.0 s",
        "tf.data, shuffled    failed: ModuleNotFoundError",
    ):
        assert words in shown


def test_a_training_that_is_killed_or_fails_is_an_error(ends, capsys, tmp_path):
    arguments = ["demo", "--data", "1KB", "--folder", str(tmp_path)]
    ends["penstock"] = ENDS["ndarray"]
    assert main(arguments) == 1
    assert "took more than 1.2 GB: give it a larger --limit." in capsys.readouterr().err
    ends["penstock"] = ENDS["tf.data"]
    assert main(arguments) == 1
    assert "penstock demo: the training failed: ModuleNotFoundError" in capsys.readouterr().err
    assert main([*arguments[:3], "--folder", str(tmp_path / "none")]) == 2
    assert not list(tmp_path.iterdir())
    assert main([*arguments, "--data", "900000GB"]) == 1
    assert "bytes are needed here, and" in capsys.readouterr().err
