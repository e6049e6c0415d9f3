"""The windowed shuffle of files: well mixed, and the same everywhere, whatever the rows are."""

from pathlib import Path

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.shuffle.mixing import spread

import penstock as ps


@pytest.mark.slow
def test_a_file_sorted_by_label_comes_out_mixed(tmp_path: Path) -> None:
    """As it is for labels in order, with the window, the blocks and the threads of the real thing."""
    labels = np.repeat(np.arange(10), 20_000)
    values = np.zeros((200_000, 128), "f4")
    values[:, 0] = labels
    np.save(tmp_path / "a.npy", values)
    ds = ps.from_files(tmp_path / "a.npy").shuffle(seed=1).batch(128)
    assert "windowed: 2 windows" in str(ds.explain())
    found = np.concatenate([batch[:, 0] for batch in ds]).astype(int)
    assert np.bincount(found).tolist() == [20_000] * 10
    assert spread(found) <= 1.1 * spread(np.random.default_rng(0).permutation(labels))


def test_it_is_the_same_with_any_threads_and_resumes_at_every_batch(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(60_000))
    ds = ps.from_files(tmp_path / "a.npy").shuffle(seed=3, window="150KB").batch(1024)
    assert "windowed" in str(ds.explain())
    states = []
    with ds.with_options(threads=0).stream() as stream:
        states.append(stream.state())
        batches = []
        for batch in stream:
            batches.append(batch)
            states.append(stream.state())
    for threads in (1, 2, 5):
        assert_same(run(ds.with_options(threads=threads)), batches)
    assert_same(run(ds.with_options(memory="6MB")), batches)
    second = run(ds, epoch=1)
    assert any((a != b).any() for a, b in zip(batches, second, strict=True))
    for done, state in enumerate(states):
        rest = batches[done:] if done < len(batches) else second
        assert_same(run(ds.with_options(threads=done % 3), state=state), rest)


def test_text_on_storage_is_shuffled_in_windows_too(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    words = [f"word {i}" * (i % 4) for i in range(40_000)]
    pq.write_table(
        pa.table({"s": words, "i": range(40_000)}), tmp_path / "a.parquet", row_group_size=2000
    )
    ds = ps.from_files(tmp_path / "a.parquet", ("i", "s")).shuffle(window="400KB").batch(500)
    assert "windowed" in str(ds.explain())
    seen = []
    for numbers, texts in ds:
        assert list(texts) == [words[i] for i in numbers.tolist()]
        seen += numbers.tolist()
    assert sorted(seen) == list(range(40_000))


def test_large_rows_that_are_packed_together_are_shuffled_in_windows(tmp_path: Path) -> None:
    """A random read of one would decode all of its chunk."""
    import h5py

    values = np.arange(64)[:, None] + np.zeros((64, 20_000), "f4")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("x", data=values, chunks=(8, 20_000), compression="gzip")
    ds = ps.from_files(tmp_path / "a.h5", "x").shuffle(window="2MB")
    assert "windowed" in str(ds.explain())
    assert sorted(int(row[0]) for row in ds) == list(range(64))
