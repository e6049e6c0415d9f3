"""One checksum for a whole array: compared once all of it was read, in whatever order."""

import io
import itertools
import pickle
import zipfile
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import run

import penstock as ps
from penstock.errors import DataError
from penstock.io.location import Location
from penstock.io.open import open_reader
from penstock.io.reader import Range
from penstock.sources.reading.whole_checks import Claim, WholeCheck

CONTENT = np.random.default_rng(0).integers(0, 256, 500, np.uint8)
HEADER = 80


@given(st.sets(st.integers(HEADER + 1, 499), max_size=12), st.data())
def test_pieces_in_any_order_make_the_whole(tmp_path_factory, edges, data):
    path = tmp_path_factory.getbasetemp() / "content"
    path.write_bytes(bytes(10) + CONTENT.tobytes())
    cuts = sorted({HEADER, *edges, 500})
    pieces = data.draw(st.permutations(list(itertools.pairwise(cuts))))
    is_good = data.draw(st.booleans())
    crc = zlib.crc32(CONTENT) ^ (not is_good)
    check = WholeCheck(Claim("f.npz", "x", 10, 500, crc), 10 + HEADER)
    check = pickle.loads(pickle.dumps(check))
    with open_reader(Location(str(path), 510)) as reader:
        for number, (start, stop) in enumerate(pieces):
            ranges = [Range(10 + start, CONTENT[start:stop].copy())]
            if not is_good and number + 1 == len(pieces):
                with pytest.raises(DataError, match=r"f\.npz.*array 'x' is not what was written"):
                    check.saw(ranges, reader)
            else:
                check.saw(ranges, reader)
                check.saw(ranges, reader)  # Once more: it counts once.
        if not is_good:  # From now on no row of it can be trusted.
            with pytest.raises(DataError, match="is not what was written"):
                check.saw(ranges, reader)


@pytest.fixture
def archive(tmp_path):
    path = tmp_path / "a.npz"
    x = np.random.default_rng(0).random((20_000, 30))
    np.savez(path, x=x, y=np.arange(20_000), f=np.asfortranarray(x[:, :3]))
    return path


def flip(path, at):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(content)


WAYS = {
    "forward": lambda ds: ds,
    "shuffled": lambda ds: ds.shuffle(seed=1, window=500_000),
    "large batches": lambda ds: ds.batch(7777),
    "twice": lambda ds: ds.repeat(2),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("place", [0.001, 0.5, 0.92, 0.999])
def test_a_changed_byte_is_found_at_the_end_of_the_first_pass(archive, way, place):
    ds = ps.from_files(archive)
    run(WAYS[way](ds))
    run(WAYS[way](ds))
    flip(archive, int((archive.stat().st_size - 400) * place) + 150)
    with pytest.raises(DataError, match=r"a\.npz.*is not what was written"):
        run(WAYS[way](ps.from_files(archive)))
    run(WAYS[way](ps.from_files(archive, verify=False)))


def test_half_a_pass_is_no_pass_and_two_halves_are_one(archive):
    flip(archive, 3_000_000)
    ds = ps.from_files(archive, fields="x")
    run(ds.take(9_000))
    run(ds.take(9_000))
    with pytest.raises(DataError, match="is not what was written"):
        run(ds.skip(9_000))


def test_under_skip_the_rest_of_the_array_is_left_out(archive):
    flip(archive, 3_000_000)
    ds = ps.from_files(archive, fields="x").with_options(on_error="skip", max_errors=None)
    with ds.stream() as stream:
        num_rows = sum(1 for _ in stream)
        report = stream.report()
    assert num_rows + report.num_skipped == 20_000
    assert report.num_skipped > 0
    assert "is not what was written" in str(report.skipped)


CHANGES = {
    "fewer rows": (b"(20000,)", b"(19999,)"),
    "no rows": (b"(20000,)", b"(0,)    "),
    "narrower rows": (b"<i8", b"<i4"),
    "no columns": (b"(20000,)", b"(9, 0)  "),
    "the data begins earlier": (b"\x93NUMPY\x01\0\x76\0", b"\x93NUMPY\x01\0\x74\0"),
}


@pytest.mark.parametrize("other", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, None])
@pytest.mark.parametrize("change", CHANGES)
def test_a_header_that_leaves_bytes_behind_the_array_is_found(tmp_path, change, other):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("y.npy", npy_bytes(np.arange(20_000)))
        if other is not None:
            archive.writestr("x.npy", npy_bytes(np.arange(30_000)), other)
    content = path.read_bytes()
    assert CHANGES[change][0] in content
    path.write_bytes(content.replace(*CHANGES[change], 1))
    with pytest.raises(DataError, match=r"a\.npz.*'y' is not what was written"):
        ps.from_files(path, "y")
    ps.from_files(path, "y", verify=False)


def test_bytes_that_were_written_behind_an_array_are_no_damage(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("y.npy", npy_bytes(np.arange(9)) + b"more")
    assert run(ps.from_files(tmp_path / "a.npz", "y")) == list(range(9))


def npy_bytes(array):
    target = io.BytesIO()
    np.save(target, array)
    return target.getvalue()
