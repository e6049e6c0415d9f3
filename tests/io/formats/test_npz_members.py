"""`.npz` archives: what NumPy and other tools write is read, what lies is refused."""

import io
import struct
import tracemalloc
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.errors import DataError
from penstock.io.formats import zip_directory
from penstock.io.formats.npz_members import (
    DEFLATED,
    STAGING_NBYTES,
    STORED,
    DeflateReader,
    read_array_header,
    read_members,
)
from penstock.io.local.reader import LocalReader

ARRAYS = {
    "data": np.arange(6000, dtype="<f4").reshape(60, 100),
    "labels": np.arange(60, dtype="<i8"),
    "names": np.array(["one", "two"]),
    "empty": np.empty((0, 3)),
}


def savez(*, compressed: bool = False, **arrays: np.ndarray) -> bytes:
    file = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(file, **(arrays or ARRAYS))
    return file.getvalue()


def zipped(
    files: dict[str, bytes], method: int = zipfile.ZIP_STORED, comment: bytes = b""
) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
        archive.comment = comment
    return file.getvalue()


def load(reader, member) -> np.ndarray:
    header = read_array_header(reader, member)
    array = np.empty(header.shape, header.dtype, order="F" if header.fortran_order else "C")
    if member.is_deflated:
        with DeflateReader(reader, member) as unpacked:
            unpacked.skip(header.data_offset)
            unpacked.read_into(array.reshape(-1, order="A"))
            unpacked.finish()
    else:
        reader.read_into(array.reshape(-1, order="A"), header.data_offset)
    return array


@pytest.mark.parametrize("compressed", [False, True])
def test_what_numpy_saves_is_read(bytes_reader, compressed):
    reader = bytes_reader(savez(compressed=compressed))
    members = read_members(reader)
    assert [member.field for member in members] == list(ARRAYS)
    for member in members:
        assert member.method == (DEFLATED if compressed else STORED)
        np.testing.assert_array_equal(load(reader, member), ARRAYS[member.field])


def test_a_file_on_disk_is_read(tmp_path, locate):
    np.savez(tmp_path / "x.npz", **ARRAYS)
    with LocalReader(locate(tmp_path / "x.npz")) as reader:
        for member in read_members(reader):
            np.testing.assert_array_equal(load(reader, member), ARRAYS[member.field])


def test_fortran_order_is_read_in_place(bytes_reader):
    array = np.asfortranarray(ARRAYS["data"])
    reader = bytes_reader(savez(x=array))
    (member,) = read_members(reader)
    assert read_array_header(reader, member).fortran_order
    np.testing.assert_array_equal(load(reader, member), array)


def test_zip64_archives_are_read(bytes_reader, monkeypatch):
    # As if every member were larger than 4 GB, and there were more than 65,535.
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    monkeypatch.setattr(zipfile, "ZIP_FILECOUNT_LIMIT", 1)
    data = savez()
    assert b"PK\x06\x06" in data
    reader = bytes_reader(data)
    for member in read_members(reader):
        np.testing.assert_array_equal(load(reader, member), ARRAYS[member.field])


def test_archives_written_to_a_pipe_are_read(bytes_reader):
    class Pipe(io.BytesIO):
        def seekable(self):
            return False

        def tell(self):
            raise OSError("a pipe")

        def seek(self, *args):
            raise OSError("a pipe")

    pipe = Pipe()
    with (
        zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("x.npy", "w") as file,
    ):
        np.save(file, ARRAYS["labels"])
    reader = bytes_reader(pipe.getvalue())
    (member,) = read_members(reader)
    np.testing.assert_array_equal(load(reader, member), ARRAYS["labels"])


@pytest.mark.parametrize("comment", [b"hello", b"PK\x05\x06" + bytes(10), b"x" * 65_535])
def test_comments_are_passed_over(bytes_reader, comment):
    reader = bytes_reader(zipped({"x.npy": b"1"}, comment=comment))
    assert [member.name for member in read_members(reader)] == ["x.npy"]


def test_an_empty_archive_has_no_members(bytes_reader):
    assert read_members(bytes_reader(zipped({}))) == []


def test_folders_are_no_members(bytes_reader):
    reader = bytes_reader(zipped({"in/": b"", "in/x.npy": b"1"}))
    assert [member.field for member in read_members(reader)] == ["in/x"]


def test_names_in_other_scripts_are_read(bytes_reader):
    reader = bytes_reader(savez(größe=np.zeros(1), 数=np.zeros(1)))
    assert [member.field for member in read_members(reader)] == ["größe", "数"]


def test_only_the_directory_is_read(bytes_reader):
    reader = bytes_reader(savez(x=np.zeros(1_000_000)))
    read_members(reader)
    assert reader.num_bytes_read < 70_000  # the most that a comment can take, and little else


# Each of these changes a well-made archive in one way.


def patched(data: bytes, signature: bytes, at: int, form: str, value, *, which: int = 0) -> bytes:
    start = -1
    for _ in range(which + 1):
        start = data.index(signature, start + 1)
    changed = bytearray(data)
    struct.pack_into(form, changed, start + at, value)
    return bytes(changed)


LOCAL, ENTRY, END = b"PK\x03\x04", b"PK\x01\x02", b"PK\x05\x06"
GOOD = savez()
PACKED = savez(compressed=True)


def doubled() -> bytes:
    return zipped({"x.npy": b"1", "y.npy": b"2"}).replace(b"y.npy", b"x.npy")


LIES = {
    "empty": (b"", "end record is missing"),
    "no archive": (b"hello" * 100, "end record is missing"),
    "cut off": (GOOD[:-1], "end record is missing"),
    "cut in half": (GOOD[: len(GOOD) // 2], "end record is missing"),
    "trailing bytes": (GOOD + b"x", "end record is missing"),
    "bytes before": (b"x" * 100 + GOOD, "damaged|match|cannot start"),
    "other disk": (patched(GOOD, END, 4, "<H", 1), "other disks"),
    "fewer here than in all": (patched(GOOD, END, 8, "<H", 1), "other disks"),
    "more members than fit": (
        patched(patched(GOOD, END, 8, "<H", 9999), END, 10, "<H", 9999),
        "9999 members in",
    ),
    "one member more": (
        patched(patched(GOOD, END, 8, "<H", 5), END, 10, "<H", 5),
        "claims 5 members in 220 bytes",
    ),
    "directory past the end": (patched(GOOD, END, 16, "<I", len(GOOD)), "past its end record"),
    "directory of 4 GB": (patched(GOOD, END, 12, "<I", 0xFFFFFFFE), "past its end record"),
    "directory elsewhere": (patched(GOOD, END, 16, "<I", 0), "directory is damaged"),
    "encrypted": (patched(GOOD, ENTRY, 8, "<H", 1), "'data.npy' is encrypted"),
    "bzip2": (patched(GOOD, ENTRY, 10, "<H", 12), "packed by bzip2. Write it with np.savez"),
    "unknown method": (patched(GOOD, ENTRY, 10, "<H", 77), "packed by method 77"),
    "terabytes stored": (
        patched(GOOD, ENTRY, 24, "<I", 0xFFFFFFF0),
        "claims 4294967280 bytes from",
    ),
    "terabytes packed": (
        patched(PACKED, ENTRY, 24, "<I", 0xFFFFFFF0),
        "claims 4294967280 bytes from .* cannot have more than",
    ),
    "more packed than the file": (patched(PACKED, ENTRY, 20, "<I", 0xFFFFFFF0), "in a file of"),
    "zip64 sizes nowhere": (patched(PACKED, ENTRY, 24, "<I", 0xFFFFFFFF), "zip64 sizes are miss"),
    "on another disk": (patched(GOOD, ENTRY, 34, "<H", 3), "on another disk"),
    "name past the end": (patched(GOOD, ENTRY, 28, "<H", 60_000), "shorter than it claims"),
    "header elsewhere": (patched(GOOD, ENTRY, 42, "<I", 5), "does not match the directory"),
    "header past the end": (patched(GOOD, ENTRY, 42, "<I", 0xFFFFFF), "cannot start at byte"),
    "other name in the header": (GOOD.replace(b"data.npy", b"dota.npy", 1), "does not match"),
    "other method in the header": (patched(GOOD, LOCAL, 8, "<H", 8), "does not match"),
    "shared bytes": (patched(GOOD, LOCAL, 28, "<H", 60_000), "share bytes"),
    "duplicate": (doubled(), "two members have the same name"),
    "duplicate field": (zipped({"x": b"1", "x.npy": b"2"}), "two members have the same name"),
}


@pytest.mark.parametrize(("data", "message"), LIES.values(), ids=LIES.keys())
def test_what_lies_is_refused(data, message, bytes_reader):
    with pytest.raises(DataError, match=rf"memory.bin, byte \d+: .*({message}).*"):
        read_members(bytes_reader(data))


@pytest.mark.parametrize(
    "name",
    [
        "../x.npy",
        "/etc/x.npy",
        "a/../../x.npy",
        "a//x.npy",
        "./x.npy",
        "c:x.npy",
        "a\\x.npy",
        "a\nx.npy",
    ],
)
def test_path_tricks_are_refused(name, bytes_reader):
    data = zipped({"x" * len(name): b"1"}).replace(b"x" * len(name), name.encode())
    with pytest.raises(DataError, match=r"a member is called .* do not trust this archive"):
        read_members(bytes_reader(data))


def test_members_that_share_their_bytes_are_refused(bytes_reader):
    # A bomb of this kind unpacks the same bytes under many names.
    data = bytearray(zipped({"a.npy": b"1" * 100, "b.npy": b"2" * 100}))
    entry = data.index(ENTRY, data.index(ENTRY) + 1)
    struct.pack_into("<I", data, entry + 42, 0)
    with pytest.raises(DataError, match=r"does not match|share bytes"):
        read_members(bytes_reader(bytes(data)))


def test_a_member_of_terabytes_by_zip64_is_refused(bytes_reader, monkeypatch):
    monkeypatch.setattr(zipfile, "ZIP64_LIMIT", 10)
    data = bytearray(savez())
    entry = data.index(ENTRY)
    extra = entry + 46 + len("data.npy")
    assert data[extra : extra + 2] == b"\x01\x00"
    struct.pack_into("<2Q", data, extra + 4, 1 << 50, 1 << 50)
    with pytest.raises(DataError, match=f"claims {1 << 50} bytes in a file of"):
        read_members(bytes_reader(bytes(data)))


def test_too_many_members_are_refused(bytes_reader, monkeypatch):
    monkeypatch.setattr(zip_directory, "MAX_MEMBERS", 3)
    with pytest.raises(DataError, match=r"has 4 members, .* At most 3 members are read"):
        read_members(bytes_reader(GOOD))


@pytest.mark.parametrize("compressed", [False, True])
def test_a_pickle_in_an_archive_is_refused(bytes_reader, compressed):
    reader = bytes_reader(savez(compressed=compressed, x=np.array([None])))
    (member,) = read_members(reader)
    with pytest.raises(DataError, match="holds Python objects"):
        read_array_header(reader, member)


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("content", [b"", b"short", b"no array at all" * 100])
def test_a_member_that_is_no_array_is_refused(bytes_reader, method, content):
    reader = bytes_reader(zipped({"x.npy": content}, method))
    (member,) = read_members(reader)
    with pytest.raises(DataError, match=r"not an .npy file"):
        read_array_header(reader, member)


# Unpacking.


@pytest.fixture
def packed(bytes_reader):
    """A function from a content, perhaps spoiled, to a reader of it and its member."""

    def packed(content: bytes, spoil=lambda data: data):
        data = spoil(zipped({"x.bin": content}, zipfile.ZIP_DEFLATED))
        reader = bytes_reader(data)
        (member,) = read_members(reader)
        return reader, member

    return packed


@given(
    content=st.one_of(st.binary(max_size=2000), st.integers(0, 3_000_000).map(bytes)),
    steps=st.lists(st.integers(0, 400_000), max_size=8),
)
def test_unpacking_in_steps_gives_every_byte(content, steps, bytes_reader):
    reader = bytes_reader(zipped({"x.bin": content}, zipfile.ZIP_DEFLATED))
    (member,) = read_members(reader)
    with DeflateReader(reader, member) as unpacked:
        for step in steps:
            target = bytearray(min(step, member.nbytes - unpacked.position))
            start = unpacked.position
            unpacked.read_into(target)
            assert target == content[start : start + len(target)]
        unpacked.finish()
        assert unpacked.position == len(content)


@pytest.mark.parametrize("content", [bytes(64 << 20), np.random.default_rng(0).bytes(8 << 20)])
def test_unpacking_holds_little_memory(packed, content):
    reader, member = packed(content)
    target = np.empty(1 << 20, np.uint8)
    tracemalloc.start()
    with DeflateReader(reader, member) as unpacked:
        while unpacked.position < member.nbytes:
            unpacked.read_into(target)
        _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < STAGING_NBYTES


def test_a_wrong_checksum_is_found_at_the_last_byte(packed):
    def spoil(data: bytes) -> bytes:
        return patched(data, ENTRY, 16, "<I", 12345)

    reader, member = packed(b"hello" * 1000, spoil)
    with DeflateReader(reader, member) as unpacked:
        unpacked.skip(4999)
        with pytest.raises(DataError, match=r"x.bin, byte 5000: its checksum is wrong"):
            unpacked.skip(1)


@pytest.mark.parametrize(
    ("nbytes", "message"), [(4000, "more bytes than the"), (5001, "ends early")]
)
def test_a_wrong_size_is_found(packed, nbytes, message):
    reader, member = packed(b"hello" * 1000, lambda data: patched(data, ENTRY, 24, "<I", nbytes))
    with DeflateReader(reader, member) as unpacked, pytest.raises(DataError, match=message):
        unpacked.finish()


def test_packed_data_that_ends_too_soon_is_found(bytes_reader):
    data = zlib.compressobj(wbits=-15)
    body = data.compress(np.random.default_rng(0).bytes(50_000)) + data.flush()
    for cut in (1, 100, 20_000):
        spoiled = body[:-cut]
        archive = bytearray(zipped({"x.bin": spoiled}))
        for signature, method, size in ((LOCAL, 8, 22), (ENTRY, 10, 24)):
            start = archive.index(signature)
            struct.pack_into("<H", archive, start + method, 8)
            struct.pack_into("<I", archive, start + size, 50_000)
        reader = bytes_reader(bytes(archive))
        (member,) = read_members(reader)
        with (
            DeflateReader(reader, member) as unpacked,
            pytest.raises(DataError, match="ends early: its packed data is used up"),
        ):
            unpacked.finish()


def test_bytes_after_the_packed_data_are_found(bytes_reader):
    data = zlib.compressobj(wbits=-15)
    body = data.compress(b"hello" * 1000) + data.flush() + b"extra"
    archive = bytearray(zipped({"x.bin": body}))
    for signature, method, size in ((LOCAL, 8, 22), (ENTRY, 10, 24)):
        start = archive.index(signature)
        struct.pack_into("<H", archive, start + method, 8)
        struct.pack_into("<I", archive, start + size, 5000)
    reader = bytes_reader(bytes(archive))
    (member,) = read_members(reader)
    with DeflateReader(reader, member) as unpacked, pytest.raises(DataError, match="after the end"):
        unpacked.finish()


def test_damaged_packed_data_is_found(packed):
    def spoil(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[40:60] = b"\xff" * 20
        return bytes(changed)

    reader, member = packed(np.random.default_rng(0).integers(0, 4, 5000, "u1").tobytes(), spoil)
    with DeflateReader(reader, member) as unpacked, pytest.raises(DataError, match=r"x.bin, byte"):
        unpacked.finish()


def test_more_than_is_there_is_refused_before_unpacking(packed):
    reader, member = packed(b"hello")
    with DeflateReader(reader, member) as unpacked:
        with pytest.raises(DataError, match="wanted 6 more bytes, and 5 are left"):
            unpacked.read_into(bytearray(6))
        unpacked.finish()
    with pytest.raises(ValueError, match="is closed"):
        unpacked.read_into(bytearray(1))


def test_stored_members_need_no_unpacking(bytes_reader):
    reader = bytes_reader(GOOD)
    with pytest.raises(ValueError, match=r"'data.npy' is stored: read it in place"):
        DeflateReader(reader, read_members(reader)[0])


# Fuzzing: whatever the bytes are, an archive or a DataError, in little memory.


def check_only_data_errors(data: bytes, bytes_reader) -> None:
    reader = bytes_reader(data)
    tracemalloc.start()
    try:
        for member in read_members(reader):
            assert 0 < member.data_offset <= len(data) - member.compressed_nbytes
            try:
                header = read_array_header(reader, member)
                assert header.nbytes <= member.nbytes
                if member.is_deflated:
                    with DeflateReader(reader, member) as unpacked:
                        unpacked.finish()
            except DataError:
                pass
    except DataError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 << 20


SEEDS = [
    savez(a=np.arange(3), b=np.zeros((2, 2))),
    savez(compressed=True, a=np.arange(3), b=np.zeros((2, 2))),
    zipped({"a.npy": b"1", "b/c.npy": b"2"}, comment=b"comment"),
]


@given(data=st.data())
@settings(max_examples=5 * settings().max_examples)
def test_mutated_archives_give_data_errors_or_members(data, bytes_reader):
    mutated = bytearray(data.draw(st.sampled_from(SEEDS)))
    # The records that matter are a small part of the bytes: aim at them.
    marks = [at for at in range(len(mutated) - 1) if mutated[at : at + 2] == b"PK"]
    for _ in range(data.draw(st.integers(1, 5))):
        kind = data.draw(st.sampled_from(["byte", "field", "cut", "delete", "insert"]))
        start = data.draw(st.sampled_from(marks)) + data.draw(st.integers(0, 60))
        at = min(start, max(len(mutated) - 1, 0))
        if kind == "byte" and mutated:
            mutated[at] = data.draw(st.integers(0, 255))
        elif kind == "field":
            value = data.draw(st.sampled_from([0, 1, 0xFFFF, 0xFFFFFFFF, 0x7FFFFFFF, len(mutated)]))
            mutated[at : at + 4] = struct.pack("<I", value)
        elif kind == "cut":
            del mutated[at:]
        elif kind == "delete":
            del mutated[at : at + data.draw(st.integers(1, 4))]
        else:
            mutated[at:at] = data.draw(st.binary(max_size=4))
    check_only_data_errors(bytes(mutated), bytes_reader)


@given(data=st.binary(max_size=400), with_end=st.booleans())
@settings(max_examples=2 * settings().max_examples)
def test_random_bytes_give_data_errors(data, with_end, bytes_reader):
    end = struct.pack("<4s4H2IH", END, 0, 0, 1, 1, min(len(data), 60), 0, 0) if with_end else b""
    check_only_data_errors(data + end, bytes_reader)
