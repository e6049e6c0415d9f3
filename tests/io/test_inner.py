"""Files in files, and in memory: read as any other, and never past their end."""

import numpy as np
import pytest

from penstock.errors import DataError
from penstock.io.inner import in_file, in_memory
from penstock.io.open import open_reader
from penstock.io.paths import expand
from penstock.io.reader import Range, read_bytes


def test_a_part_of_a_file_is_a_file(tmp_path):
    (tmp_path / "a.bin").write_bytes(bytes(range(100)))
    with open_reader(expand(tmp_path / "a.bin")[0]) as outer:
        inner = in_file("x/y.PNG", "a.bin: x/y.PNG", outer, 10, 20)
        assert (inner.suffix, inner.name, str(inner), inner.size) == (
            ".png", "y.PNG", "a.bin: x/y.PNG", 20,
        )  # fmt: skip
        with open_reader(inner) as reader:
            assert read_bytes(reader, 5, 15) == bytes(range(15, 30))
            with pytest.raises(DataError, match=r"a\.bin: x/y\.PNG.*20 bytes in all"):
                read_bytes(reader, 5, 16)
        assert read_bytes(outer, 0, 1) == b"\0"  # It stays open.


def test_bytes_in_memory_are_a_file():
    inner = in_memory("a.jpg", "record 7", np.arange(50, dtype=np.uint8))
    with open_reader(inner) as reader:
        parts = [bytearray(3), bytearray(2)]
        reader.read_ranges([Range(0, parts[0]), Range(40, parts[1])])
        assert parts == [b"\0\1\2", b"\x28\x29"]
        with pytest.raises(DataError, match="record 7"):
            read_bytes(reader, 49, 2)
