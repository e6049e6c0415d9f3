"""penstock bench: rates of the disk and of penstock, and what stands between, in words."""

import json

import numpy as np
import pytest
import zarr

from penstock.cli import main
from penstock.cli.measuring import Rate, _verdict


def test_all_is_measured_cold_and_warm(tmp_path, capsys):
    np.save(tmp_path / "x.npy", np.zeros((200_000, 10)))
    np.save(tmp_path / "y.npy", np.arange(200_000))
    pair = [f"x={tmp_path / 'x.npy'}", f"y={tmp_path / 'y.npy'}"]
    assert main(["bench", *pair, "--seconds", "5", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    total = sum((tmp_path / name).stat().st_size for name in ("x.npy", "y.npy"))
    assert found["stored_nbytes"] == total
    assert [(one["what"], one["is_cold"]) for one in found["rates"]] == [
        ("reading alone", True),
        ("reading alone", False),
        ("penstock, in order", True),
        ("penstock, in order", False),
        ("penstock, shuffled", True),
        ("penstock, shuffled", False),
    ]
    for one in found["rates"]:
        assert one["nbytes_per_second"] > 0
        assert one["stored_nbytes"] == total
    assert all(one["num_rows"] == 200_000 for one in found["rates"][2:])


def test_stores_and_data_that_is_read_forward_and_empty_data(tmp_path, capsys):
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("x", data=np.zeros((1000, 10)))
    assert main(["bench", str(tmp_path / "a.zarr"), "--seconds", "1"]) == 0
    shown = capsys.readouterr().out
    assert "penstock, shuffled" in shown
    assert "does not wait for data" in shown
    np.savez_compressed(tmp_path / "a.npz", x=np.zeros((1000, 10)))
    assert main(["bench", str(tmp_path / "a.npz"), "--seconds", "1", "--json"]) == 0
    rates = json.loads(capsys.readouterr().out)["rates"]
    assert rates[-1]["stored_nbytes"] == (tmp_path / "a.npz").stat().st_size
    np.save(tmp_path / "empty.npy", np.zeros((0, 3)))
    assert main(["bench", str(tmp_path / "empty.npy"), "--seconds", "0.1"]) == 0
    assert "there are no rows to read" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("speeds", "words"),
    [
        ((100, 1000, 95, 900, 90, 800), "90 % of what the disk can do: the disk is the bottleneck"),
        ((100, 1000, 95, 900, 40, 800), "reads in random order are the bottleneck; what the page"),
        ((100, 1000, 42, 900, 40, 800), "the way from the disk is the bottleneck"),
        ((100, 1000, 41, 41, 40, 41), "and 4 % of what memory can: not the disk but from_files(a.csv)"),
    ],
)  # fmt: skip
def test_what_stands_between_is_said(speeds, words):
    kinds = ["reading alone", "penstock, in order", "penstock, shuffled"]
    rates = [
        Rate(kind, is_cold, 1.0, speeds[2 * at + (not is_cold)], at or None, "from_files(a.csv)")
        for at, kind in enumerate(kinds)
        for is_cold in (True, False)
    ]
    assert words in _verdict(tuple(rates))
