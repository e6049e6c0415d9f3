"""Rows that turn out longer than anybody knew, late: the budget that is named does at once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.engine.plan.test_refusal import named, run

import penstock as ps
from penstock.core.fields import tops_of
from penstock.engine.plan.looking import Spread

LATE = [*["s" * 20] * 2000, *["w" * 20_000] * 100, "v" * 1_000_000]
"""Short texts, then long ones, then one that is far longer."""


def arrays() -> list[np.ndarray]:
    return [np.zeros(len(text) // 4, "f4") for text in LATE]


def parquet(path: Path, column: Any, **options: Any) -> ps.Dataset:
    pq.write_table(pa.table({"t": column}), path, row_group_size=400, **options)
    return ps.from_files(path, fields="t")


def arrow(path: Path) -> ps.Dataset:
    table = pa.table({"t": LATE})
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=400)
    return ps.from_files(path, fields="t")


def lines(path: Path, texts: list[str]) -> ps.Dataset:
    path.write_text("\n".join(texts))
    return ps.from_files(path)


def generated(rows: Callable[[], list[Any]], spec: ps.ArraySpec) -> ps.Dataset:
    return ps.from_generator(lambda: iter(rows()), spec)


SOURCES: dict[str, Callable[[Path], ps.Dataset]] = {
    "parquet": lambda f: parquet(f / "a.parquet", LATE, use_dictionary=False),
    "parquet of words": lambda f: parquet(f / "a.parquet", [*LATE[:2000], *LATE[2000:2010] * 30]),
    "parquet of lists": lambda f: parquet(f / "a.parquet", pa.array(arrays())),
    "arrow": lambda f: arrow(f / "a.arrow"),
    "text": lambda f: lines(f / "a.txt", LATE),
    "csv": lambda f: lines(f / "a.csv", ["a,b", *(f"1,t{text[:100_000]}" for text in LATE)]),
    "generator": lambda _: generated(lambda: LATE, ps.ArraySpec((), str)),
    "ragged": lambda _: generated(arrays, ps.ArraySpec((None,), "f4")),
    "map": lambda _: ps.from_arrays(np.array([len(t) for t in LATE])).map(lambda n: "m" * int(n)),
    "interleave": lambda _: ps.interleave(
        [lambda: iter(LATE), lambda: iter(LATE)], ps.ArraySpec((), str)
    ),
}


def doubled(*row: Any) -> Any:
    return np.concatenate([row[-1]] * 2) if isinstance(row[-1], np.ndarray) else row[-1] * 2


CHAINS: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
    "as it is": lambda ds: ds,
    "shuffle": lambda ds: ds.shuffle(seed=0),
    "shuffle, small": lambda ds: ds.shuffle(seed=0, window="1MB"),
    "cache": lambda ds: ds.cache(),
    "cache, shuffle": lambda ds: ds.cache().shuffle(seed=0),
    "batches": lambda ds: ds.padded_batch(16),
    "filter": lambda ds: ds.filter(lambda *_: True).shuffle(seed=0),
    "map": lambda ds: ds.map(doubled).shuffle(seed=0),
    "zip": lambda ds: ps.zip(ds, ds),
    "repeat": lambda ds: ds.shuffle(seed=0).repeat().take(5000),
    "unbatch": lambda ds: ds.unbatch().enumerate(),
    "unbatch, batch": lambda ds: ds.unbatch().map(lambda x: (x, x, x)).batch(1000),
}
# Every source, every chain, and not every pair of them.
PAIRS = [
    *((source, "shuffle") for source in SOURCES),
    *((source, "batches") for source in ("parquet", "csv", "ragged", "map")),
    *(
        (source, chain)
        for source in ("parquet of words", "generator")
        for chain in CHAINS
        if "unbatch" not in chain
    ),
    *(("ragged", chain) for chain in CHAINS if chain != "map"),
]


@pytest.mark.parametrize(("source", "chain"), list(dict.fromkeys(PAIRS)))
@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_the_budget_that_is_named_for_rows_that_grow_late_does_at_once(
    source: str, chain: str, tmp_path: Path
) -> None:
    ds = SOURCES[source](tmp_path).with_options(threads=len(source + chain) % 2 * 2)
    count = run(CHAINS[chain](ds), "2GB")
    # Refused before it starts, and in the middle of it.
    for memory in (1, "2MB"):
        once = CHAINS[chain](ds)
        try:
            assert run(once, memory) == count
        except ps.BudgetError as error:
            budget = named(error)
            assert budget < 2 << 30
            assert run(once, budget) == count
        else:
            assert memory != 1


@pytest.mark.parametrize("length", [1000, 5000, 30_000])
def test_the_budget_does_for_rows_that_become_many_wider_ones(length: int) -> None:
    rows = generated(lambda: [np.zeros(length, "f4")] * 40, ps.ArraySpec((None,), "f4"))
    ds = ps.mix([rows, rows], weights=[1, 2], seed=0, stop="first").unbatch().enumerate()
    with pytest.raises(ps.BudgetError, match="too small") as error:
        run(ds, 4096)
    assert run(ds, named(error.value)) % length == 0


def test_windows_that_there_are_none_of_need_no_room() -> None:
    rows = ps.from_arrays((np.arange(3), ["long" * 5000] * 3))
    ds = rows.window(10**6, shift=2).filter(lambda *_: True).shuffle(seed=0)
    with pytest.raises(ps.BudgetError, match="too small") as error:
        run(ds, 1)
    assert named(error.value) < 200_000_000
    assert run(ds, named(error.value)) == 0


def test_a_refusal_in_mid_stream_names_the_longest_row_of_all() -> None:
    ds = SOURCES["generator"](Path()).batch(64)
    message = (
        r"The longest is row 2100 of from_generator\(<lambda>\) with 1 MB\. Write with_options"
    )
    with pytest.raises(ps.BudgetError, match=message):
        run(ds, ds.explain().need_nbytes)


def test_a_spread_tells_the_bytes_of_the_largest_rows_and_never_less() -> None:
    sizes = np.random.default_rng(0).integers(0, 1 << 20, 1000) ** 2
    spread = Spread()
    for part in np.split(sizes, 10):
        spread.add(part)
    exact = np.array(tops_of(sizes))
    found = np.array(spread.tops())
    assert found.shape == exact.shape
    assert (found >= exact).all()
    assert (found <= exact * 1.13).all()
    assert Spread().tops() == tops_of([]) == ()
