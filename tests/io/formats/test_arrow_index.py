"""The index of Arrow files, against pyarrow, and whatever else the bytes may be."""

import contextlib
import io
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.errors import DataError
from penstock.io.formats.arrow_index import read_index
from penstock.io.open import open_reader
from penstock.io.paths import expand


def lengths_of(data: bytes) -> list[int]:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.arrow"
        path.write_bytes(data)
        with open_reader(expand(path)[0]) as reader:
            return [batch.num_rows for batch in read_index(reader).batches]


def written(lengths: list[int], *, legacy: bool = False) -> bytes:
    out = io.BytesIO()
    schema = pa.schema([("x", pa.int32()), ("s", pa.string())])
    options = pa.ipc.IpcWriteOptions(use_legacy_format=legacy)
    with pa.ipc.new_file(out, schema, options=options) as file:
        for length in lengths:
            file.write_batch(
                pa.record_batch([pa.array(range(length), pa.int32()), ["x"] * length], schema)
            )
    return out.getvalue()


@given(st.lists(st.integers(0, 50), max_size=8), st.booleans())
def test_the_lengths_of_batches_are_found(lengths: list[int], legacy: bool) -> None:
    assert lengths_of(written(lengths, legacy=legacy)) == lengths


@given(st.data())
def test_damage_is_found_or_does_no_harm(data: st.DataObject) -> None:
    good = bytearray(written([3, 5]))
    place = data.draw(st.integers(0, len(good) - 1))
    good[place] ^= data.draw(st.integers(1, 255))
    with contextlib.suppress(DataError):  # Anything else is a bug.
        assert len(lengths_of(bytes(good))) < 1000


@given(st.binary(max_size=100))
def test_other_bytes_are_refused(data: bytes) -> None:
    for one in (data, b"ARROW1\0\0" + data + b"ARROW1"):
        with pytest.raises(DataError, match=r"a\.arrow"):
            lengths_of(one)
