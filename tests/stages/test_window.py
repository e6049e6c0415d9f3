"""window: views of a series as rows, gathered straight into place."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import (
    NUM_ROWS,
    ROWS,
    StageConformance,
    batches,
    keep,
    numbered,
    stack,
)

import penstock as ps

TEXTS = [str(i) * (i % 4) for i in range(NUM_ROWS)]


def windows(rows: list[Any], size: int, shift: int = 1, stride: int = 1) -> list[Any]:
    span = (size - 1) * stride + 1
    return [stack(rows[i : i + span : stride]) for i in range(0, len(rows) - span + 1, shift)]


def with_text() -> ps.Dataset:
    return ps.from_arrays({"t": TEXTS, "y": np.arange(NUM_ROWS)})


TEXT_ROWS = [{"t": t, "y": np.int64(i)} for i, t in enumerate(TEXTS)]
WHOLE = batches(ROWS, 4, drop=True)
CASES = {
    "window": (lambda: numbered().window(5, 1), windows(ROWS, 5)),
    "of one": (lambda: numbered().window(1), windows(ROWS, 1)),
    "with a shift": (lambda: numbered().window(5, shift=3), windows(ROWS, 5, 3)),
    "side by side": (lambda: numbered().window(4), windows(ROWS, 4, 4)),
    "with gaps": (lambda: numbered().window(2, shift=7), windows(ROWS, 2, 7)),
    "with a stride": (lambda: numbered().window(3, 1, 4), windows(ROWS, 3, 1, 4)),
    "with a stride and a shift": (
        lambda: numbered().window(3, shift=5, stride=2),
        windows(ROWS, 3, 5, 2),
    ),
    "with a stride, side by side": (
        lambda: numbered().window(3, stride=2),
        windows(ROWS, 3, 3, 2),
    ),
    "of one row each, far apart": (lambda: numbered().window(1, 2, 9), windows(ROWS, 1, 2, 9)),
    "of all rows": (lambda: numbered().window(NUM_ROWS), windows(ROWS, NUM_ROWS)),
    "in batches": (lambda: numbered().window(5, 1).batch(4), batches(windows(ROWS, 5), 4)),
    "with a stride, in batches": (
        lambda: numbered().window(2, 1, 3).batch(4),
        batches(windows(ROWS, 2, 1, 3), 4),
    ),
    "of windows": (lambda: numbered().window(5, 1).window(3, 1), windows(windows(ROWS, 5), 3)),
    "of batches": (
        lambda: numbered().batch(4, drop_remainder=True).window(2, 1),
        windows(WHOLE, 2),
    ),
    "beside batches": (
        lambda: ps.zip(numbered().batch(4, drop_remainder=True), numbered().window(3, 1).take(5)),
        list(zip(WHOLE, windows(ROWS, 3)[:5], strict=True)),
    ),
    "of text": (lambda: with_text().window(3, 1), windows(TEXT_ROWS, 3)),
    "of text, with a stride": (lambda: with_text().window(3, 2, 2), windows(TEXT_ROWS, 3, 2, 2)),
    "of text, in batches": (
        lambda: with_text().window(3, 1).batch(4),
        batches(windows(TEXT_ROWS, 3), 4),
    ),
}


class TestWindow(StageConformance):
    @pytest.fixture(params=CASES)
    def case(self, request: pytest.FixtureRequest) -> Case:
        make, elements = CASES[request.param]
        return Case(make, elements)


@given(
    st.integers(0, 40),
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(1, 4),
    st.integers(1, 5),
)
def test_windows_are_those_of_numpy_shuffled_or_not(
    num_rows: int, size: int, shift: int, stride: int, batch: int
):
    x = np.arange(num_rows * 2, dtype="i4").reshape(num_rows, 2)
    span = (size - 1) * stride + 1
    expected = [x[i : i + span : stride] for i in range(0, num_rows - span + 1, shift)]
    ds = ps.from_arrays(x).window(size, shift, stride)
    assert len(ds) == len(expected)
    assert_same(run(ds.with_options(threads=0)), expected)
    order = [
        int(i)
        for i in ps.from_arrays(np.arange(len(expected))).shuffle(seed=3).with_options(threads=0)
    ]
    shuffled = run(ds.shuffle(seed=3).batch(batch).unbatch().with_options(threads=0))
    assert_same(shuffled, [expected[i] for i in order])
    found = [w for b in run(ds.shuffle(seed=3).batch(batch).with_options(threads=0)) for w in b]
    assert_same(found, [expected[i] for i in order])


def test_windows_of_a_file_are_those_of_its_array(tmp_path: Path):
    x = np.random.default_rng(0).normal(size=(1000, 3)).astype("f4")
    np.save(tmp_path / "x.npy", x)
    ds = ps.from_files(tmp_path / "x.npy").window(20, shift=5)
    expected = np.lib.stride_tricks.sliding_window_view(x, 20, axis=0)[::5].swapaxes(1, 2)
    assert_same(run(ds), list(expected))
    found = run(ds.shuffle(seed=1).with_options(memory="512MB"))
    assert sorted(w.tobytes() for w in found) == sorted(w.tobytes() for w in expected)


def test_windows_over_what_never_ends_have_no_end():
    ds = ps.from_arrays(np.arange(3)).repeat().window(4, 1)
    assert [w.tolist() for w in ds.take(3)] == [[0, 1, 2, 0], [1, 2, 0, 1], [2, 0, 1, 2]]


def test_a_window_takes_no_memory_of_the_size_of_all_windows():
    ds = ps.from_arrays(np.broadcast_to(np.float32(1), (1 << 40,))).window(1000, 1)
    assert len(ds) == (1 << 40) - 999
    assert ds.explain().total_nbytes < 100_000_000
    assert next(iter(ds.shuffle().batch(8))).shape == (8, 1000)


def test_a_window_that_fails_is_named_with_its_first_row():
    def fails(w: Any) -> Any:
        if w[0] == 6:
            raise ValueError("no")
        return w

    with pytest.raises(
        ps.FunctionError, match="failed on window 3, which starts with row 6: ValueError"
    ):
        list(numbered().map(lambda x, y: y).window(4, shift=2).map(fails))


def test_mistakes_are_told_when_the_chain_is_built():
    with pytest.raises(ValueError, match="size must be at least 1, got 0"):
        numbered().window(0)
    with pytest.raises(ValueError, match="shift must be at least 1, got 0"):
        numbered().window(2, shift=0)
    with pytest.raises(ValueError, match="stride must be at least 1, got 0"):
        numbered().window(2, stride=0)
    with pytest.raises(
        ValueError, match=r"window\(3\) needs random access to the rows, and filter\(keep\)"
    ):
        numbered().filter(keep).window(3)
    with pytest.raises(ValueError, match=r"window\(3\) can't stack rows whose shapes differ"):
        ps.from_arrays([np.arange(2), np.arange(3)]).window(3)


def test_who_can_only_be_read_forward_is_named_with_what_can_be_done(tmp_path: Path) -> None:
    np.savez_compressed(tmp_path / "a.npz", x=np.arange(5))
    deflated = ps.from_files(tmp_path / "a.npz", "x")
    for ds in (deflated, deflated.take(4)):
        with pytest.raises(ValueError, match=r"from_files\(1 deflated \.npz\) can only") as caught:
            ds.window(2)
        assert "put the window before it" not in str(caught.value)
    filtered = ps.from_arrays(np.arange(9)).filter(lambda x: True).take(3)
    with pytest.raises(
        ValueError, match=r"filter\(<lambda>\) can only .*\n  put the window before"
    ):
        filtered.window(2)
