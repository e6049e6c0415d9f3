"""The windowed shuffle of files: well mixed, and the same everywhere, whatever the rows are."""

import warnings
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


def warned(ds: ps.Dataset) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            with ds.stream() as stream:
                next(stream)
    return [str(one.message) for one in found if "mixes rows poorly" in str(one.message)]


def test_a_poor_mixing_is_told_once_with_the_figure_and_the_cures(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({"a": np.arange(400_000), "b": np.arange(400_000.0)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=100_000)
    ds = ps.from_files(tmp_path / "a.parquet", ("a", "b"))
    (text,) = warned(ds.shuffle(window="2MB").batch(10))
    assert "mixing 0.01" in text
    assert "blocks of 100000 rows (1.6 MB)" in text
    for cure in (".shuffle(exact=True)", ".cache('folder').shuffle()", ".shuffle(window='391MB')"):
        assert cure in text
    assert not warned(ds.shuffle(window="2MB", exact=True).batch(10))
    assert not warned(ds.shuffle(window="391MB").batch(10))
    assert not warned(ds.cache(tmp_path / "cache").shuffle(window="7MB").batch(10))
    assert "mixing 0.01" in str(ds.shuffle(window="2MB").explain())


def test_the_warning_names_the_line_that_opened_the_stream(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(100_000))
    ds = ps.from_files(tmp_path / "a.npy").shuffle(window="64KB")
    with pytest.warns(ps.PenstockWarning, match="mixes rows poorly") as found:
        next(iter(ds))
    assert found[0].filename == __file__


def test_a_window_as_small_as_it_may_be_still_gives_every_row_once(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(50_000))
    for window in (1, "64KB", "128KB", "200KB", "300KB"):
        ds = ps.from_files(tmp_path / "a.npy").shuffle(window=window).batch(999)
        assert sorted(np.concatenate(list(ds)).tolist()) == list(range(50_000))
