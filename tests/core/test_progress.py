"""Long steps tell how far they are to whoever shows it; the library itself shows nothing unless it is asked to."""

import threading

import numpy as np
import pytest

import penstock as ps
from penstock.core.progress import Bars, Step, begin, shown_by


class Noted(Step):
    """A step that notes what it is told."""

    def __init__(self, notes, what, total, done, unit):
        self.note = [what, total, done, unit]
        self.is_closed = False
        self.lock = threading.Lock()
        notes.append(self)

    def advance(self, count, nbytes=0):
        with self.lock:
            self.note[2] += count

    def close(self):
        self.is_closed = True


@pytest.fixture
def noted():
    """All steps that a test begins, as it tells of them."""
    notes = []
    with shown_by(lambda *told: Noted(notes, *told)):
        yield notes


def told_of(noted):
    assert all(one.is_closed for one in noted)
    return [tuple(one.note) for one in noted]


def test_there_is_no_bar_unless_stderr_is_a_terminal(tmp_path, capfd):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out")
    assert capfd.readouterr().err == ""


def test_a_bar_can_be_asked_for(tmp_path, capfd):
    ps.from_arrays(np.arange(9)).write(tmp_path / "out", progress=True)
    assert "9 of 9 rows" in capfd.readouterr().err


def test_without_rich_a_bar_that_was_asked_for_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rich.progress", None)
    with pytest.raises(ImportError, match=r"progress=True needs rich: pip install 'penstock\[prog"):
        ps.from_arrays(np.arange(9)).write(tmp_path / "out", progress=True)


def test_writers_tell_their_rows_unless_they_are_told_not_to(tmp_path, noted):
    ds = ps.from_arrays(np.arange(9))
    for format in ("npy", "parquet", "tfrecord", "zarr"):
        ds.write(tmp_path / format, format=format)
    ds.write(tmp_path / "silent", progress=False)
    assert told_of(noted) == [(f, 9, 9, "rows") for f in ("npy", "parquet", "tfrecord", "zarr")]


def test_scans_for_an_index_tell_their_bytes(tmp_path, noted, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    ps.from_arrays({"x": np.arange(900)}).write(
        tmp_path / "out", format="tfrecord", progress=False, shards=3
    )
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 1000)
    assert len(ps.from_tfrecord(tmp_path / "out")) == 900
    assert len(ps.from_files(tmp_path / "a.csv")) == 1000
    sizes = [sum(p.stat().st_size for p in (tmp_path / "out").iterdir()), 4004]
    records, lines = told_of(noted)
    assert records == ("indexing", sizes[0], sizes[0], "bytes")
    assert lines[:2] == ("indexing", sizes[1])
    assert lines[2] in (sizes[1], sizes[1] - 4)  # The header is no row.


def test_an_exact_shuffle_caches_and_statistics_tell_their_rows(tmp_path, noted):
    np.save(tmp_path / "a.npy", np.zeros((20_000, 1000)))
    ds = ps.from_files(tmp_path / "a.npy").shuffle(exact=True)
    with ds.batch(10).stream() as stream:
        next(stream)
    assert told_of(noted) == [("putting rows in exact order", 20_000, 20_000, "rows")]
    noted.clear()
    some = ps.from_arrays(np.arange(1000))
    list(some.cache(tmp_path / "rows").batch(100))
    list(some.filter(lambda x: x > 1).cache(tmp_path / "flow").shuffle().batch(100))
    list(some.filter(lambda x: x > 1).cache().batch(100))
    some.statistics()
    assert told_of(noted) == [
        ("caching", 1000, 1000, "rows"),
        ("caching", None, 998, "rows"),
        ("caching", None, 998, "rows"),
        ("counting", 1000, 1000, "rows"),
    ]


def test_a_step_that_fails_is_closed(tmp_path, noted):
    (tmp_path / "a.tfrecord").write_bytes(b"garbage" * 1000)
    ps.from_tfrecord(tmp_path / "a.tfrecord", {"x": ps.VarFeature("int64")})
    assert told_of(noted) == [("indexing", 7000, 0, "bytes")]


def test_bars_of_several_threads_share_one_display_which_ends_with_the_last(capfd):
    bars = Bars(delay=0.0, stays=True)
    steps = [bars.begin(f"step {n}", 100, 0, "bytes" if n else "rows") for n in range(2)]

    def work(step):
        for _ in range(100):
            step.advance(1)
        step.close()
        step.close()
        step.advance(1)  # What comes late changes nothing.

    threads = [threading.Thread(target=work, args=(step,)) for step in steps]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    shown = capfd.readouterr().err
    assert "step 0" in shown
    assert "100 of 100 rows" in shown
    assert "0 of 0 MB" in shown


def test_bars_that_are_closed_show_nothing_more(capfd):
    bars = Bars(delay=0.0)
    step = bars.begin("interrupted", 100, 0, "rows")
    step.advance(1)
    bars.close()
    capfd.readouterr()
    step.advance(1)
    step.close()
    with bars.begin("late", 100, 0, "rows") as late:
        late.advance(1)
    assert capfd.readouterr() == ("", "")


def test_what_ends_at_once_shows_no_bar(capfd):
    with shown_by(Bars().begin), begin("a moment", total=3) as step:
        step.advance(3)
    assert capfd.readouterr().err == ""
