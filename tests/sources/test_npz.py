"""`.npz` archives: stored ones are read in place, deflated ones forward."""

import io
import itertools
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import Case, Conformance, assert_same, run
from tests.sources.fidelity import assert_reads
from tests.sources.formats import Columns, FormatSuite, in_memory, rows_of, sample

import penstock as ps
from penstock.errors import DataError, FieldError, LengthError


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


ARRAYS = {
    "x": np.arange(3000.0).reshape(1000, 3),
    "y": np.arange(1000),
    "z": np.array([(n, n / 2) for n in range(1000)], [("a", "<i4"), ("b", ">f8")]),
}


def write_members(path: Path, arrays: dict[str, Any], methods: Any) -> None:
    """Write an archive of which each member is stored or deflated as `methods` says."""
    with zipfile.ZipFile(path, "w") as archive:
        for (name, values), method in zip(arrays.items(), methods, strict=True):
            data = io.BytesIO()
            np.lib.format.write_array(data, values)
            archive.writestr(f"{name}.npy", data.getvalue(), compress_type=method)


@pytest.mark.parametrize(
    "methods", list(itertools.product((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED), repeat=3))
)
def test_any_mix_of_stored_and_deflated_arrays_is_what_numpy_loads(
    tmp_path: Path, methods: Any
) -> None:
    write_members(tmp_path / "a.npz", ARRAYS, methods)
    loaded = np.load(tmp_path / "a.npz")
    want = [{name: loaded[name][row] for name in ARRAYS} for row in range(1000)]
    ds = ps.from_files(tmp_path / "a.npz")
    assert_same(run(ds), rows_of(ARRAYS))
    assert_same(run(ds), want)
    assert_same(run(ds.with_options(on_error="skip", threads=2)), want)
    for name in ARRAYS:
        assert_reads(ps.from_files(tmp_path / "a.npz", name), list(loaded[name]))
    twice = ps.from_files(tmp_path / "a.npz", ("y", "x", "y"))
    assert_same(run(twice), [(row["y"], row["x"], row["y"]) for row in want])
    with ds.batch(7).stream() as stream:
        states = [stream.state() for _ in stream]
    for done in (1, 50, 142):
        assert_same(run(ds.batch(7), state=states[done - 1]), run(ds.batch(7))[done:])


def test_a_stored_array_in_fortran_order_beside_a_deflated_one_is_read(tmp_path: Path) -> None:
    grid = np.asfortranarray(np.arange(40).reshape(10, 4))
    arrays = {"x": np.arange(10), "grid": grid}
    write_members(tmp_path / "a.npz", arrays, (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))
    assert_same(run(ps.from_files(tmp_path / "a.npz")), rows_of(arrays))
    write_members(tmp_path / "a.npz", arrays, (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))
    with pytest.raises(FieldError, match=r"a\.npz: array 'grid' is deflated and in Fortran order"):
        ps.from_files(tmp_path / "a.npz", "grid")


def test_a_damaged_stored_array_beside_a_deflated_one_is_skipped_with_its_file(
    tmp_path: Path,
) -> None:
    write_members(tmp_path / "a.npz", ARRAYS, (8, 0, 8))
    write_members(tmp_path / "b.npz", ARRAYS, (8, 0, 8))
    ds = ps.from_files(tmp_path).with_options(on_error="skip")
    os.truncate(tmp_path / "a.npz", 100)
    with ds.stream() as stream:
        assert_same(list(stream), rows_of(ARRAYS))
        assert stream.report().num_skipped == 1000
        assert "a.npz" in stream.report().skipped[0]


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_a_damaged_header_names_its_array(tmp_path: Path, save: Any) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        method = zipfile.ZIP_STORED if save is np.savez else zipfile.ZIP_DEFLATED
        archive.writestr("x.npy", b"no array" * 20, compress_type=method)
    with pytest.raises(DataError, match=r"a\.npz, byte \d+: array 'x': not an \.npy file"):
        ps.from_files(tmp_path / "a.npz")


def test_what_is_no_array_in_an_archive_is_left_out_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(3))
    with zipfile.ZipFile(tmp_path / "a.npz", "a") as archive:
        archive.writestr("notes.txt", "read me")
    with pytest.warns(ps.PenstockWarning, match=r"a\.npz: 'notes\.txt' is no array"):
        assert run(ps.from_files(tmp_path / "a.npz"))[2] == {"x": 2}
