"""Folders of shards as a source: any rows of any fields, however they were cut into shards."""

import ml_dtypes
import numpy as np
import pytest
from tests.conformance import Case, assert_same, run
from tests.shards.nests import NESTS, words
from tests.sources.conformance import SourceConformance

import penstock as ps
from penstock.errors import DataError


class TestConformance(SourceConformance):
    @pytest.fixture(params=["tuple", "dict", "ragged all over", "ragged rows", "nested"])
    def case(self, request, tmp_path):
        nest = NESTS[request.param]
        ps.from_arrays(nest).take(31).write(tmp_path / "out", shard_rows=9)
        return Case(lambda: ps.from_files(tmp_path / "out"), run(ps.from_arrays(nest).take(31)))


def test_fields_can_be_chosen(tmp_path):
    ps.from_arrays({"x": np.arange(9), "t": words()[:9]}).write(tmp_path / "out", shard_rows=4)
    back = ps.from_files(tmp_path / "out", fields=("t", "x"))
    assert_same(run(back), list(zip(words()[:9], np.arange(9), strict=True)))
    with pytest.raises(DataError, match="has no field 'y'"):
        ps.from_files(tmp_path / "out", fields="y")


def test_a_shuffle_of_what_was_written_is_the_same_however_it_is_sharded(tmp_path):
    ds = ps.from_arrays(np.arange(20_000))
    ds.write(tmp_path / "a", shard_rows=999)
    ds.write(tmp_path / "b")
    shuffled = [run(ps.from_files(tmp_path / name).shuffle(seed=5).batch(500)) for name in "ab"]
    assert_same(*shuffled)


def test_a_missing_file_is_an_error(tmp_path):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out", shard_rows=4)
    (tmp_path / "out" / "value-00001.npy").unlink()
    with pytest.raises(DataError, match=r"value-00001\.npy: there is no such file"):
        ps.from_files(tmp_path / "out")


@pytest.mark.parametrize(
    "dtype",
    [
        [("a", "<i4"), ("b", ml_dtypes.bfloat16)],
        [("a", ml_dtypes.float8_e5m2, (2,)), ("b", "u1")],
        [("a", [("b", ml_dtypes.bfloat16)]), ("c", "<f8")],
        [(("title", "a"), ml_dtypes.bfloat16), ("b", "u1")],
        ml_dtypes.float8_e5m2,
        ml_dtypes.float8_e4m3fn,
        ml_dtypes.bfloat16,
    ],
    ids=str,
)
def test_dtypes_of_extensions_come_back_from_write_and_cache(tmp_path, dtype):
    values = np.frombuffer(np.arange(200, dtype="u1").tobytes(), dtype, count=12)
    ds = ps.from_arrays(values)
    ds.write(tmp_path / "out", shard_rows=5)
    for back in (ps.from_files(tmp_path / "out"), ds.cache(tmp_path / "cache")):
        assert back.spec.dtype == values.dtype
        for _ in range(2):
            assert_same(run(back), list(values))
