"""penstock peek: the first rows, as a table or as JSON."""

import json

import numpy as np

import penstock as ps
from penstock.cli import main


def test_it_shows_the_first_rows_with_statistics(tmp_path, capsys):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(30.0).reshape(10, 3), y=np.arange(10))
    assert main(["peek", str(path), "--rows", "2"]) == 0
    assert capsys.readouterr().out == f"{ps.from_files(path).peek(2)}\n"
    assert main(["peek", str(path), "--fields", "y", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ps.from_files(path, "y").peek(5).to_dict()
