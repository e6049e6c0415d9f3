"""What lies in an HDF5 file by path: links within it are followed, links out of it never."""

from pathlib import Path

import h5py
import numpy as np
import pytest
from tests.conformance import assert_same, run

import penstock as ps
from penstock.errors import DataError, FieldError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a file of links; the other file has a dataset of the same name, with other numbers."""
    with h5py.File(tmp_path / "other.h5", "w") as file:
        file["x"] = np.arange(5.0)
        file["group/x"] = np.arange(5.0)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.arange(5.0) * 100
        file["group/x"] = np.arange(5.0) * 3
        file["alias"] = h5py.SoftLink("/group/x")
        file["nowhere"] = h5py.SoftLink("/gone")
        file["round"] = h5py.SoftLink("/round")
        file["kind"] = np.dtype("f4")
        file["beside"] = h5py.ExternalLink("other.h5", "/x")
        file["far"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
        file["far group"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/group")
        file["around"] = h5py.SoftLink("/far group/x")
        file["broken"] = h5py.ExternalLink("no such file.h5", "/x")
    return tmp_path / "a.h5"


def test_a_link_within_the_file_is_followed(path: Path) -> None:
    assert_same(run(ps.from_files(path, "alias")), list(np.arange(5.0) * 3))
    assert_same(run(ps.from_files(path, "/x")), list(np.arange(5.0) * 100))


@pytest.mark.parametrize("name", ["beside", "far", "far group/x", "around", "broken"])
def test_a_link_into_another_file_is_refused_and_no_numbers_of_this_one_come(
    path: Path, name: str
) -> None:
    with pytest.raises(FieldError, match=rf"a\.h5: '{name}' is a link into another file.*h5py"):
        ps.from_files(path, name)


def test_links_into_other_files_are_left_out_by_name(path: Path) -> None:
    with pytest.warns(
        ps.PenstockWarning, match=r"4 fields are left out.*'beside' is a link into"
    ) as caught:
        ds = ps.from_files(path)
    assert len(caught) == 1
    assert_same(run(ds.take(2))[1:], [{"group/x": np.float64(3), "x": np.float64(100)}])


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nowhere", r"'nowhere' is a link to '/gone', which is not there"),
        ("round", r"dataset 'round': can't be read as HDF5: .*too many links"),
        ("group", r"has no field 'group': it is a group, of 'group/x'"),
        ("/", r"has no field '/': it is a group, of 'group/x', 'x', "),
        ("/group/", r"has no field '/group/': it is a group, of 'group/x'"),
        ("kind", r"'kind' is no dataset, but a Datatype"),
        ("absent", r"has no field 'absent', only 'group/x', 'x', "),
        ("x/y", r"has no field 'x/y', only 'group/x', 'x', "),
        ("", r"has no field '', only 'group/x', 'x', "),
    ],
)
def test_what_is_no_dataset_is_an_error_that_says_what_it_is(
    path: Path, name: str, problem: str
) -> None:
    with pytest.raises(DataError, match=rf"a\.h5: {problem}"):
        ps.from_files(path, name)


@pytest.mark.parametrize("block", [b"FRHP", b"FHDB", b"BTHD", b"BTLF"])
def test_a_group_of_many_names_that_is_damaged_is_an_error_and_no_crash(
    tmp_path: Path, block: bytes
) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver="latest") as file:
        for number in range(20):
            file[f"group/{number}"] = np.arange(4)
    content = bytearray((tmp_path / "a.h5").read_bytes())
    content[content.index(block) + 20] ^= 1
    (tmp_path / "a.h5").write_bytes(content)
    with pytest.raises(DataError, match=r"a\.h5: can't be read as HDF5: .*checksum"):
        ps.from_files(tmp_path / "a.h5")


@pytest.mark.parametrize("track_order", [False, True])
@pytest.mark.parametrize("libver", ["earliest", "latest"])
def test_datasets_come_in_the_order_of_their_paths_and_once(
    tmp_path: Path, libver: str, track_order: bool
) -> None:
    with h5py.File(tmp_path / "a.h5", "w", libver=libver, track_order=track_order) as file:
        for name in ["é", "z/1", "b b", "a/z/y", "a/10", "a/2", "B", *"jihgfedc"]:
            file[name] = np.arange(4)
        file["a/z/round"] = file["a"]
        file["a/z/top"] = file["/"]
        file["a/0"] = file["z/1"]
    names = list(ps.from_files(tmp_path / "a.h5").spec)
    expected = ["B", "a/0", "a/10", "a/2", "a/z/y", "b b", *"cdefghij", "é"]
    assert names == expected
