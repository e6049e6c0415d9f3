"""HDF5 has types that NumPy has not: what is read is the number that was written, or an error."""

import tempfile
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pytest
from h5py import h5t
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import assert_same, run
from tests.sources.fidelity import assert_reads
from tests.sources.hdf5.types import (
    BFLOAT16,
    HALVES,
    LAYOUTS,
    REFUSED,
    TYPES,
    Typed,
    array,
    compound,
    enumeration,
    floating,
    integer,
    text,
)

import penstock as ps
from penstock.errors import FieldError
from penstock.sources.hdf5.value_types import value_type

# h5py writes past the end of its own array for columns that take more bytes in memory than in the file.
H5PY_FAILS = {
    "bfloat16 as the first column",
    "bfloat16 as the last column",
    "columns of arrays of bfloat16",
    "int24",
    "uint24, big-endian",
    "int40",
    "opaque",
    "opaque, with a tag that lies",
    "bit field of 10 bits",
}
# It takes these for big-endian and little-endian by turns.
H5PY_ERRS = {"complex of long doubles, big-endian"}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", TYPES)
def test_what_was_written_is_read_whatever_its_type(tmp_path: Path, name: str, layout: str) -> None:
    TYPES[name].write(tmp_path / "a.h5", layout)
    ds = ps.from_files(tmp_path / "a.h5", "x")
    assert_reads(ds, TYPES[name].rows(ds.spec.dtype))
    with h5py.File(tmp_path / "a.h5") as file:
        assert_same(run(ps.from_arrays(file["x"])), TYPES[name].rows(ds.spec.dtype))


@pytest.mark.parametrize("name", sorted(set(TYPES) - H5PY_FAILS - H5PY_ERRS))
def test_it_is_what_h5py_reads(tmp_path: Path, name: str) -> None:
    TYPES[name].write(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5") as file:
        theirs = file["x"][:]
    ds = ps.from_files(tmp_path / "a.h5", "x")
    assert ds.spec.dtype == theirs.dtype or ds.spec.dtype.names
    np.testing.assert_array_equal(np.stack(run(ds)), theirs)


@pytest.mark.parametrize("name", TYPES)
def test_only_the_very_bytes_of_an_array_are_read_in_place(tmp_path: Path, name: str) -> None:
    TYPES[name].write(tmp_path / "a.h5")
    how = str(ps.from_files(tmp_path / "a.h5", "x").explain())
    assert ("page cache" in how) is TYPES[name].is_plain
    assert ("HDF5 of values to convert" in how) is not TYPES[name].is_plain


@pytest.mark.parametrize("name", ["bfloat16", "columns", "int12 at bit 4, big", "array"])
def test_a_user_block_before_the_file_moves_nothing(tmp_path: Path, name: str) -> None:
    TYPES[name].write(tmp_path / "a.h5", userblock_size=1024)
    ds = ps.from_files(tmp_path / "a.h5", "x")
    assert_reads(ds, TYPES[name].rows(ds.spec.dtype))


@pytest.mark.parametrize("name", REFUSED)
def test_what_numpy_can_not_hold_is_refused_by_name(tmp_path: Path, name: str) -> None:
    stored, reason = REFUSED[name]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        h5py.h5d.create(file.id, b"x", stored, h5py.h5s.create_simple((3,)))
        with pytest.raises(FieldError, match=rf"a\.h5: dataset 'field'.*{reason}"):
            ps.from_arrays({"field": file["x"]})
    with pytest.raises(FieldError, match=rf"a\.h5: dataset 'x' of shape \(3,\) holds.*{reason}"):
        ps.from_files(tmp_path / "a.h5", "x")


def test_every_bfloat16_and_float8_is_the_number_that_it_stands_for(tmp_path: Path) -> None:
    kinds = {
        ml_dtypes.bfloat16: (BFLOAT16, np.arange(1 << 16, dtype="u2")),
        ml_dtypes.float8_e5m2: (floating(1, 5, 2, 15), np.arange(1 << 8, dtype="u1")),
    }
    for dtype, (stored, patterns) in kinds.items():
        Typed(stored, patterns, stored).write(tmp_path / "a.h5")
        found = np.concatenate(run(ps.from_files(tmp_path / "a.h5", "x").batch(1000)))
        want = patterns.view(dtype).astype(found.dtype)
        np.testing.assert_array_equal(found, want)
        finite = ~np.isnan(want)
        np.testing.assert_array_equal(np.signbit(found[finite]), np.signbit(want[finite]))


def test_a_mantissa_that_is_written_out_is_read(tmp_path: Path) -> None:
    stored = h5t.IEEE_F32LE.copy()
    stored.set_fields(31, 24, 7, 0, 24)
    stored.set_ebias(63)
    stored.set_norm(h5t.NORM_NONE)
    # 1.5 and -2: the highest bit of a mantissa of 24 bits is the one before the point.
    patterns = np.array([63 << 24 | 0xC00000, 1 << 31 | 64 << 24 | 0x800000], "<u4")
    Typed(stored, patterns, stored).write(tmp_path / "a.h5")
    assert run(ps.from_files(tmp_path / "a.h5", "x")) == [1.5, -2.0]


@pytest.mark.parametrize("size", [4, 8])
def test_the_order_of_bytes_of_a_vax_is_turned_around(tmp_path: Path, size: int) -> None:
    stored = (h5t.IEEE_F32LE if size == 4 else h5t.IEEE_F64LE).copy()
    stored.set_order(h5t.ORDER_VAX)
    Typed(stored, HALVES).write(tmp_path / "a.h5")
    # HDF5 writes the order, but in a version of the message of which it does not read it.
    data = (tmp_path / "a.h5").read_bytes()
    message = h5t.TypeID.encode(stored)[2:]
    assert data.count(message) == 1
    newer = bytes([message[0] & 0x0F | 0x30]) + message[1:]
    (tmp_path / "a.h5").write_bytes(data.replace(message, newer))
    ds = ps.from_files(tmp_path / "a.h5", "x")
    assert_reads(ds, list(HALVES.astype(f"<f{size}")))


def test_numbers_without_a_name_stay_what_they_are() -> None:
    narrow = h5t.enum_create(integer(2, 12, 4))
    narrow.enum_insert(b"A", 0)
    found = value_type(narrow)
    assert (found.dtype, found.is_plain) == (np.dtype("<i2"), False)
    assert found.memory.get_class() == h5t.INTEGER  # Not of names: HDF5 would give -1.


def test_text_and_lists_of_any_length_are_read(tmp_path: Path) -> None:
    lists = [np.arange(number % 4).astype("i2") - 2 for number in range(30)]
    halves = [row.astype("f4") for row in lists]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, rows, stored in (
            ("int12", lists, integer(2, 12, 4)),
            ("bfloat16", halves, BFLOAT16),
            ("truth", [row > 0 for row in lists], h5t.py_create(np.dtype(bool))),
            ("complex", [row.astype("c8") for row in lists], h5t.py_create(np.dtype("c8"))),
        ):
            values = np.empty(len(rows), h5py.vlen_dtype(rows[0].dtype))
            values[:] = rows
            space = h5py.h5s.create_simple((len(rows),))
            made = h5py.h5d.create(file.id, name.encode(), h5t.vlen_create(stored), space)
            made.write(h5py.h5s.ALL, h5py.h5s.ALL, values, h5t.py_create(values.dtype))
    assert_reads(ps.from_files(tmp_path / "a.h5", "int12"), lists)
    assert_reads(ps.from_files(tmp_path / "a.h5", "bfloat16"), halves)
    assert_reads(ps.from_files(tmp_path / "a.h5", "truth"), [row > 0 for row in lists])
    assert_reads(ps.from_files(tmp_path / "a.h5", "complex"), [row.astype("c8") for row in lists])


class AnyType:
    """A type of columns and arrays, drawn at random: how a file stores it, and a dtype that holds its values."""

    def __init__(self, generator: np.random.Generator) -> None:
        self.generator = generator

    def draw(self, depth: int) -> tuple[Any, np.dtype, Any]:
        """Return a type of a file, the dtype of its values, and a function that makes some of them."""
        choice = self.generator.integers(0, 6 if depth else 4)
        if choice == 0:
            return self.integer()
        if choice == 1:
            stored = [BFLOAT16, floating(3, 7, 16, 63), h5t.IEEE_F32BE, h5t.IEEE_F64LE]
            kind = stored[self.generator.integers(0, len(stored))]
            return kind, np.dtype("<f8"), lambda shape: self.generator.integers(-64, 64, shape) / 2
        if choice == 2:
            size, padding = (int(n) for n in self.generator.integers((2, 0), (6, 3)))
            words = np.array([b"", b"a", b"a-b"[: size - 1]])
            kind = np.dtype(f"S{size}")
            return text(size, padding), kind, lambda shape: self.generator.choice(words, shape)
        if choice == 3:
            base = [h5t.STD_I8LE, h5t.STD_U8LE, h5t.STD_I32BE][self.generator.integers(0, 3)]
            kind = enumeration(base, FALSE=0, TRUE=1)
            return kind, np.dtype(bool), lambda shape: self.generator.random(shape) < 0.5
        if choice == 4:
            sizes = tuple(map(int, self.generator.integers(1, 4, self.generator.integers(1, 3))))
            kind, dtype, make = self.draw(depth - 1)
            return array(kind, *sizes), np.dtype((dtype, sizes)), make
        return self.columns(depth)

    def integer(self) -> tuple[Any, np.dtype, Any]:
        size = int(self.generator.integers(1, 9))
        # HDF5 takes a type of which most bits are unused for a damaged one.
        precision = int(self.generator.integers(4 * size + 1, 8 * size + 1))
        offset = int(self.generator.integers(0, 8 * size - precision + 1))
        sign, order = (int(n) for n in self.generator.integers(0, 2, 2))
        top = 1 << min(62, precision - sign)
        return (
            integer(size, precision, offset, sign=bool(sign), order=order),
            np.dtype("<i8"),
            lambda shape: self.generator.integers(-top if sign else 0, top, shape),
        )

    def columns(self, depth: int) -> tuple[Any, np.dtype, Any]:
        parts = [self.draw(depth - 1) for _ in range(self.generator.integers(1, 5))]
        places, end = [], 0
        for kind, _, _ in parts:
            end += int(self.generator.integers(0, 3))
            places.append(end)
            end += kind.get_size()
        members = [
            (f"c{n}", place, part[0])
            for n, (place, part) in enumerate(zip(places, parts, strict=True))
        ]
        self.generator.shuffle(members)
        dtype = np.dtype([(f"c{n}", part[1]) for n, part in enumerate(parts)])

        def make(shape: Any) -> Any:
            values = np.zeros(shape, dtype)
            for number, (_, kind, fill) in enumerate(parts):
                inner = np.zeros(0, [("x", kind)])["x"].shape[1:]
                values[f"c{number}"] = fill((*shape, *inner))
            return values

        return compound(end + int(self.generator.integers(0, 3)), *members), dtype, make


@given(st.integers(0, 1 << 32), st.sampled_from(LAYOUTS))
def test_any_columns_in_any_place_are_read(seed: int, layout: str) -> None:
    stored, dtype, make = AnyType(np.random.default_rng(seed)).columns(2)
    typed = Typed(stored, make((20,)), h5t.py_create(dtype))
    with tempfile.TemporaryDirectory() as folder:
        typed.write(Path(folder) / "a.h5", layout)
        ds = ps.from_files(Path(folder) / "a.h5", "x").with_options(threads=0)
        assert_same(run(ds), typed.rows(ds.spec.dtype))
