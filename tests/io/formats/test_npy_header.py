"""`.npy` headers: all that NumPy writes is read, all that lies is refused, nothing is run."""

import io
import pickle
import struct
import tracemalloc
import warnings

import numpy as np
import numpy.lib.format as npy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.errors import DataError
from penstock.io.formats.npy_header import (
    MAX_HEADER,
    NpyHeader,
    format_header,
    header_nbytes,
    header_of,
    parse_header,
    read_header,
)
from penstock.io.local.reader import LocalReader

DTYPES = [
    "bool",
    "int8",
    "uint8",
    "int16",
    "uint16",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "float16",
    "float32",
    "float64",
    "longdouble",
    "complex64",
    "complex128",
    "S5",
    "U7",
    "V3",
    "S0",
    "U0",
    "datetime64[ns]",
    "datetime64[25us]",
    "timedelta64[D]",
    "timedelta64",
    ">f4",
    ">i8",
    ">U3",
]
STRUCTURED = [
    [("x", "<f4"), ("y", "<i8", (2, 3))],
    [("outer", [("inner", ">u2"), ("name", "S4")])],
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype({"names": ["a", "b"], "formats": ["i4", "f8"], "offsets": [4, 16], "itemsize": 32}),
    [("größe", "<f4")],
    [("数", "<f4")],
    [("it's", "<f4"), ('a"b', "<f4"), ("back\\slash", "<i2"), ("tab\t", "<i2")],
    [(("title", "name"), "<f4")],
    [(f"column_{index}", "<f4") for index in range(400)],
]


def saved(array: np.ndarray, version: tuple[int, int] | None = None) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # names that need a later version, titles that are lost
        npy.write_array(file, array, version=version, allow_pickle=True)
    return file.getvalue()


def with_header(text: str, *, data: bytes = b"", version: int = 1) -> bytes:
    body = text.encode("utf-8" if version == 3 else "latin-1")
    form = "<H" if version == 1 else "<I"
    return npy.MAGIC_PREFIX + bytes((version, 0)) + struct.pack(form, len(body)) + body + data


def described(descr: str, shape: str, order: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}\n"


@pytest.mark.parametrize("shape", [(), (0,), (5,), (3, 4), (2, 0, 3), (1, 2, 3, 4)])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("order", ["C", "F"])
def test_what_numpy_saves_is_read(bytes_reader, shape, dtype, order):
    array = np.zeros(shape, dtype, order=order)
    header = read_header(bytes_reader(saved(array)))
    assert header.dtype == array.dtype
    assert header.shape == shape
    assert header.fortran_order == (array.flags.f_contiguous and not array.flags.c_contiguous)
    assert header.nbytes == array.nbytes
    assert header.data_offset % 64 == 0


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
@pytest.mark.parametrize("descr", STRUCTURED)
def test_structured_arrays_of_every_version_are_read(bytes_reader, descr, version):
    array = np.zeros(7, descr)
    try:
        data = saved(array, version)
    except (ValueError, UnicodeEncodeError):
        pytest.skip("NumPy cannot write these names in this version; the others are tested")
    header = read_header(bytes_reader(data))
    assert header.dtype == array.dtype
    assert header.data_offset + header.nbytes == len(data)


@given(
    dtype=st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes(max_size=4)),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
)
def test_any_array_comes_back(dtype, shape, bytes_reader):
    array = np.zeros(shape, dtype)
    data = saved(array)
    header = read_header(bytes_reader(data))
    assert header.dtype == array.dtype
    assert header.shape == array.shape
    raw = np.frombuffer(data, np.uint8, offset=header.data_offset)
    assert raw.size == header.nbytes == array.nbytes


def test_files_of_python_2_are_read(bytes_reader):
    data = with_header(
        "{'descr': '<f4', 'fortran_order': False, 'shape': (10L, 3L), }\n", data=bytes(120)
    )
    assert read_header(bytes_reader(data)).shape == (10, 3)


def test_a_header_inside_a_file_counts_from_the_file(bytes_reader):
    array = np.arange(12, dtype="<i4").reshape(3, 4)
    data = b"x" * 100 + saved(array) + b"y" * 50
    header = read_header(bytes_reader(data), offset=100, nbytes=len(data) - 150)
    raw = np.frombuffer(data, "<i4", 12, header.data_offset)
    np.testing.assert_array_equal(raw, np.arange(12))


def test_only_the_header_is_read(bytes_reader):
    reader = bytes_reader(saved(np.zeros(100_000)))
    read_header(reader)
    assert reader.num_bytes_read <= 512


@given(
    dtype=st.one_of(hnp.scalar_dtypes(), hnp.array_dtypes(max_size=4)),
    shape=hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4),
    cut=st.integers(0, 300),
)
def test_the_header_of_a_file_is_what_a_reader_finds(dtype, shape, cut, tmp_path_factory, locate):
    path = tmp_path_factory.mktemp("one") / "x.npy"
    data = saved(np.zeros(shape, dtype))
    for whole in (data, data[: max(0, len(data) - cut)]):
        path.write_bytes(whole)
        location = locate(path)
        outcomes = []
        for find in (header_of, lambda one: read_header(LocalReader(one))):
            try:
                outcomes.append(find(location))
            except DataError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


def test_a_header_longer_than_the_first_read_is_read_whole(tmp_path, locate):
    array = np.zeros(3, [(f"column_{index}", "<f4") for index in range(400)])
    np.save(tmp_path / "x.npy", array)
    assert header_of(locate(tmp_path / "x.npy")).dtype == array.dtype


def test_each_file_of_equal_headers_is_held_to_its_own_size(tmp_path, locate):
    np.save(tmp_path / "a.npy", np.zeros((10, 3)))
    np.save(tmp_path / "b.npy", np.zeros((10, 3)))
    with (tmp_path / "b.npy").open("r+b") as file:
        file.truncate(200)
    assert header_of(locate(tmp_path / "a.npy")).shape == (10, 3)
    with pytest.raises(DataError, match=r"b\.npy.*takes 240 bytes, but 72 bytes are there"):
        header_of(locate(tmp_path / "b.npy"))


def test_each_file_of_equal_damaged_headers_is_named(tmp_path, locate):
    for name in ("a.npy", "b.npy"):
        (tmp_path / name).write_bytes(with_header("{'descr': '<f4'}"))
        with pytest.raises(DataError, match=rf"{name}.*must hold descr"):
            header_of(locate(tmp_path / name))


@pytest.mark.parametrize("shape", [(), (0,), (5,), (12345, 3), (2, 3, 4)])
@pytest.mark.parametrize("fortran_order", [False, True])
@pytest.mark.parametrize("dtype", ["float32", ">i8", "U3", [("x", "<f4"), ("数", "<i8", (2, 3))]])
def test_headers_are_written_as_numpy_writes_them(shape, fortran_order, dtype):
    array = np.zeros(shape, dtype, order="F" if fortran_order else "C")
    is_fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    header = format_header(array.dtype, shape, fortran_order=is_fortran)
    assert header + array.tobytes(order="A") == saved(array)
    assert len(header) % 64 == 0


def test_a_written_header_can_be_rewritten_in_place():
    lengths = {len(format_header(np.dtype("f4"), (rows, 3))) for rows in (0, 7, 10**9, 10**20)}
    assert len(lengths) == 1


def test_objects_are_not_written():
    with pytest.raises(ValueError, match="holds no Python objects, got dtype object"):
        format_header(np.dtype(object), (3,))


class Evil:
    def __reduce__(self):
        return pytest.fail, ("the pickle was loaded",)


@pytest.mark.parametrize(
    "array", [np.array([Evil()]), np.array([(1, Evil())], [("a", "i4"), ("b", "O")])]
)
def test_python_objects_are_refused_with_the_cure(bytes_reader, array):
    # As np.save writes it, without calling anything.
    data = with_header(
        described(repr(npy.dtype_to_descr(array.dtype)), "(1,)"), data=pickle.dumps(array)
    )
    with pytest.raises(
        DataError, match=r"Python objects \(dtype object\). .* never loaded. Save it"
    ):
        read_header(bytes_reader(data))


LIES = {
    "empty": b"",
    "too short": npy.MAGIC_PREFIX,
    "other magic": b"\x93NUMPX\x01\x00v\x00",
    "text": b"a,b,c\n1,2,3\n",
    "version 4": npy.MAGIC_PREFIX + b"\x04\x00\x10\x00\x00\x00",
    "version 1.1": npy.MAGIC_PREFIX + b"\x01\x01\x10\x00\x00\x00",
    "length cut off": npy.MAGIC_PREFIX + b"\x02\x00\x10\x00",
    "header cut off": saved(np.zeros(3))[:40],
    "data cut off": saved(np.zeros(3))[:-1],
    "header of 4 GB": npy.MAGIC_PREFIX + b"\x02\x00" + b"\xff\xff\xff\xff" + b" " * 1000,
    "header past the cap": with_header(" " * (MAX_HEADER + 1), version=2),
    "no dict": with_header("[1, 2, 3]\n"),
    "no text": with_header(""),
    "missing key": with_header("{'descr': '<f4', 'shape': (3,)}"),
    "extra key": with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (), 'x': 1}"),
    "call": with_header("{'descr': __import__('os').system('true'), 'shape': (3,)}"),
    "operator": with_header(described("'<f4'", "(3 * 5,)")),
    "negative": with_header(described("'<f4'", "(-3,)")),
    "float shape": with_header(described("'<f4'", "(3.0,)")),
    "bool shape": with_header(described("'<f4'", "(True,)")),
    "list shape": with_header(described("'<f4'", "[3]")),
    "number shape": with_header(described("'<f4'", "3")),
    "65 dimensions": with_header(described("'<f4'", "(" + "0," * 65 + ")")),
    "order as text": with_header(described("'<f4'", "(0,)", "'no'")),
    "exabytes": with_header(described("'<f8'", "(1000000000, 1000000000)")),
    "overflow": with_header(described("'<f8'", "(4294967296, 4294967296, 4294967296)")),
    "overflow beside zero": with_header(described("'<f8'", "(0, 4294967296, 4294967296)")),
    "overflow to small": with_header(described("'<i1'", "(4294967296, 4294967296)")),
    "huge number": with_header(described("'<f4'", "(" + "9" * 5000 + ",)")),
    "deep brackets": with_header("(" * 30_000),
    "deep nest": with_header("[" * 200 + "]" * 200),
    "many minus": with_header("-" * 60_000 + "1"),
    "unclosed string": with_header("{'descr': '<f4"),
    "bad escape": with_header("{'a\\d': 1}"),
    "short escape": with_header("{'a\\x': 1}"),
    "unhashable key": with_header("{[]: 1}"),
    "set": with_header("{1, 2}"),
    "unknown dtype": with_header(described("'<q9'", "(0,)")),
    "dtype with commas": with_header(described("'f4,f4'", "(0,)")),
    "old alias": with_header(described("'a5'", "(0,)")),
    "alias in a field": with_header(described("[('x', 'a5')]", "(0,)")),
    "object": with_header(described("'|O'", "(0,)")),
    "object with size": with_header(described("'O8'", "(0,)")),
    "object in a field": with_header(described("[('x', [('y', '|O')])]", "(0,)")),
    "object in a subarray": with_header(described("('|O', (2,))", "(0,)")),
    "itemsize of gigabytes": with_header(described("'|V9999999999'", "(0,)")),
    "subarray overflow": with_header(described("[('x', '<f8', (4294967296, 4294967296))]", "(0,)")),
    "negative subarray": with_header(described("('<f8', 7.5)", "(0,)")),
    "duplicate fields": with_header(described("[('x', '<f4'), ('x', '<f4')]", "(0,)")),
    "field without a name": with_header(described("[(5, '<f4')]", "(0,)")),
    "field of one part": with_header(described("[('x',)]", "(0,)")),
    "descr is a number": with_header(described("5", "(0,)")),
    "descr is a dict": with_header(described("{'x': 1}", "(0,)")),
    "not UTF-8": npy.MAGIC_PREFIX + b"\x03\x00\x04\x00\x00\x00\xff\xfe\xfd\xfc",
    "null bytes": with_header("\0" * 100),
}


@pytest.mark.parametrize("data", LIES.values(), ids=LIES.keys())
def test_what_lies_is_refused(data, bytes_reader):
    with pytest.raises(DataError, match=r"memory.bin, byte \d+: .*\. [A-Z]"):
        read_header(bytes_reader(data))


def test_a_header_that_claims_more_than_is_there_says_both(bytes_reader):
    data = with_header(described("'<f8'", "(1000000, 1000)"), data=bytes(800))
    with pytest.raises(
        DataError,
        match=r"claims shape \(1000000, 1000\) of float64, which takes 8000000000 bytes, but 800 ",
    ):
        read_header(bytes_reader(data))


def check_only_data_errors(data: bytes, bytes_reader) -> None:
    tracemalloc.start()
    try:
        header = read_header(bytes_reader(data))
    except DataError:
        pass
    else:
        assert isinstance(header, NpyHeader)
        assert not header.dtype.hasobject
        assert 0 <= header.nbytes <= len(data) - header.data_offset
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 64 * MAX_HEADER


SEEDS = [
    saved(np.zeros((3, 4), "<f4")),
    saved(np.zeros((3, 4), "<f8", order="F")),
    saved(np.zeros(2, STRUCTURED[0])),
    saved(np.zeros(2, STRUCTURED[6])),
    saved(np.zeros((), "U3"), (3, 0)),
    saved(np.array([None])),
]


@given(data=st.data())
@settings(max_examples=4 * settings().max_examples)
def test_mutated_files_give_data_errors_or_headers(data, bytes_reader):
    mutated = bytearray(data.draw(st.sampled_from(SEEDS)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, min(len(mutated), 140) - 1))
        kind = data.draw(st.sampled_from(["set", "insert", "delete", "copy"]))
        if kind == "set":
            mutated[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            mutated[at:at] = data.draw(st.binary(max_size=5))
        elif kind == "delete":
            del mutated[at : at + data.draw(st.integers(1, 5))]
        else:
            mutated[at:at] = mutated[: data.draw(st.integers(0, 40))]
        mutated = mutated or bytearray(b"x")
    check_only_data_errors(bytes(mutated), bytes_reader)


@given(data=st.binary(max_size=300))
@settings(max_examples=2 * settings().max_examples)
def test_random_bytes_give_data_errors(data, bytes_reader):
    check_only_data_errors(data, bytes_reader)


TOKENS = [
    "{",
    "}",
    "(",
    ")",
    "[",
    "]",
    ",",
    ":",
    "'",
    '"',
    "\\",
    "0",
    "1",
    "9",
    "10L",
    "True",
    "False",
    "None",
    "-",
    "+",
    "*",
    "<f4",
    "|O",
    "V8",
    "descr",
    "shape",
    "fortran_order",
    "x",
    "\n",
]


@given(
    tokens=st.lists(st.sampled_from(TOKENS), max_size=60),
    version=st.integers(1, 3),
    tail=st.binary(max_size=20),
)
@settings(max_examples=4 * settings().max_examples)
def test_random_literals_give_data_errors(tokens, version, tail, bytes_reader):
    check_only_data_errors(with_header("".join(tokens), version=version, data=tail), bytes_reader)


@given(
    descr=st.recursive(
        st.one_of(
            st.sampled_from(["<f4", "|O", "S5", "V3", "<U2", "M8[s]", "x", ""]), st.integers(0, 5)
        ),
        lambda inner: st.one_of(
            st.lists(st.tuples(st.text("ab'\\", max_size=3), inner), max_size=3),
            st.tuples(inner, inner),
            st.lists(st.tuples(st.text("ab", max_size=2), inner, st.tuples(st.integers(0, 9)))),
        ),
        max_leaves=8,
    ),
    shape=st.one_of(
        st.lists(st.integers(0, 2**64), max_size=4).map(tuple),
        st.lists(st.integers(0, 3)).map(tuple),
    ),
)
@settings(max_examples=4 * settings().max_examples)
def test_random_dtypes_give_data_errors_or_headers(descr, shape, bytes_reader):
    text = described(repr(descr), repr(shape))
    check_only_data_errors(with_header(text, data=bytes(200)), bytes_reader)


def test_the_parts_can_be_used_on_a_stream():
    data = saved(np.zeros((2, 3), "<i2"))
    length = header_nbytes(data[:12], file="stream")
    header = parse_header(data[:length], file="stream", nbytes=len(data))
    assert (header.shape, header.data_offset) == ((2, 3), length)
