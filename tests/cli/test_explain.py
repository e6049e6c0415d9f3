"""penstock explain: the plan of a shuffled pass, by flags."""

import json

import numpy as np
import pytest

import penstock as ps
from penstock.cli import main


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((300_000, 40)))
    return str(tmp_path / "a.npy")


def test_it_is_what_the_dataset_would_do(path, tmp_path, capsys):
    assert main(["explain", path, "--memory", "512MB", "--threads", "2"]) == 0
    ds = ps.from_files(path).with_options(memory="512MB", threads=2).shuffle().batch(32)
    assert capsys.readouterr().out == f"{ds.explain()}\n"
    flags = ["--window", "8MB", "--seed", "3", "--batch-size", "100", "--scratch", str(tmp_path)]
    assert main(["explain", path, *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    calls = [one["call"] for one in found["stages"]]
    assert calls[1:] == ["shuffle(seed=3, window=8000000)", "batch(100)"]
    assert found["fits"] is True


def test_other_orders_caches_and_rows_of_different_lengths(path, tmp_path, capsys):
    assert main(["explain", path, "--exact"]) == 0
    shown = capsys.readouterr().out
    assert "shuffle(seed=0, exact=True)" in shown
    assert "under the temporary folder (or --scratch FOLDER)" in shown
    assert main(["explain", path, "--no-shuffle", "--cache", str(tmp_path / "cache")]) == 0
    shown = capsys.readouterr().out
    assert "cache(" in shown
    assert "shuffle" not in shown.partition("plan")[0]
    assert main(["explain", path, "--no-shuffle", "--exact"]) == 2
    assert "--no-shuffle goes with neither" in capsys.readouterr().err
    ps.from_arrays([np.arange(n % 3) for n in range(9)]).write(tmp_path / "ragged")
    assert main(["explain", str(tmp_path / "ragged")]) == 0
    assert "padded_batch(32)" in capsys.readouterr().out
