"""What every format besides `.npy` must do that a dataset can be written in: inherit `OtherFormat`."""

import re

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.shards.nests import NESTS, NUM_ROWS, words
from tests.writers.test_npy import DTYPES, array_of

import penstock as ps
from penstock.errors import TargetExistsError


class OtherFormat:
    """Inherit it and define `format`, `refused_dtypes` and `refused_nests`: every test of it must pass."""

    format: str
    refused_dtypes: dict[str, str]
    """By dtype, what the message must say."""
    refused_nests: dict[str, str]

    def write(self, ds, folder, **arguments):
        ds.write(folder, format=self.format, **arguments)
        return ps.from_files(folder)

    @pytest.mark.parametrize("dtype", DTYPES, ids=str)
    def test_every_dtype_comes_back_or_is_refused_with_the_cure(self, dtype, tmp_path):
        for number, shape in enumerate([(), (3,), (2, 3)]):
            array = array_of(dtype, NUM_ROWS, *shape)
            if array.dtype.kind == "M":
                array = np.arange(array.size).reshape(array.shape).astype(array.dtype)
            ds = ps.from_arrays(array)
            refused = self.refused_dtypes.get(str(dtype))
            if refused is not None:
                with pytest.raises(TypeError, match=rf'(?s){re.escape(refused)}.*format="npy"'):
                    self.write(ds, tmp_path / "out")
                assert list(tmp_path.iterdir()) == []
                continue
            back = self.write(ds, tmp_path / f"{number}", shard_rows=77)
            assert back.spec == ps.ArraySpec(shape, array.dtype)
            assert_same(run(back), run(ds))

    @pytest.mark.parametrize("name", NESTS)
    @pytest.mark.parametrize("shard_rows", [None, 77])
    def test_every_nest_comes_back_or_is_refused(self, name, shard_rows, tmp_path):
        ds = ps.from_arrays(NESTS[name])
        if name in self.refused_nests:
            with pytest.raises((TypeError, OverflowError), match=self.refused_nests[name]):
                self.write(ds, tmp_path / "out")
            assert list(tmp_path.iterdir()) == []
            return
        back = self.write(ds, tmp_path / "out", shard_rows=shard_rows)
        assert back.spec == ds.spec
        assert len(back) == NUM_ROWS
        assert_same(run(back), run(ds))
        # By index, too, and from the middle.
        shuffled = back.shuffle(seed=1)
        with shuffled.stream() as stream:
            first = [next(stream) for _ in range(50)]
            state = stream.state()
        assert_same(first + run(shuffled, state=state), run(ds.shuffle(seed=1)))

    @pytest.mark.parametrize(("threads", "processes"), [(0, 0), (3, 0)])
    def test_rows_of_a_shuffled_map_are_those_of_the_stream(self, threads, processes, tmp_path):
        nest = {"x": np.arange(3000), "t": words() * 15}
        ds = ps.from_arrays(nest).shuffle(seed=3).map(lambda row: (row["x"] * 2, row["t"]))
        ds = ds.with_options(threads=threads, processes=processes, memory="16MB")
        back = self.write(ds, tmp_path / "out", shard_rows=700)
        assert_same(run(back), run(ds))

    def test_a_flow_comes_back_and_so_do_no_rows_at_all(self, tmp_path):
        nest = {"x": np.arange(3000.0), "t": words() * 15, "r": NESTS["ragged"] * 15}
        ds = ps.from_arrays(nest).filter(lambda row: row["x"] % 3 == 1)
        assert_same(run(self.write(ds, tmp_path / "out", shard_rows=64)), run(ds))
        none = ps.from_arrays(nest).filter(lambda row: False)
        back = self.write(none, tmp_path / "none")
        assert (len(back), run(back), back.spec) == (0, [], ds.spec)

    def test_what_it_wrote_is_the_same_with_any_threads(self, tmp_path):
        ds = ps.from_arrays({"x": np.arange(40_000.0), "t": words() * 200})
        found = []
        for threads in (0, 1, 3):
            folder = tmp_path / f"{threads}"
            self.write(ds.with_options(threads=threads), folder, shard_rows=9000)
            files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
            found.append([(str(one.relative_to(folder)), one.read_bytes()) for one in files])
        assert found[0] == found[1] == found[2]
        assert len(found[0]) > 4

    def test_only_what_penstock_wrote_is_replaced(self, tmp_path):
        ds = ps.from_arrays({"x": np.arange(30), "t": words()[:30]})
        self.write(ds, tmp_path / "out")
        with pytest.raises(TargetExistsError, match="exists already"):
            self.write(ds, tmp_path / "out")
        assert len(self.write(ds.take(20), tmp_path / "out", overwrite=True)) == 20
        (tmp_path / "out" / "notes.txt").write_text("mine")
        with pytest.raises(TargetExistsError, match="is not overwritten"):
            self.write(ds, tmp_path / "out", overwrite=True)
        (tmp_path / "out" / "notes.txt").unlink()
        ds.write(tmp_path / "out", overwrite=True)  # As shards.
        assert len(self.write(ds.take(10), tmp_path / "out", overwrite=True)) == 10
        assert [path.name for path in tmp_path.iterdir()] == ["out"]

    def test_an_error_leaves_nothing_behind(self, tmp_path):
        def fails(x):
            if x == 2500:
                raise ValueError("no")
            return x

        ds = ps.from_arrays(np.arange(3000)).map(fails)
        with pytest.raises(ps.FunctionError, match="row 2500"):
            self.write(ds, tmp_path / "out", shard_rows=100)
        assert list(tmp_path.iterdir()) == []

    def test_batches_are_refused_with_the_cure_and_come_back_unbatched(self, tmp_path):
        ds = ps.from_arrays({"x": np.arange(10)}).batch(4)
        with pytest.raises(ValueError, match="write before batching"):
            self.write(ds, tmp_path / "out")
        assert len(self.write(ds.unbatch(), tmp_path / "out")) == 10

    def test_fields_can_be_chosen_by_their_names(self, tmp_path):
        nest = {"a": {"b": np.arange(9), "c": words()[:9]}, "d": NESTS["ragged"][:9]}
        self.write(ps.from_arrays(nest), tmp_path / "out")
        back = ps.from_files(tmp_path / "out", fields=("d", {"c": "a.c"}))
        assert_same(run(back), run(ps.from_arrays((nest["d"], {"c": nest["a"]["c"]}))))
        with pytest.raises(ps.DataError, match="has no field 'z'"):
            ps.from_files(tmp_path / "out", fields="z")

    def test_rows_larger_than_a_block_come_back(self, tmp_path):
        big = np.random.default_rng(0).random((3, 500, 700))
        long = ["x" * 3_000_000, "", "y" * 1_000_000]
        ds = ps.from_arrays({"big": big, "long": long})
        assert_same(run(self.write(ds, tmp_path / "out")), run(ds))
