"""`.npz` archives: stored ones are read in place, deflated ones forward."""

from pathlib import Path

import numpy as np
import pytest
from tests.conformance import Case, Conformance, assert_same, run
from tests.sources.formats import Columns, FormatSuite, in_memory, rows_of, sample

import penstock as ps
from penstock.errors import DataError, LengthError


class TestStored(FormatSuite):
    suffix = ".npz"

    def write(self, path: Path, columns: Columns) -> None:
        np.savez(path, **columns)


class TestDeflated(Conformance):
    @pytest.fixture
    def case(self, tmp_path: Path) -> Case:
        np.savez_compressed(tmp_path / "a.npz", **sample(13))
        np.savez_compressed(tmp_path / "b.npz", **sample(8, 13))
        return Case(lambda: ps.from_files(tmp_path), rows_of(sample(21)))

    def test_a_cache_makes_its_shuffle_exact(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", **sample(300))
        ds = ps.from_files(tmp_path / "a.npz").cache().shuffle(seed=3).batch(7)
        assert_same(run(ds), run(in_memory(sample(300)).shuffle(seed=3).batch(7)))

    def test_it_says_that_it_is_read_forward(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", **sample(3))
        assert "forward" in str(ps.from_files(tmp_path / "a.npz").explain())

    def test_arrays_of_unequal_lengths_are_refused(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", x=np.zeros(4), y=np.zeros(5))
        with pytest.raises(LengthError, match="4 in 'x', 5 in 'y'"):
            ps.from_files(tmp_path / "a.npz")

    def test_a_damaged_archive_is_an_error(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", x=np.random.default_rng(0).normal(size=5000))
        data = bytearray((tmp_path / "a.npz").read_bytes())
        data[len(data) // 2] ^= 0xFF
        (tmp_path / "a.npz").write_bytes(data)
        with pytest.raises(DataError, match=r"a\.npz"):
            run(ps.from_files(tmp_path / "a.npz").batch(100))

    def test_stored_and_deflated_files_do_not_mix(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", **sample(3))
        np.savez_compressed(tmp_path / "b.npz", **sample(3))
        with pytest.raises(DataError, match=r"b\.npz.*deflated.*a\.npz.*concatenate"):
            ps.from_files(tmp_path)


def test_fields_choose_and_arrange(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **sample(5), other=np.zeros(99))
    ds = ps.from_files(tmp_path / "a.npz", ("y", {"in": "x"}))
    assert_same(run(ds), [(r["y"], {"in": r["x"]}) for r in rows_of(sample(5))])
    with pytest.raises(LengthError, match=r"99 in 'other'.*fields="):
        ps.from_files(tmp_path / "a.npz")
    with pytest.raises(DataError, match=r"no field 'z', only 'x', 'y', 'other'"):
        ps.from_files(tmp_path / "a.npz", ("z",))


def test_a_path_in_an_archive_leads_nowhere(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **{"../../escape": np.arange(3)})
    with pytest.raises(DataError, match="outside a folder"):
        ps.from_files(tmp_path / "a.npz")
    assert not (tmp_path.parent / "escape.npy").exists()
