"""The folder of cache(path): whose rows it holds, and what it refuses."""

import os

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import keep

import penstock as ps
from penstock.errors import DataError, TargetExistsError


def saved(path, array):
    np.save(path, array)
    return path


def test_a_changed_file_is_an_error_that_names_it(tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(10))
    run(ps.from_files(file).cache(tmp_path / "c"))
    saved(file, np.arange(12))
    with pytest.raises(ps.StaleCacheError, match=r"(?s)x\.npy.*rm -r"):
        ps.from_files(file).cache(tmp_path / "c")
    saved(file, np.arange(10))
    os.utime(file, ns=(1, 1))
    with pytest.raises(ps.StaleCacheError, match=r"x\.npy was written to since"):
        ps.from_files(file).cache(tmp_path / "c")


def test_a_changed_chain_is_an_error_that_names_the_stage(tmp_path):
    source = ps.from_arrays(np.arange(10))
    run(source.shuffle(seed=1).cache(tmp_path / "c"))
    with pytest.raises(ps.StaleCacheError, match=r"shuffle\(seed=1\).*shuffle\(seed=2\)"):
        source.shuffle(seed=2).cache(tmp_path / "c")
    with pytest.raises(ps.StaleCacheError, match="made from something else"):
        ps.from_arrays(np.arange(11)).shuffle(seed=1).cache(tmp_path / "c")


def test_what_was_left_of_other_inputs_is_started_over(tmp_path):
    with ps.from_arrays(np.arange(500_000)).filter(keep).cache(tmp_path / "c").stream() as stream:
        next(stream)
    ds = ps.from_arrays(np.arange(100.0)).filter(keep).cache(tmp_path / "c")
    assert_same(run(ds), list(np.arange(100.0)))


def test_a_folder_or_file_of_the_users_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    for path in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(TargetExistsError):
            ps.from_arrays(np.arange(3)).cache(path)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_a_file_that_was_cut_off_is_an_error(tmp_path):
    ds = ps.from_arrays(np.arange(1000)).cache(tmp_path / "c")
    run(ds)
    file = tmp_path / "c" / "value-00000.npy"
    os.truncate(file, 1000)
    with pytest.raises(DataError, match=r"1000 bytes, and the manifest says 8128"):
        run(ds)
