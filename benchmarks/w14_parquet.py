"""W14, Parquet: 500,000 rows of 20 numbers and a sorted label, batches of 1,024."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, fact_within, times_as_fast
from measure import Sample, throughput

NUM_ROWS = 500_000
NUM_FEATURES = 20
NUM_LABELS = 100
BATCH_SIZE = 1024
NAME = "table.parquet"


def _columns() -> dict[str, np.ndarray]:
    """Return float32, float64, int32 and int64 in turn; c3 holds the row's number."""
    rng = np.random.default_rng(0)
    makers = (
        lambda: rng.random(NUM_ROWS, np.float32),
        lambda: rng.random(NUM_ROWS),
        lambda: rng.integers(0, 1000, NUM_ROWS).astype(np.int32),
        lambda: rng.integers(0, 1 << 40, NUM_ROWS),
    )
    columns = {f"c{number}": makers[number % 4]() for number in range(NUM_FEATURES)}
    columns["c3"] = np.arange(NUM_ROWS)
    columns["label"] = (np.arange(NUM_ROWS) * NUM_LABELS // NUM_ROWS).astype(np.int32)
    return columns


def _prepare(group_rows: int | None) -> Callable[[Path], None]:
    def prepare(directory: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        # As pyarrow writes by default: Snappy, dictionaries, row groups of 1,048,576 rows.
        pq.write_table(pa.table(_columns()), directory / NAME, row_group_size=group_rows)

    return prepare


def _round(start: Callable[[], Iterable], check: Callable | None = None) -> Round:
    return throughput(start, num_rows=NUM_ROWS, batch_size=BATCH_SIZE, check=check)


def _is_every_row(batches: Iterable) -> dict[str, float]:
    """Raise unless every row comes once, with its label; return how labels spread over batches."""
    seen = np.zeros(NUM_ROWS, bool)
    spread, num_batches = 0.0, 0
    for batch in batches:
        rows, labels = batch["c3"], batch["label"]
        if not np.array_equal(rows * NUM_LABELS // NUM_ROWS, labels):
            raise AssertionError("rows and labels do not belong together")
        seen[rows] = True
        if len(rows) == BATCH_SIZE:
            counts = np.bincount(labels, minlength=NUM_LABELS)
            spread += float(((counts - BATCH_SIZE / NUM_LABELS) ** 2).sum())
            num_batches += 1
    if not seen.all():
        raise AssertionError(f"{seen.sum()} of {NUM_ROWS} rows came")
    # The variance of a label's count in a batch of rows drawn without putting them back.
    share = 1 / NUM_LABELS
    uniform = BATCH_SIZE * share * (1 - share) * (NUM_ROWS - BATCH_SIZE) / (NUM_ROWS - 1)
    return {"label_spread": float(np.sqrt(spread / num_batches / NUM_LABELS / uniform))}


def penstock(directory: Path) -> Round:
    import penstock as ps

    ds = ps.from_files(directory / NAME).shuffle(seed=0).batch(BATCH_SIZE)
    facts = _is_every_row(ds)
    timed = _round(ds.__iter__)

    def one_round() -> Sample:
        sample = timed()
        return Sample(sample.value, {**sample.facts, **facts})

    return one_round


def penstock_in_order(directory: Path) -> Round:
    import penstock as ps

    return _round(ps.from_files(directory / NAME).batch(BATCH_SIZE).__iter__, _is_every_row)


def _as_numpy(batches: Iterable):
    for batch in batches:
        yield {
            name: column.to_numpy()
            for name, column in zip(batch.schema.names, batch.columns, strict=True)
        }


def pyarrow_iter_batches(directory: Path) -> Round:
    import pyarrow.parquet as pq

    def epoch():
        with pq.ParquetFile(directory / NAME) as file:
            yield from _as_numpy(file.iter_batches(batch_size=BATCH_SIZE))

    return _round(epoch, _is_every_row)


def pyarrow_dataset(directory: Path) -> Round:
    import pyarrow.dataset as pads

    dataset = pads.dataset(directory / NAME)
    return _round(lambda: _as_numpy(dataset.to_batches(batch_size=BATCH_SIZE)), _is_every_row)


def _case(name: str, group_rows: int | None) -> Case:
    groups = "one row group" if group_rows is None else f"row groups of {group_rows:,}"
    return Case(
        name=name,
        title=f"Parquet, {NUM_ROWS:,} rows of {NUM_FEATURES + 1} columns in {groups}, batch 1,024",
        unit="rows/s",
        prepare=_prepare(group_rows),
        contenders=(
            Contender("penstock", "from_files(path).shuffle(seed=0).batch(1024)", penstock),
            Contender("penstock, in file order", "from_files(path).batch(1024)", penstock_in_order),
            Contender(
                "pyarrow, to_batches",
                "dataset(path).to_batches(batch_size=1024), to_numpy a column: in file order",
                pyarrow_dataset,
            ),
            Contender(
                "pyarrow, iter_batches",
                "ParquetFile.iter_batches(batch_size=1024), to_numpy a column: in file order",
                pyarrow_iter_batches,
            ),
        ),
        bars=(
            times_as_fast(0.7, "pyarrow, to_batches"),
            times_as_fast(0.7, "pyarrow, iter_batches"),
            fact_within(
                "label_spread",
                "the label mix of a batch spreads at most 1.1x as much as in uniform draws",
                unit="x",
                at_most=1.1,
            ),
        ),
    )


CASES = (
    _case("w14-parquet", None),
    _case("w14-parquet-50k", 50_000),
    _case("w14-parquet-10k", 10_000),
)
