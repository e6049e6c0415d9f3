"""Records that are, claim or unpack to more than the budget: refused by file, record and byte, or cut off."""

import gzip
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from tests.sources.in_a_cgroup import read_in_a_cgroup

import penstock as ps
from penstock import _native

SMALL = 300


def crc(data: bytes) -> bytes:
    value = _native.crc32c(data)
    return struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF)


def header(length: int) -> bytes:
    return struct.pack("<Q", length) + crc(struct.pack("<Q", length))


def frame(payload: bytes) -> bytes:
    return header(len(payload)) + payload + crc(payload)


def small() -> bytes:
    row = {"x": [1.0, 2.0], "s": b"a" * 10, "i": [1, 2]}
    return frame(ps.tfrecord.encode_example(row)) * SMALL


FEATURES = "{'x': ps.FixedFeature((2,), 'float32'), 's': ps.VarFeature(bytes), 'i': ps.VarFeature('int64')}"
LONG_BYTES = {"x": [1.0, 2.0], "s": b"z" * 60_000_000, "i": [1, 2]}
LONG_INTS = {
    "x": [1.0, 2.0],
    "s": b"z",
    "i": [1] * 8_000_000,
}  # A byte each in the file, 8 in memory.
PLACE = rf"a\.tfrecord.*byte {71 * SMALL}\b"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("row", "options"),
    [
        (LONG_BYTES, ""),
        (LONG_BYTES, ", raw=True"),
        (LONG_BYTES, ", index=False"),
        (LONG_BYTES, ", compression='GZIP'"),
        (LONG_BYTES, ", compression='ZLIB', raw=True"),
        (LONG_INTS, f", features={FEATURES}"),
        (LONG_INTS, f", features={FEATURES}, index=False"),
    ],
    ids=["indexed", "raw", "forward", "gzip", "zlib", "ints", "ints forward"],
)
def test_a_record_larger_than_the_budget_is_refused_by_file_and_byte(
    tmp_path: Path, row: Any, options: str
) -> None:
    data = small() + frame(ps.tfrecord.encode_example(row))
    if "GZIP" in options:
        data = gzip.compress(data, 1)
    elif "ZLIB" in options:
        data = zlib.compress(data, 1)
    path = tmp_path / "a.tfrecord"
    path.write_bytes(data)
    found = read_in_a_cgroup(f"ps.from_tfrecord({str(path)!r}{options})", 20_000_000)
    assert re.search(rf"BudgetError: .*{PLACE}.*memory=\d+", found), found


@pytest.mark.parametrize("length", [600_000_000, 1 << 60])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, zlib.compress], ids=lambda p: p.__module__)
def test_a_length_that_no_file_can_hold_is_bad_data(tmp_path: Path, pack: Any, length: int) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(pack(small() + header(length) + bytes(1000)))
    for index in (True, False):
        ds = ps.from_tfrecord(path, index=index).with_options(memory="4MB")
        with pytest.raises(ps.DataError, match=rf"{PLACE}.*cut off"):
            list(ds)
        with ds.with_options(on_error="skip").stream() as stream:
            assert sum(1 for _ in stream) == SMALL
            assert stream.report().num_skipped == 1
            assert stream.report().peak_nbytes <= 4_000_000


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize(
    "row", [{"s": b"z" * 3_000_000}, {"i": [1] * 1_000_000}], ids=["bytes", "ints"]
)
def test_the_budget_that_is_named_for_a_long_record_does(
    tmp_path: Path, row: Any, *, index: bool
) -> None:
    path = tmp_path / "a.tfrecord"
    long = {"x": [1.0, 2.0], "s": b"", "i": [1]} | row
    path.write_bytes(small() + frame(ps.tfrecord.encode_example(long)))
    features = {"s": ps.VarFeature(bytes), "i": ps.VarFeature("int64")}
    ds = ps.from_tfrecord(path, features, index=index)
    need = 2_000_000
    # The plan knows the lengths of records, and only reading them tells what they hold.
    for _ in range(2 if index else 1):
        try:
            list(ds.with_options(memory=need))
        except ps.BudgetError as error:
            assert re.search(PLACE, str(error)), error  # noqa: PT017  # It need not come twice.
            need = int(re.search(r"memory=(\d+)\)", str(error))[1])
    assert need > 2_000_000
    with ds.with_options(memory=need).stream() as stream:
        assert sum(1 for _ in stream) == SMALL + 1
        assert stream.report().peak_nbytes <= need


def test_a_record_that_is_too_large_to_tell_its_features_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    with path.open("wb") as file:
        file.write(header(70 << 20))
        file.truncate((70 << 20) + 16)
    with pytest.raises(ps.DataError, match=r"first record takes more than 64 MB.* Give features="):
        ps.from_tfrecord(path)


@pytest.mark.slow
def test_an_index_that_there_is_no_memory_for_is_refused_while_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    empty = frame(b"") * 4_000_000
    for number in range(4):
        (tmp_path / f"{number}.tfrecord").write_bytes(empty)
    one = f"ps.from_tfrecord({str(tmp_path / '0.tfrecord')!r}, raw=True)"
    assert read_in_a_cgroup(f"{one}.take(1000)") == "1000 rows"
    assert read_in_a_cgroup(f"{one}.take(1000)") == "1000 rows"  # By the index that was saved.
    every = f"ps.from_tfrecord({str(tmp_path / '*.tfrecord')!r}, raw=True"
    refusal = r"BudgetError: .*\d\.tfrecord: the index of \d+ records or more takes .* index=False"
    assert re.match(refusal, read_in_a_cgroup(f"{every}).take(1000)"))
    assert read_in_a_cgroup(f"{every}, index=False).take(1000)") == "1000 rows"
