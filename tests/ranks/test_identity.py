"""What is the same on two ranks that read the same, and differs on two that do not."""

import gc

import numpy as np
import pytest

import penstock as ps
from penstock.ranks import identity
from penstock.ranks.identity import identity_of

NUM_ROWS = 1000
X = np.arange(NUM_ROWS * 3, dtype="f4").reshape(-1, 3)


def of(ds, world=2, start="epoch 0, batch 0"):
    return identity_of(ds.node, world=world, start=start)


def differing(one, other):
    one, other = of(one), of(other)
    assert list(one) == list(other)
    return [word for word in one if one[word] != other[word]]


def save(folder, **arrays):
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def half(value, other):
    return value * 0.5


def chain(source):
    return source.shuffle(seed=3).batch(32)


def test_it_says_what_a_chain_is_made_of(tmp_path):
    save(tmp_path, x=X)
    found = of(chain(ps.from_files(tmp_path / "x.npy")), start="epoch 2, batch 12")
    assert list(found) == ["stages", "seeds", "files", "length", "rows", "start", "world"]
    assert found["stages"].startswith('["files", [["x.npy", 1000]]')
    assert found["stages"].endswith('["batch", 32, false]')
    assert found["seeds"] == "shuffle 3"
    assert found["files"] == "x.npy 12128 bytes"
    assert found["length"] == "1000 rows"
    assert found["rows"].startswith("digest of 2 of 1000 rows: ")
    assert found["start"] == "epoch 2, batch 12"
    assert found["world"] == "2"


SOURCES = {
    "an array": lambda: ps.from_arrays(X.copy()),
    "a nest": lambda: ps.from_arrays({"x": X.copy(), "y": (np.arange(NUM_ROWS),)}),
    "text": lambda: ps.from_arrays([f"text {row}" for row in range(50)]),
    "bytes": lambda: ps.from_arrays([b"a" * row for row in range(50)]),
    "ragged": lambda: ps.from_arrays([np.arange(row) for row in range(50)]),
    "structs": lambda: ps.from_arrays(np.zeros(50, [("a", "i4"), ("b", "f8")])),
    "one row": lambda: ps.from_arrays(X[:1].copy()),
    "no rows": lambda: ps.from_arrays(X[:0].copy()),
    "nan": lambda: ps.from_arrays(np.full((50, 2), np.nan)),
    "a zip": lambda: ps.zip(ps.from_arrays(X.copy()), ps.from_arrays(X.copy() + 1)),
    "a mix": lambda: ps.mix([ps.from_arrays(X.copy()), ps.from_arrays(X.copy() + 1)], seed=4),
    "endless": lambda: ps.from_arrays(X.copy()).repeat(),
    "a flow": lambda: ps.from_arrays(X.copy()).filter(len),
    "a generator": lambda: ps.from_generator(lambda: iter(X), ps.ArraySpec((3,), "f4")),
    "a cache": lambda: ps.from_arrays(X.copy()).cache(),
}


@pytest.mark.parametrize("source", SOURCES.values(), ids=SOURCES)
def test_two_ranks_that_loaded_the_same_are_the_same(source):
    assert differing(source(), source()) == []


def test_the_same_files_in_other_places_are_the_same(tmp_path):
    one = save(tmp_path / "mnt" / "a", x=X)
    other = save(tmp_path / "mnt" / "b", x=X)
    assert differing(ps.from_files(one / "x.npy"), ps.from_files(other / "x.npy")) == []


def test_a_part_of_the_data_loaded_by_each_rank_is_noticed():
    first, second = ps.from_arrays(X[::2].copy()), ps.from_arrays(X[1::2].copy())
    assert differing(chain(first), chain(second)) == ["rows"]
    assert differing(chain(ps.from_arrays(X[:501])), chain(ps.from_arrays(X[501:]))) == [
        "stages",
        "length",
        "rows",
    ]


@pytest.mark.parametrize("row", [0, NUM_ROWS - 1])
def test_one_value_of_an_end_is_enough(row):
    other = X.copy()
    other[row, 1] += 1
    assert differing(ps.from_arrays(X), ps.from_arrays(other)) == ["rows"]


def test_parts_in_files_of_the_same_name_and_size_are_noticed(tmp_path):
    one = save(tmp_path / "0", x=X[:500])
    other = save(tmp_path / "1", x=X[500:])
    assert differing(ps.from_files(one / "x.npy"), ps.from_files(other / "x.npy")) == ["rows"]


def test_other_files_are_noticed(tmp_path):
    save(tmp_path, x=X, y=X, z=X[:-1])
    x, y, z = (ps.from_files(tmp_path / f"{name}.npy") for name in "xyz")
    assert differing(x, y) == ["stages", "files"]
    assert "files" in differing(x, z)
    assert "length" in differing(x, z)


def test_one_file_of_many_is_noticed(tmp_path):
    few, many = [], []
    for number in range(40):
        save(tmp_path / "a", **{f"part{number:02}": X[number : number + 2]})
        few.append(tmp_path / "a" / f"part{number:02}.npy")
        many.append(few[-1])
    save(tmp_path / "b", part17=X[17:20])
    many[17] = tmp_path / "b" / "part17.npy"
    found = of(ps.from_files(few))["files"]
    assert found.startswith("40 files of 6080 bytes, part00.npy to part39.npy, ")
    assert "files" in differing(ps.from_files(few), ps.from_files(many))
    del few[3], many[4]
    assert "files" in differing(ps.from_files(few), ps.from_files(many))


def test_seeds_stages_and_arguments_are_noticed():
    source = ps.from_arrays(X)
    assert differing(source.shuffle(seed=3), source.shuffle(seed=4)) == ["stages", "seeds"]
    assert differing(source.batch(32), source.batch(64)) == ["stages"]
    assert differing(source.batch(32), source.take(500).batch(32)) == ["stages"]
    seeded = [source.map(half, seed=seed) for seed in (1, 2)]
    assert differing(*seeded) == ["stages", "seeds"]
    assert of(source, world=2)["world"] != of(source, world=3)["world"]


def test_a_list_of_very_many_files_makes_no_long_text(tmp_path):
    names = {f"a-rather-long-name-{number}": X[:1] for number in range(100)}
    save(tmp_path, **names)
    found = of(ps.from_files([tmp_path / f"{name}.npy" for name in names]))
    assert sum(map(len, found.values())) < 800


def test_rows_are_read_once_a_process_and_only_a_few(monkeypatch):
    node = ps.from_arrays(X.copy()).node
    read = []
    fill = type(node).fill
    monkeypatch.setattr(type(node), "fill", lambda *args: (read.append(len(args[1])), fill(*args)))
    for epoch in range(3):
        identity_of(node, world=2, start=f"epoch {epoch}, batch 0")
    assert read == [16]


def test_large_rows_are_read_up_to_a_few_megabytes():
    rows = ps.from_arrays(np.zeros((20, 1 << 20), "u1"))
    assert of(rows)["rows"].startswith("digest of 4 of 20 rows")
    larger = ps.from_arrays(np.zeros((2, identity._SAMPLED_NBYTES + 1), "u1"))
    assert of(larger)["rows"] == "not looked at"


def test_a_chunk_that_would_have_to_be_decoded_counts_as_a_whole(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_dataset("small", data=np.zeros((4096, 256)), chunks=(64, 256), compression=1)
        file.create_dataset("large", data=np.zeros((4096, 256)), chunks=(4096, 256), compression=1)
    small, large = (ps.from_files(tmp_path / "x.h5", fields=field) for field in ("small", "large"))
    assert of(small)["rows"].startswith("digest of 2 of 4096 rows")
    assert of(large)["rows"] == "not looked at"


def test_flows_are_not_read():
    called = []

    def rows():
        called.append(1)
        yield from X

    assert of(ps.from_generator(rows, ps.ArraySpec((3,), "f4")))["rows"] == "not looked at"
    assert not called


def test_functions_are_not_called():
    calls = []

    def spy(row):
        calls.append(1)
        return row

    ds = ps.from_arrays(X).map(spy)
    before = len(calls)
    of(ds)
    assert len(calls) == before


def test_rows_that_can_not_be_read_are_said_to_be_so_and_raised_by_the_stream(tmp_path):
    save(tmp_path, x=X)
    ds = ps.from_files(tmp_path / "x.npy")
    good = ps.from_files(save(tmp_path / "good", x=X) / "x.npy")
    (tmp_path / "x.npy").unlink()
    assert of(ds)["rows"] == "digest of 2 of 1000 rows: MissingFileError instead"
    assert differing(ds, good) == ["rows"]
    with pytest.raises(ps.MissingFileError):
        list(ds)


def test_it_is_forgotten_with_its_source():
    ds = ps.from_arrays(X.copy())
    of(ds)
    assert ds.node in identity._known
    before = len(identity._known)
    del ds
    gc.collect()
    assert len(identity._known) == before - 1
