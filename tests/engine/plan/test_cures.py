"""The cure that a refusal names helps: the same chain with it runs with the budget that was too small."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.engine.plan.test_refusal import run

import penstock as ps


@pytest.mark.parametrize("kind", ["forward", "on storage", "texts on storage"])
def test_the_window_that_a_refusal_names_fits_the_budget(kind: str, tmp_path: Path) -> None:
    x = np.zeros((300_000, 40), "f4")
    if kind == "forward":
        ds = ps.from_generator(lambda: iter(x[:2000]), ps.ArraySpec((40,), "f4"))
    elif kind == "on storage":
        np.save(tmp_path / "x.npy", x)
        ds = ps.from_files(tmp_path / "x.npy")
    else:
        ps.from_arrays(["a" * (row % 900) for row in range(60_000)]).write(tmp_path / "texts")
        ds = ps.from_files(tmp_path / "texts")
    with pytest.raises(ps.BudgetError, match=r"or a smaller window: \.shuffle\(window=") as refused:
        run(ds.shuffle(seed=0), "24MB")
    window = int(re.search(r"window=(\d+)", str(refused.value))[1])
    assert 1 << 20 <= window < 64 << 20
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert run(ds.shuffle(seed=0, window=window), "24MB") == (
            2000 if kind == "forward" else run(ds, "1GB")
        )


def long_texts(count: int, nbytes: int) -> ps.Dataset:
    """Texts that nobody expects to be that long."""
    spec = ps.ArraySpec((), str)
    return ps.from_generator(lambda: ("a" * nbytes for _ in range(count)), spec)


def long_rows(count: int, nbytes: int) -> ps.Dataset:
    """Lists of numbers, of which every 50th is long."""
    rows = [np.zeros(nbytes // 4 if row % 50 == 7 else 4, "f4") for row in range(count)]
    return ps.from_generator(lambda: iter(rows), ps.ArraySpec((None,), "f4"))


def square(x: np.ndarray) -> np.ndarray:
    return x * x


BATCHES: dict[str, tuple[Callable[[int], ps.Dataset], int]] = {
    "arrays": (lambda size: ps.from_arrays(np.zeros((5000, 1000))).batch(size), 2000),
    "flow": (lambda size: long_texts(3000, 10_000).batch(size), 1500),
    "padded": (lambda size: long_rows(1000, 100_000).padded_batch(size), 500),
    "mapped": (
        lambda size: ps.from_arrays(np.zeros((5000, 1000))).batch(size).map(square),
        2000,
    ),
}


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("threads", [0, 2])
def test_the_size_of_batches_that_a_refusal_names_fits_the_budget(kind: str, threads: int) -> None:
    make, size = BATCHES[kind]
    with pytest.raises(
        ps.BudgetError, match=r"or use smaller batches, of \d+ rows at most"
    ) as refused:
        run(make(size).with_options(threads=threads), "16MB")
    smaller = int(re.search(r"of (\d+) rows at most", str(refused.value))[1])
    assert 4 <= smaller < size
    assert run(make(smaller).with_options(threads=threads), "16MB") > 1


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_folder_is_named_where_a_cache_in_memory_is_too_large(kind: str, tmp_path: Path) -> None:
    ds = ps.from_arrays(np.zeros((5000, 1000)))
    if kind == "flow":
        ds = ds.filter(lambda x: x[0] == 0)
    with pytest.raises(ps.BudgetError, match=r"or keep the rows on disk: \.cache\('folder'\)"):
        run(ds.cache(), "16MB")
    assert run(ds.cache(tmp_path / "folder", key="a"), "16MB") == 5000


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_no_processes_are_named_where_what_they_share_does_not_fit(kind: str) -> None:
    ds = ps.from_arrays(np.zeros((40, 100_000)))
    if kind == "flow":
        ds = ds.filter(lambda x: x[0] == 0)
    ds = ds.map(square).with_options(threads=1)
    need = [ds.with_options(processes=count).explain().need_nbytes for count in (0, 2)]
    assert need[0] < need[1]
    cure = r"or call functions in this process: with_options\(processes=0\)"
    memory = need[1] - 1
    with (
        pytest.raises(ps.BudgetError, match=cure),
        ds.with_options(processes=2, memory=memory).stream(),
    ):
        pass
    assert run(ds, memory) == 40


def test_nothing_is_named_where_only_memory_helps() -> None:
    with pytest.raises(ps.BudgetError) as refused:
        run(ps.from_arrays(np.zeros((5000, 1000))), 1000)
    assert str(refused.value).endswith("or more.")
