"""from_arrays: whatever the user has, row by row, without a copy of it being made."""

import gc
import pickle
import weakref
from collections import OrderedDict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.sources.conformance import SourceConformance

import penstock as ps
from penstock.core.nest import flatten
from penstock.core.rows import Rows

N = 11
RANDOM = np.random.default_rng(0)


def case_of(nest: Any, **more: Any) -> Case:
    """The case of a nest whose leaves can be indexed by row number."""
    leaves, structure = flatten(nest)
    rows = [structure.unflatten([leaf[i] for leaf in leaves]) for i in range(len(leaves[0]))]
    return Case(lambda: ps.from_arrays(nest), rows, **more)


def raw(dtype: str, shape: tuple[int, ...] = (N,)) -> Any:
    """An array of any dtype, of random bytes where those are values."""
    dtype = np.dtype(dtype)
    count = int(np.prod(shape))
    if dtype.kind == "b":
        return RANDOM.integers(0, 2, shape).astype(bool)
    if dtype.kind == "U":
        return np.array([chr(0x1F600 + i) * (i % 4) for i in range(count)], dtype).reshape(shape)
    return RANDOM.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype).reshape(shape)


DTYPES = [
    *["?", "b", "h", "i", "q", "B", "H", "I", "Q", "e", "f", "d", "g", "F", "D", "G"],
    *["S1", "S7", "U3", "U5", "M8[ns]", "M8[D]", "m8[s]", "V5"],
    *[">i4", ">f8", ">u2", ">c16", ">M8[us]"],
]
STRUCT = np.dtype(
    [("a", "u1"), ("b", ">f8", (2,)), ("c", "S3"), ("d", [("e", "M8[D]")])], align=True
)
BIG = np.arange(N * 6 * 4, dtype="f4").reshape(N, 6, 4)


class Point(NamedTuple):
    x: Any
    y: Any


ARRAYS: dict[str, Any] = {f"dtype {dtype}": raw(dtype) for dtype in DTYPES}
ARRAYS |= {
    f"dtype {dtype} in 2 dimensions": raw(dtype, (N, 3))
    for dtype in ["?", "e", "D", "S3", "U2", ">i8"]
}
ARRAYS |= {
    "structured": raw("u1", (N * STRUCT.itemsize,)).view(STRUCT),
    "structured, 2 dimensions": raw("u1", (N, 2 * STRUCT.itemsize)).view(STRUCT),
    "record array": np.rec.array([(i, i / 2) for i in range(N)], dtype=[("a", "i4"), ("b", "f8")]),
    "Fortran order": np.asfortranarray(BIG),
    "every other row": np.repeat(BIG, 2, axis=0)[::2],
    "every other column": BIG[:, ::2],
    "transposed": np.arange(3 * N).reshape(3, N).T,
    "rows backwards": BIG[::-1],
    "columns backwards": BIG[:, ::-1],
    "both backwards, every other": BIG[::-1, ::-2, ::-1],
    "a column of a table": BIG.reshape(N, -1)[:, 5],
    "one field of a struct": raw("u1", (N * STRUCT.itemsize,)).view(STRUCT)["b"],
    "one row broadcast": np.broadcast_to(np.arange(3.0), (N, 3)),
    "one value broadcast": np.broadcast_to(np.float32(7), (N, 2, 2)),
    "unaligned": raw("u1", (N * 8 + 1,))[1:].view("f8"),
    "rows of no bytes": np.zeros((N, 0, 3)),
    "values of no bytes": np.zeros(N, "V0"),
    "one row": np.arange(3).reshape(1, 3),
    "no rows": np.zeros((0, 3), "f4"),
    "no rows of no bytes": np.zeros((0, 0)),
    "many dimensions": np.arange(N * 2**6).reshape(N, *[2] * 6),
    "larger than a block": np.arange(5 * 700_000).reshape(5, 700_000),
    "tuple": (BIG, np.arange(N)),
    "tuple of one": (BIG,),
    "dict": {"b": np.arange(N), "a": BIG},
    "nest": {"x": (BIG, {"deep": np.arange(N)}), "y": np.arange(N) % 2 == 0},
    "ordered dict": OrderedDict(z=np.arange(N), a=BIG),
    "named tuple": Point(np.arange(N), BIG),
    "dict of odd keys": {1: np.arange(N), "a": BIG, None: np.arange(N), (1, 2): np.arange(N)},
    "dict with an empty dict": {"a": np.arange(N), "b": {}, "c": ()},
    "numbers": [0, 1, 2.5, 3, 4, 5, 6, 7, 8, 9, 10],
    "booleans": [True, False] * 5 + [True],
    "complex numbers": [1j * i for i in range(N)],
    "NumPy numbers": [np.float16(i) for i in range(N)],
}
ARRAYS["numbers"] = np.array(ARRAYS["numbers"]).tolist()
READ_ONLY = BIG.copy()
READ_ONLY.flags.writeable = False
ARRAYS["read-only"] = READ_ONLY


def expected(nest: Any) -> Any:
    """The nest as arrays, to be indexed by row."""
    leaves, structure = flatten(nest)
    return structure.unflatten([np.asarray(leaf) for leaf in leaves])


class TestArraysInMemory(SourceConformance):
    @pytest.fixture(params=ARRAYS)
    def case(self, request: pytest.FixtureRequest) -> Case:
        nest = ARRAYS[request.param]
        rows = case_of(expected(nest)).elements
        return Case(lambda: ps.from_arrays(nest), rows)


TEXTS = {
    "bytes": [
        b"",
        b"a",
        b"a\0",
        b"\0\0\0",
        b"\xff\xfe",
        b"x" * 1000,
        b"a",
        b"",
        b"b\n",
        b"\0",
        b"z",
    ],
    "str": [
        "",
        "a",
        "a\0\0",
        "é",
        "\U0001f600",
        "\ud800",
        "x" * 1000,
        "\udcff\0",
        "日本",
        " ",
        "\n",
    ],
    "all empty": [b""] * N,
    "one": ["alone"],
}
TEXT_CASES = {
    **{name: case_of(values) for name, values in TEXTS.items()},
    "beside an array": case_of({"text": TEXTS["str"], "x": BIG}),
    "NumPy's own text": Case(
        lambda: ps.from_arrays([np.str_("a"), np.str_("bc"), "d"]), ["a", "bc", "d"]
    ),
}


class TestLists(SourceConformance):
    @pytest.fixture(params=TEXT_CASES)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return TEXT_CASES[request.param]


RAGGED = {
    "one dimension": [np.arange(i * 3 % 5) for i in range(N)],
    "float16": [np.arange(i % 4, dtype="f2") for i in range(N)],
    "inner dimension differs": [np.ones((2, i % 3 + 1), "i2") * i for i in range(N)],
    "both differ": [np.full((i % 3, i % 4), i, "f4") for i in range(N)],
    "none differ": [np.full((2, 2), i) for i in range(N)],
    "no dimensions": [np.array(i) for i in range(N)],
    "all empty": [np.zeros((0, 3))] * N,
    "fixed-width text": [np.array(["a", "bb"] * (i % 3), "U2") for i in range(N)],
    "big-endian": [np.arange(i % 3, dtype=">i4") for i in range(N)],
    "backwards": [np.arange(i)[::-1] for i in range(N)],
    "datetimes": [np.arange(i % 3).astype("M8[D]") for i in range(N)],
}


class TestListsOfArrays(SourceConformance):
    @pytest.fixture(params=RAGGED)
    def case(self, request: pytest.FixtureRequest) -> Case:
        return case_of(RAGGED[request.param])

    def test_dimensions_that_differ_are_none_in_the_spec(self) -> None:
        assert ps.from_arrays(RAGGED["both differ"]).spec == ps.ArraySpec((None, None), "f4")
        assert ps.from_arrays(RAGGED["inner dimension differs"]).spec.shape == (2, None)
        assert ps.from_arrays(RAGGED["none differ"]).spec.shape == (2, 2)


class Lazy:
    """An array that lives elsewhere: it counts what is read, and must never be read whole."""

    def __init__(self, array: Any, most: int | None = None) -> None:
        self.array = array
        self.shape = array.shape
        self.dtype = array.dtype
        self.most = most
        self.num_read = 0

    def __getitem__(self, key: Any) -> Any:
        assert isinstance(key, slice), key
        assert key.step is None
        found = self.array[key]
        assert self.most is None or len(found) <= self.most, "read whole"
        self.num_read += len(found)
        return found

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("read whole")


class TestLazyArrays(SourceConformance):
    @pytest.fixture(params=["flat", "wide", "struct", "no rows"])
    def case(self, request: pytest.FixtureRequest) -> Case:
        array = {
            "flat": np.arange(N),
            "wide": BIG,
            "struct": raw("u1", (N * STRUCT.itemsize,)).view(STRUCT),
            "no rows": np.zeros((0, 2)),
        }[request.param]
        return Case(lambda: ps.from_arrays(Lazy(array)), case_of(array).elements)


def test_a_lazy_array_is_not_read_when_the_chain_is_built():
    lazy = Lazy(np.zeros((1000, 100)), most=0)
    ds = ps.from_arrays((lazy, lazy)).shuffle().batch(32).take(3)
    assert len(ds) == 3
    ds.explain()
    assert lazy.num_read == 0


def test_a_lazy_array_is_read_about_once_and_never_whole():
    rows = 1 << 16
    lazy = Lazy(np.zeros((rows, 1 << 8), "u1"), most=rows // 2)
    assert sum(map(len, ps.from_arrays(lazy).batch(1000))) == rows
    assert lazy.num_read == rows


def test_a_take_of_a_lazy_array_reads_little_of_it():
    lazy = Lazy(np.zeros((1 << 20, 64), "u1"), most=1 << 18)
    assert len(list(ps.from_arrays(lazy).take(10).batch(5))) == 2
    assert lazy.num_read == 10


def test_a_lazy_array_that_gives_fewer_rows_than_it_has_is_an_error():
    lazy = Lazy(np.ones((100, 2)))
    ds = ps.from_arrays(lazy).batch(50)
    lazy.array = lazy.array[:70]
    for threads in (0, 2):
        with pytest.raises(ps.SpecMismatchError, match=r"of Lazy must be .* did it change"):
            list(ds.with_options(threads=threads))
    with pytest.raises(ps.SpecMismatchError, match="must be"):
        list(ps.from_arrays(lazy).shuffle())


def test_stop_iteration_out_of_a_lazy_array_is_an_error_and_not_the_end():
    class Stops(Lazy):
        def __getitem__(self, key: Any) -> Any:
            if key.start:
                raise StopIteration
            return super().__getitem__(key)

    for threads in (0, 2):
        ds = ps.from_arrays(Stops(np.zeros((1 << 16, 64)))).batch(1 << 10)
        with pytest.raises(RuntimeError, match="StopIteration"):
            list(ds.with_options(threads=threads))


def test_a_lazy_array_whose_slices_have_another_dtype_is_refused():
    class Lies(Lazy):
        dtype = np.dtype("f4")

    lies = Lies(np.zeros(5))
    lies.dtype = np.dtype("f4")
    with pytest.raises(TypeError, match=r"a slice of Lies must be an array of .*float32"):
        ps.from_arrays(lies)


@pytest.mark.parametrize("offset", [0, 13])
def test_a_memmap_is_read_in_place(tmp_path: Path, offset: int):
    path = tmp_path / "data.bin"
    path.write_bytes(bytes(offset) + BIG.tobytes())
    mapped = np.memmap(path, "f4", mode="r", offset=offset, shape=BIG.shape)
    ds = ps.from_arrays(mapped)
    rows = run(ds.shuffle().batch(4))
    assert all(type(batch) is np.ndarray for batch in rows)
    assert_same(run(ds), list(BIG))
    assert_same(run(pickle.loads(pickle.dumps(ds))), list(BIG))


def test_h5py_datasets_are_read_by_chunks(tmp_path: Path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        file["x"] = BIG
        chunked = file.create_dataset("y", data=np.arange(N), chunks=(2,), compression="gzip")
        file.create_dataset("z", shape=(0, 3))
        ds = ps.from_arrays((file["x"], chunked))
        assert_same(run(ds), [(BIG[i], np.int64(i)) for i in range(N)])
        assert sorted(int(y) for _, y in ds.shuffle()) == list(range(N))
        assert run(ps.from_arrays(file["z"])) == []
        assert "open HDF5 dataset, decoded a chunk at a time" in ds.explain().stages[0].choice


def test_an_h5py_dataset_cut_short_while_it_is_streamed_is_an_error(tmp_path: Path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "data.h5", "w") as file:
        data = file.create_dataset("x", data=np.ones((100, 3)), maxshape=(None, 3))
        ds = ps.from_arrays(data).batch(10)
        data.resize(50, axis=0)
        with pytest.raises(ps.SpecMismatchError, match="did it change since from_arrays"):
            list(ds)


def test_zarr_arrays_are_read_by_chunks(tmp_path: Path):
    zarr = pytest.importorskip("zarr")
    array = zarr.create_array(store=str(tmp_path / "x.zarr"), data=BIG, chunks=(3, 6, 4))
    ds = ps.from_arrays({"x": array})
    assert_same(run(ds), [{"x": row} for row in BIG])
    found = sorted(float(row["x"][0, 0]) for row in ds.shuffle(seed=4))
    assert found == BIG[:, 0, 0].tolist()


def test_torch_tensors_are_read_where_they_are():
    torch = pytest.importorskip("torch")
    x = torch.arange(N * 2, dtype=torch.float32).reshape(N, 2).requires_grad_()
    y = torch.arange(N) % 2 == 0
    ds = ps.from_arrays((x, y))
    assert ds.spec == (ps.ArraySpec((2,), "f4"), ps.ArraySpec((), "?"))
    assert_same(run(ds), list(zip(x.detach().numpy(), y.numpy(), strict=True)))
    with torch.no_grad():
        x[0, 0] = 100  # No copy was made: the change is seen.
    assert next(iter(ds))[0][0] == 100
    transposed = torch.arange(6).reshape(2, 3).T
    assert_same(run(ps.from_arrays(transposed)), list(transposed.numpy()))


def test_jax_arrays_are_read_where_they_are():
    jnp = pytest.importorskip("jax.numpy")
    x = jnp.arange(N * 2, dtype="float32").reshape(N, 2)
    half = x.astype("bfloat16")
    ds = ps.from_arrays((x, half))
    assert_same(run(ds.shuffle().batch(N)), [(np.asarray(x)[_order()], np.asarray(half)[_order()])])


def _order() -> list[int]:
    return [int(i) for i in run(ps.from_arrays(np.arange(N)).shuffle())]


def test_tensorflow_tensors_are_read_where_they_are():
    tf = pytest.importorskip("tensorflow")
    x = tf.reshape(tf.range(N * 2, dtype=tf.float32), (N, 2))
    ds = ps.from_arrays({"x": x, "v": tf.Variable(tf.range(N))})
    assert_same(run(ds), [{"x": x.numpy()[i], "v": np.int32(i)} for i in range(N)])
    with pytest.raises(TypeError, match=r"list of str"):
        ps.from_arrays(tf.constant(["a", "b"]))


def test_pandas_columns_are_arrays():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": np.arange(N), "b": np.arange(N) / 2})
    ds = ps.from_arrays({column: frame[column] for column in frame})
    assert_same(run(ds), [{"a": np.int64(i), "b": np.float64(i / 2)} for i in range(N)])
    assert_same(run(ps.from_arrays(frame)), run(ds))


def test_the_arrays_are_kept_alive_by_the_dataset_and_by_nothing_else():
    array = np.zeros((100, 10))
    ds = ps.from_arrays(array).shuffle().batch(10)
    alive = weakref.ref(array)
    del array
    kept = list(ds)
    assert alive() is not None
    del ds
    gc.collect()
    assert alive() is None
    assert kept[0].sum() == 0


def test_a_change_of_the_array_is_seen_by_the_next_stream():
    array = np.zeros(4)
    ds = ps.from_arrays(array)
    array[:] = 7
    assert [float(x) for x in ds] == [7.0] * 4


def test_an_array_is_not_copied_when_the_chain_is_built():
    huge = np.broadcast_to(np.float64(1), (1 << 40, 8))
    ds = ps.from_arrays(huge).shuffle().batch(32)
    assert len(ds) == 1 << 35
    assert next(iter(ds)).sum() == 32 * 8


LISTS = {
    "int32": [np.arange(n, dtype="i4") for n in (3, 0, 7, 1)],
    "two axes": [np.ones((n, 8), "f4") * n for n in (3, 0, 7, 1)],
    "both axes differ": [np.full((n, 4 - n), n, "f8") for n in (3, 0, 2, 1)],
    "of one shape": [np.full((2, 2), n, "i1") for n in range(4)],
    "numbers": [np.array(n, "?") for n in (0, 1, 1, 0)],
    "dates": [np.arange(n).astype("M8[D]") for n in (3, 0, 7, 1)],
    "structs": [np.zeros(n, [("a", "i2"), ("b", "f4")]) for n in (3, 0, 7, 1)],
    "with gaps": [np.arange(2 * n, dtype="i4")[::2] for n in (3, 0, 7, 1)],
    "by columns": [np.asfortranarray(np.arange(2 * n).reshape(n, 2)) for n in (3, 0, 7, 1)],
    "other byte order": [np.arange(n, dtype=">i4") for n in (3, 0, 7, 1)],
    "read-only": [np.frombuffer(bytes(range(n)), "u1") for n in (3, 0, 7, 1)],
}


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_arrays_gives_each_of_them_however_it_lies_in_memory(name: str) -> None:
    values = LISTS[name]
    ds = ps.from_arrays((values, np.arange(4)))
    for chain in (ds, ds.shuffle(seed=1).repeat(3), pickle.loads(pickle.dumps(ds))):
        for found, number in chain:
            wanted = values[int(number)]
            assert found.shape == wanted.shape
            assert found.dtype == wanted.dtype
            assert found.tolist() == wanted.tolist()


def test_a_list_of_arrays_is_read_as_it_was_given_and_its_table_is_counted() -> None:
    values = [np.zeros(2, "i8") for _ in range(1000)]
    ds = ps.from_arrays(values)
    values[0] = np.zeros(9, "f4")
    values.pop()
    assert [found.shape for found in ds] == [(2,)] * 1000
    ragged = [np.zeros(n % 5, "i8") for n in range(1000)]
    node = ps.from_arrays(ragged).node
    assert isinstance(node, Rows)
    assert node.retained_nbytes(0) == 1000 * (32 + 8)


@pytest.mark.parametrize("dtype", [">i4", ">f8", [("a", ">i2"), ("b", "<f4")]])
def test_a_pickled_array_of_another_byte_order_is_shuffled_as_it_was(dtype: Any) -> None:
    x = np.zeros(500, dtype)
    x["a" if isinstance(dtype, list) else ...] = np.arange(500)
    ds = ps.from_arrays(x).shuffle(seed=1).batch(32)
    copy = pickle.loads(pickle.dumps(ds))
    for one, other in zip(ds, copy, strict=True):
        assert one.dtype == other.dtype
        assert one.tolist() == other.tolist()


def test_large_whole_numbers_in_a_list_are_never_rounded() -> None:
    large = 18446744073709551557
    for values in ([5, large], [np.uint64(large), np.int64(5)], [True, large]):
        ds = ps.from_arrays(values)
        assert ds.spec.dtype == np.uint64
        assert [int(one) for one in ds] == [int(one) for one in values]
    for values in ([1, 2**64], [-1, 2**63], [np.int64(-1), np.uint64(2**63)]):
        with pytest.raises(ps.RangeError, match=r"neither int64 nor uint64 holds; round them"):
            ps.from_arrays(values)
    assert ps.from_arrays([1, 2.5]).spec.dtype == np.float64
