"""Rows of differing sizes, whose offsets or shapes lie: an error when they are read."""

import numpy as np
import pytest
from tests.conformance import run

import penstock as ps
from penstock.errors import DataError


@pytest.mark.parametrize("wrong", [[0, 5, 3, 9], [-1, 0, 1, 2], [0, 1, 2, 1 << 60]])
def test_offsets_that_lie_are_an_error(wrong, tmp_path):
    ps.from_arrays([b"abc", b"def", b"ghi"]).write(tmp_path / "out")
    np.save(tmp_path / "out" / "value.offsets-00000.npy", np.array(wrong))
    with pytest.raises(DataError, match="offsets must rise"):
        run(ps.from_files(tmp_path / "out"))


def test_shapes_that_lie_are_an_error(tmp_path):
    ps.from_arrays([np.ones((2, 3)), np.ones((3, 2))]).write(tmp_path / "out")
    np.save(tmp_path / "out" / "value.shapes-00000.npy", np.array([[2, 3], [1 << 40, 2]]))
    with pytest.raises(DataError, match="shapes do not fit"):
        run(ps.from_files(tmp_path / "out", verify=False))
