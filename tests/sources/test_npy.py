"""`.npy` files: every dtype, both orders, all versions of the header."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests.conformance import assert_same, run
from tests.sources.fidelity import assert_reads
from tests.sources.formats import Columns, FormatSuite

import penstock as ps
from penstock.errors import DataError

DTYPES = st.one_of(
    hnp.boolean_dtypes(),
    hnp.integer_dtypes(endianness="?"),
    hnp.unsigned_integer_dtypes(endianness="?"),
    hnp.floating_dtypes(endianness="?"),
    hnp.complex_number_dtypes(endianness="?"),
    hnp.datetime64_dtypes(endianness="?"),
    hnp.timedelta64_dtypes(endianness="?"),
    hnp.byte_string_dtypes(min_len=1, max_len=5),
    hnp.unicode_string_dtypes(endianness="?", min_len=1, max_len=5),
    hnp.array_dtypes(st.sampled_from([np.dtype("f4"), np.dtype(">i2")]), max_size=3),
)


class TestNpy(FormatSuite):
    suffix = ".npy"

    def write(self, path: Path, columns: Columns) -> None:
        np.save(path, columns[""])

    def columns(self, num_rows: int, start: int = 0) -> Columns:
        return {"": (np.arange(start, start + num_rows)[:, None] * 10 + np.arange(4)).astype("f4")}


# NumPy says so of every header with names outside Latin-1; it is what is tested.
@pytest.mark.filterwarnings("ignore:Stored array in format")
@given(st.data(), st.booleans())
def test_every_dtype_comes_back_in_both_orders(data: st.DataObject, is_fortran: bool) -> None:
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    dtype = data.draw(DTYPES)
    if dtype.subdtype is not None:
        dtype = dtype.subdtype[0]
    fill = st.nothing() if dtype.names else None
    array = data.draw(hnp.arrays(dtype, shape, fill=fill))
    array = np.asfortranarray(array) if is_fortran else array
    raw = io.BytesIO()
    np.save(raw, array)
    with _file(raw.getvalue()) as path:
        ds = ps.from_files(path)
        assert_same(run(ds), list(np.ascontiguousarray(array)))
        assert_same(
            run(ds.shuffle(seed=1).batch(2)), run(ps.from_arrays(array).shuffle(seed=1).batch(2))
        )


class _file:  # noqa: N801  # Reads as a function.
    def __init__(self, data: bytes) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name) / "a.npy"
        self.path.write_bytes(data)

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_: object) -> None:
        self.folder.cleanup()


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_all_versions_of_the_header_are_read(tmp_path: Path, version: tuple[int, int]) -> None:
    array = np.arange(12.0).reshape(6, 2)
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, array, version=version)
    assert_same(run(ps.from_files(tmp_path / "a.npy")), list(array))


def test_fortran_order_is_read_in_windows_too(tmp_path: Path) -> None:
    array = np.asfortranarray(np.arange(120_000.0).reshape(40_000, 3))
    np.save(tmp_path / "a.npy", array)
    ds = ps.from_files(tmp_path / "a.npy").shuffle(window="200KB").batch(1000)
    assert "Fortran" in str(ds.explain())
    found = np.concatenate(run(ds))
    assert_same(list(found[np.argsort(found[:, 0])]), list(np.ascontiguousarray(array)))


def test_a_pickled_object_array_runs_no_code(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return open, (str(tmp_path / "sprung"), "w")

    np.save(tmp_path / "a.npy", np.array([Trap(), None]), allow_pickle=True)
    with pytest.raises(DataError, match=r"a\.npy.*"):
        ps.from_files(tmp_path / "a.npy")
    assert not (tmp_path / "sprung").exists()


def test_a_header_that_claims_more_rows_than_there_are_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((5, 4)))
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data.replace(b"(5, 4)", b"(9, 4)"))
    with pytest.raises(DataError, match=r"a\.npy"):
        ps.from_files(tmp_path / "a.npy")


def test_a_single_value_has_no_rows(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.float32(3))
    with pytest.raises(DataError, match="single value and has no rows"):
        ps.from_files(tmp_path / "a.npy")


def test_rows_of_64_kb_are_shuffled_exactly(tmp_path: Path) -> None:
    array = np.arange(20)[:, None] + np.zeros(1 << 14, "f4")
    np.save(tmp_path / "a.npy", array.astype("f4"))
    ds = ps.from_files(tmp_path / "a.npy").shuffle(seed=4)
    assert_same(run(ds), run(ps.from_arrays(array.astype("f4")).shuffle(seed=4)))
    assert "exact, by index" in str(ds.explain())


COUNT = np.arange(30)
GRID = np.arange(180).reshape(30, 3, 2)
WORDS = np.array([str(n) * (n % 3) for n in COUNT])


def columns(kind: Any) -> Any:
    values = np.zeros(len(COUNT), kind)
    for name in values.dtype.names or ():
        if values[name].dtype.names is None:
            values[name] = COUNT.reshape(-1, *[1] * (values[name].ndim - 1))
    return values


VALUES = {
    **{
        name: COUNT.astype(name)
        for name in ("<i4", ">i4", "<f2", ">f8", "<f16", "?", "<c8", ">c16", "M8[ns]", ">M8[s]")
    },
    **{name: WORDS.astype(name) for name in ("S9", "<U9", ">U9")},
    "bytes": np.array([bytes([n, 1, 2]) for n in COUNT], "V3"),
    "Fortran order": np.asfortranarray(GRID),
    "Fortran order, big-endian": np.asfortranarray(GRID.astype(">f4")),
    "Fortran order, one axis": np.asfortranarray(COUNT),
    "columns": columns([("a", "<i4"), ("b", ">f8")]),
    "aligned columns": columns(np.dtype([("a", "u1"), ("b", "f8")], align=True)),
    "columns with gaps": columns(
        {"names": ["a", "b"], "formats": ["u1", "f8"], "offsets": [5, 9], "itemsize": 32}
    ),
    "columns with titles": columns([(("a title", "a"), "<i4"), ("b", "u1")]),
    "columns of arrays": columns([("a", "<f4", (2, 3)), ("b", "u1")]),
    "columns of columns": columns([("a", [("b", "<i4"), ("c", "u1")]), ("d", "S3")]),
    "columns in Fortran order": np.asfortranarray(np.stack([columns([("a", "<i4")])] * 3, 1)),
    "no values in a row": np.zeros((30, 0, 3)),
    "no values in a row, Fortran order": np.asfortranarray(np.zeros((30, 0, 2))),
    "no rows": np.zeros((0, 3)),
    "text of no length": np.zeros(30, "S0"),
}


@pytest.mark.parametrize("version", [None, (2, 0), (3, 0)])
@pytest.mark.parametrize("name", VALUES)
@pytest.mark.filterwarnings("ignore:Stored array in format")
def test_every_layout_is_what_numpy_loads(tmp_path: Path, name: str, version: Any) -> None:
    with (tmp_path / "a.npy").open("wb") as file:
        np.lib.format.write_array(file, VALUES[name], version=version)
    assert_reads(ps.from_files(tmp_path / "a.npy"), list(np.load(tmp_path / "a.npy")))


def test_a_header_of_sub_arrays_is_refused_as_numpy_refuses_it(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((4, 3), "<f4"))
    data = (tmp_path / "a.npy").read_bytes()
    odd = data.replace(b"'<f4'", b"('<f4', (3,))").replace(b"(4, 3)", b"(4,)  ")
    odd = odd.replace(b" " * 8 + b"\n", b"\n", 1)
    assert len(odd) == len(data)
    (tmp_path / "a.npy").write_bytes(odd)
    with pytest.raises(ValueError, match=r"reshape|Expected \(4,\)"):
        np.load(tmp_path / "a.npy")
    with pytest.raises(DataError, match=r"a\.npy.*sub-array"):
        ps.from_files(tmp_path / "a.npy")
