"""A reader as a file object, against Python's own."""

import io
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from penstock.io.open import open_reader
from penstock.io.paths import expand
from penstock.io.seekable import SeekableFile

DATA = bytes(range(256)) * 1200
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.integers(-1, 200_000)),
        st.tuples(st.just("into"), st.integers(0, 200_000)),
        st.tuples(st.just("seek"), st.integers(0, 400_000)),
        st.tuples(st.just("end"), st.integers(-400, 10)),
    ),
    max_size=12,
)


@given(STEPS)
def test_it_reads_what_a_file_reads(steps: list[tuple[str, int]]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.bin"
        path.write_bytes(DATA)
        with open_reader(expand(path)[0]) as reader:
            mine, theirs = SeekableFile(reader), io.BytesIO(DATA)
            for step, number in steps:
                if step == "read":
                    assert mine.read(number) == theirs.read(number)
                elif step == "into":
                    buffers = bytearray(number), bytearray(number)
                    assert mine.readinto(buffers[0]) == theirs.readinto(buffers[1])
                    assert buffers[0] == buffers[1]
                elif step == "seek":
                    assert mine.seek(number) == theirs.seek(number)
                else:
                    assert mine.seek(number, io.SEEK_END) == theirs.seek(number, io.SEEK_END)
                assert mine.tell() == theirs.tell()
