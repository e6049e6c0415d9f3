"""The bar on the terminal while rows are written."""

import numpy as np

import penstock as ps


def test_there_is_no_bar_unless_stderr_is_a_terminal(tmp_path, capfd):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out")
    assert capfd.readouterr().err == ""


def test_a_bar_can_be_asked_for(tmp_path, capfd):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out", progress=True)
    assert "9 rows" in capfd.readouterr().err
