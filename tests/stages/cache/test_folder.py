"""The folder of cache(path): whose rows it holds, and what it refuses."""

import os
import pickle

import numpy as np
import pytest
from tests.conformance import run
from tests.web_server import serving

import penstock as ps
from penstock.errors import DataError, TargetExistsError


def saved(path, array):
    np.save(path, array)
    return path


def test_a_changed_file_is_an_error_that_names_it(tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(10))
    run(ps.from_files(file).cache(tmp_path / "c"))
    saved(file, np.arange(12))
    with pytest.raises(ps.StaleCacheError, match=r"(?s)x\.npy.*rm -r"):
        ps.from_files(file).cache(tmp_path / "c")
    saved(file, np.arange(10))
    os.utime(file, ns=(1, 1))
    with pytest.raises(ps.StaleCacheError, match=r"x\.npy was written to since"):
        ps.from_files(file).cache(tmp_path / "c")


def test_a_changed_chain_is_an_error_that_names_the_stage(tmp_path):
    source = ps.from_arrays(np.arange(10))
    run(source.shuffle(seed=1).cache(tmp_path / "c"))
    with pytest.raises(ps.StaleCacheError, match=r"shuffle\(seed=1\).*shuffle\(seed=2\)"):
        source.shuffle(seed=2).cache(tmp_path / "c")
    with pytest.raises(ps.StaleCacheError, match="made from something else"):
        ps.from_arrays(np.arange(11)).shuffle(seed=1).cache(tmp_path / "c")


def partly(path, monkeypatch, rows=1000, by=1):
    """Leave a cache of which some shards are finished."""
    monkeypatch.setattr("penstock.stages.cache.filling._SHARD_NBYTES", 800)
    monkeypatch.setattr("penstock.shards.sequence.SHARD_NBYTES", 800)

    def fail(x):
        if x == 450 * by:
            raise ValueError("no")
        return x

    ds = ps.from_arrays(np.arange(rows) * by).map(fail).with_options(threads=0, processes=0)
    with pytest.raises(ps.FunctionError):
        run(ds.cache(path))
    return ds


def test_a_part_of_a_cache_of_other_inputs_is_refused_and_kept(tmp_path, monkeypatch):
    ds = partly(tmp_path / "c", monkeypatch)
    before = sorted((tmp_path / "c").iterdir())
    with pytest.raises(
        ps.StaleCacheError, match=r"array 'value' of from_arrays is not what it was"
    ):
        ps.from_arrays(np.arange(1000)[::-1]).map(ds.node.stage.function.function).cache(
            tmp_path / "c"
        )
    with pytest.raises(ps.StaleCacheError, match=r"stage map\(fail\) is gone"):
        ps.from_arrays(np.arange(1000)).cache(tmp_path / "c")
    assert sorted((tmp_path / "c").iterdir()) == before
    ds.cache(tmp_path / "c")


def test_an_array_that_changed_in_place_is_not_mixed_with_what_it_was(tmp_path, monkeypatch):
    monkeypatch.setattr("penstock.stages.cache.filling._SHARD_NBYTES", 800)
    array, ready = np.arange(1000), tmp_path / "ready"

    def wait(x):
        if x == 450 and not ready.exists():
            raise ValueError("not yet")
        return x

    ds = ps.from_arrays(array).map(wait).cache(tmp_path / "c")
    ds = ds.with_options(threads=0, processes=0)
    with pytest.raises(ps.FunctionError):
        run(ds)
    array += 7
    ready.touch()
    with pytest.raises(ps.StaleCacheError, match="is not what it was"):
        run(ds)


def generated():
    return iter(range(1000))


def from_generator(path, key=None, function=generated):
    return ps.from_generator(function, ps.ArraySpec((), "int64")).cache(path, key=key)


def test_a_generator_fills_a_cache_for_its_own_dataset_and_no_other(tmp_path):
    ds = from_generator(tmp_path / "c")
    note = str(ds.explain())
    assert "can't be used by another run" in note
    assert 'key="v1"' in note
    assert [run(ds), run(ds, epoch=1), run(ds.batch(1000))[0].tolist()] == [list(range(1000))] * 3
    assert "on disk, whole" in str(ds.explain())
    with pytest.raises(ps.StaleCacheError, match=r"from_generator\(generated\) can't be compared"):
        from_generator(tmp_path / "c")
    with pytest.raises(ps.StaleCacheError, match=r"key=None, and the dataset now has key='v1'"):
        from_generator(tmp_path / "c", "v1")
    with pytest.raises(ps.StaleCacheError, match="can't be compared"):
        run(pickle.loads(pickle.dumps(ds)))  # Our own.


def test_a_function_that_counts_its_calls_fills_a_cache_in_several_passes(tmp_path):
    """It is not what it was, by its own doing: the dataset that called it knows."""
    seen = {"n": 0}

    def count(row):
        seen["n"] += 1
        return row

    ds = ps.from_arrays(np.arange(5000.0)).map(count).cache(tmp_path / "c").batch(10)
    for number, _ in enumerate(ds.with_options(threads=0)):
        if number == 200:
            break
    assert np.concatenate(list(ds)).tolist() == list(range(5000))
    with pytest.raises(ps.StaleCacheError, match=r"map\(count\) is not what it was"):
        ps.from_arrays(np.arange(5000.0)).map(count).cache(tmp_path / "c")


def test_a_key_vouches_for_what_can_not_be_compared(tmp_path):
    ds = from_generator(tmp_path / "c", "v1")
    assert "another run" not in str(ds.explain())
    assert "key='v1'" in str(ds.explain())
    run(ds)
    assert run(from_generator(tmp_path / "c", "v1")) == list(range(1000))
    with pytest.raises(ps.StaleCacheError, match=r"key='v1', and the dataset now has key='v2'"):
        from_generator(tmp_path / "c", "v2")
    with pytest.raises(ps.StaleCacheError, match=r"key='v1', and the dataset now has key=None"):
        from_generator(tmp_path / "c")


def test_a_key_vouches_for_functions_but_not_for_files_and_arrays(tmp_path):
    def scaled(by):
        def scale(x):
            return x * by

        return scale

    file = saved(tmp_path / "x.npy", np.arange(10))
    run(ps.from_files(file).map(scaled(1)).cache(tmp_path / "a", key="v1"))
    assert run(ps.from_files(file).map(scaled(2)).cache(tmp_path / "a", key="v1")) == list(
        range(10)
    )
    saved(file, np.arange(10))
    with pytest.raises(ps.StaleCacheError, match=r"file x\.npy was written to since"):
        ps.from_files(file).map(scaled(1)).cache(tmp_path / "a", key="v1")
    run(ps.from_arrays(np.arange(10)).cache(tmp_path / "b", key="v1"))
    with pytest.raises(ps.StaleCacheError, match="array 'value' of from_arrays is not what it was"):
        ps.from_arrays(np.arange(10) + 1).cache(tmp_path / "b", key="v1")


def test_a_key_needs_a_path_and_is_text(tmp_path):
    for path, key in ((None, "v1"), (tmp_path / "c", 1)):
        with pytest.raises(TypeError, match="key must be a str, for a cache with a path"):
            ps.from_arrays(np.arange(3)).cache(path, key=key)


def test_what_can_not_be_compared_is_named(tmp_path):
    random = np.random.default_rng(0)
    ds = ps.from_arrays(np.arange(10)).map(lambda x: x + random.integers(5))
    run(ds.cache(tmp_path / "c"))
    with pytest.raises(
        ps.StaleCacheError, match=r"can't be compared: random, a Generator of numpy"
    ):
        ds.cache(tmp_path / "c")


class Slices:
    """Any object with shape, dtype and slicing may be an array, and only it knows what is behind."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __getitem__(self, rows):
        return self.array[rows]


def test_an_array_of_an_unknown_kind_can_not_be_compared(tmp_path):
    ds = ps.from_arrays(Slices(np.arange(10)))
    run(ds.cache(tmp_path / "c"))
    with pytest.raises(
        ps.StaleCacheError, match=r"array 'value' .* can't be compared: it is a Slices"
    ):
        ds.cache(tmp_path / "c")
    run(ds.cache(tmp_path / "d", key="v1"))
    ds.cache(tmp_path / "d", key="v1")


def test_other_rows_of_the_same_file_are_another_array(tmp_path):
    saved(tmp_path / "x.npy", np.arange(100))
    array = np.load(tmp_path / "x.npy", mmap_mode="r")
    run(ps.from_arrays(array[:50]).cache(tmp_path / "c"))
    run(ps.from_arrays(array[:50]).cache(tmp_path / "c"))
    with pytest.raises(ps.StaleCacheError, match="array 'value'"):
        ps.from_arrays(array[50:]).cache(tmp_path / "c")


def test_a_file_in_the_place_of_another_with_its_size_and_time_is_another(tmp_path):
    file = saved(tmp_path / "x.npy", np.arange(10))
    run(ps.from_files(file).cache(tmp_path / "c"))
    found = file.stat()
    saved(tmp_path / "y.npy", np.arange(10) + 1)
    os.utime(tmp_path / "y.npy", ns=(found.st_atime_ns, found.st_mtime_ns))
    (tmp_path / "y.npy").replace(file)
    with pytest.raises(ps.StaleCacheError, match=r"x\.npy was written to since"):
        ps.from_files(file).cache(tmp_path / "c")


def test_files_of_one_name_in_several_folders_are_told_apart(tmp_path):
    for name in "ab":
        (tmp_path / name).mkdir()
        saved(tmp_path / name / "x.npy", np.arange(10))
    files = [tmp_path / name / "x.npy" for name in "ab"]
    run(ps.from_files(files).cache(tmp_path / "c"))
    saved(files[0], np.arange(10) + 1)
    with pytest.raises(ps.StaleCacheError, match=r"x\.npy was written to since"):
        ps.from_files(files).cache(tmp_path / "c")


def test_every_file_of_a_written_folder_counts(tmp_path):
    """A shard has a file for each field: another one in place of the second is noticed, too."""
    ps.from_arrays({"x": np.arange(10), "y": np.arange(10)}).write(tmp_path / "w")
    run(ps.from_files(tmp_path / "w").cache(tmp_path / "c"))
    saved(tmp_path / "w" / "y-00000.npy", np.arange(10) + 1)
    with pytest.raises(ps.StaleCacheError, match=r"y-00000\.npy was written to since"):
        ps.from_files(tmp_path / "w").cache(tmp_path / "c")


def test_a_remote_file_counts_by_what_the_server_calls_its_version(tmp_path):
    with serving() as server:
        server.files["/x.npy"] = saved(tmp_path / "x.npy", np.arange(10)).read_bytes()
        run(ps.from_files(server.url("/x.npy")).cache(tmp_path / "c"))
        assert run(ps.from_files(server.url("/x.npy")).cache(tmp_path / "c")) == list(range(10))
        server.etag = '"2"'
        with pytest.raises(ps.StaleCacheError, match=r"file x\.npy was written to since"):
            ps.from_files(server.url("/x.npy")).cache(tmp_path / "c")
        server.etag = ""
        run(ps.from_files(server.url("/x.npy")).cache(tmp_path / "d"))
        with pytest.raises(ps.StaleCacheError, match="no version of it is known"):
            ps.from_files(server.url("/x.npy")).cache(tmp_path / "d")
        run(ps.from_files(server.url("/x.npy")).cache(tmp_path / "e", key="v1"))
        ps.from_files(server.url("/x.npy")).cache(tmp_path / "e", key="v1")


def test_an_image_that_was_moved_to_another_class_is_noticed(tmp_path):
    image = pytest.importorskip("PIL.Image")
    for name in ("a/1.png", "a/2.png", "b/3.png"):
        (tmp_path / "images" / name).parent.mkdir(parents=True, exist_ok=True)
        image.new("RGB", (4, 4)).save(tmp_path / "images" / name)
    run(ps.from_files(tmp_path / "images").cache(tmp_path / "c"))
    (tmp_path / "images/a/2.png").rename(tmp_path / "images/b/2.png")
    with pytest.raises(ps.StaleCacheError, match="the labels of the images is not what it was"):
        ps.from_files(tmp_path / "images").cache(tmp_path / "c")


def test_a_folder_or_file_of_the_users_is_refused(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("precious")
    for path in (tmp_path / "mine", tmp_path / "mine" / "thesis.txt"):
        with pytest.raises(TargetExistsError):
            ps.from_arrays(np.arange(3)).cache(path)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "precious"


def test_a_file_that_was_cut_off_is_an_error(tmp_path):
    ds = ps.from_arrays(np.arange(1000)).cache(tmp_path / "c")
    run(ds)
    file = tmp_path / "c" / "value-00000.npy"
    os.truncate(file, 1000)
    with pytest.raises(DataError, match=r"1000 bytes, and the manifest says 8128"):
        run(ds)
