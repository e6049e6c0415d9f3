"""W15: CSV and JSON Lines of 11 columns in batches of 32, in file order and shuffled; and lines of text."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import numpy as np
from harness import Case, Contender, Round, times_as_fast
from measure import throughput

NUM_ROWS = 400_000
COLUMNS = (*(f"x{number}" for number in range(10)), "y")
BATCH_SIZE = 32
CHUNK_ROWS = 16_384  # Of pandas: smaller ones are slower, larger ones no faster.
TEXT_NBYTES = 90_000_000
LINES = {"short": 90, "long": 1000}


def prepare_csv(directory: Path) -> None:
    """Write ten columns of numbers with four digits, and a label that is the number of the row mod 10."""
    x = np.random.default_rng(0).random((NUM_ROWS, len(COLUMNS) - 1))
    with (directory / "rows.csv").open("w") as file:
        file.write(",".join(COLUMNS) + "\n")
        for number, row in enumerate(x.tolist()):
            file.write(",".join(f"{value:.4f}" for value in row) + f",{number % 10}\n")


def prepare_json(directory: Path) -> None:
    """Write the same rows as objects, one a line."""
    x = np.random.default_rng(0).random((NUM_ROWS, len(COLUMNS) - 1))
    with (directory / "rows.jsonl").open("w") as file:
        for number, row in enumerate(x.tolist()):
            values = "".join(f'"x{place}": {value:.4f}, ' for place, value in enumerate(row))
            file.write(f'{{{values}"y": {number % 10}}}\n')


def prepare_text(directory: Path) -> None:
    """Write lines of 90 and of 1,000 bytes, each with its number."""
    for name, nbytes in LINES.items():
        words = "the quick brown fox jumps over the lazy dog, and " * (nbytes // 40 + 1)
        with (directory / f"{name}.txt").open("w") as file:
            for number in range(TEXT_NBYTES // nbytes):
                file.write(f"{number} {words}"[: nbytes - 1] + "\n")


def _check_csv(batches: Iterable) -> None:
    """Raise unless all labels came, in any order."""
    labels = np.concatenate([_labels(batch) for batch in batches])
    counts = np.bincount(labels.astype(np.int64), minlength=10)
    assert counts.tolist() == [NUM_ROWS // 10] * 10, counts


def _labels(batch) -> np.ndarray:
    if isinstance(batch, np.ndarray):
        return batch[:, -1]
    last = batch["y"] if isinstance(batch, dict) else batch[-1]
    return np.asarray(last).reshape(-1)


def _csv(start, *, at_most: float | None = None) -> Round:
    return throughput(
        start, num_rows=NUM_ROWS, batch_size=BATCH_SIZE, check=_check_csv, at_most=at_most
    )


def _dataset(directory: Path, name: str):
    import penstock as ps

    os.environ["XDG_CACHE_HOME"] = str(directory)  # The index goes away with the data.
    return ps.from_files(directory / name, spec=dict.fromkeys(COLUMNS, "float32"))


def _penstock(directory: Path, *, name: str = "rows.csv") -> Round:
    return _csv(_dataset(directory, name).batch(BATCH_SIZE).__iter__)


def _penstock_shuffled(directory: Path, *, name: str = "rows.csv") -> Round:
    return _csv(_dataset(directory, name).shuffle(seed=0).batch(BATCH_SIZE).__iter__)


def _pyarrow_json(directory: Path) -> Round:
    import pyarrow as pa
    import pyarrow.json

    def epoch() -> Iterable:
        schema = pa.schema([(name, pa.float32()) for name in COLUMNS])
        options = pa.json.ParseOptions(explicit_schema=schema)
        for record_batch in pa.json.read_json(
            directory / "rows.jsonl", parse_options=options
        ).to_batches():
            columns = [column.to_numpy() for column in record_batch.columns]
            for start in range(0, len(columns[0]), BATCH_SIZE):
                yield [column[start : start + BATCH_SIZE] for column in columns]

    return _csv(epoch)


def _pandas(directory: Path) -> Round:
    import pandas as pd

    def epoch() -> Iterable:
        types = dict.fromkeys(COLUMNS, "float32")
        path = directory / "rows.csv"
        for frame in pd.read_csv(path, chunksize=CHUNK_ROWS, dtype=types, engine="c"):
            rows = frame.to_numpy(np.float32)
            for start in range(0, len(rows), BATCH_SIZE):
                yield rows[start : start + BATCH_SIZE]

    return _csv(epoch)


def _pyarrow(directory: Path) -> Round:
    import pyarrow as pa
    import pyarrow.csv

    def epoch() -> Iterable:
        types = pa.csv.ConvertOptions(column_types=dict.fromkeys(COLUMNS, pa.float32()))
        with pa.csv.open_csv(directory / "rows.csv", convert_options=types) as reader:
            for record_batch in reader:
                columns = [column.to_numpy() for column in record_batch.columns]
                for start in range(0, len(columns[0]), BATCH_SIZE):
                    yield [column[start : start + BATCH_SIZE] for column in columns]

    return _csv(epoch)


def _tf_csv(directory: Path) -> Round:
    import tensorflow as tf

    rows = tf.data.experimental.CsvDataset(
        str(directory / "rows.csv"), [tf.float32] * len(COLUMNS), header=True
    )
    batches = rows.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return _csv(batches.as_numpy_iterator, at_most=5)


def _tf_make_csv(directory: Path) -> Round:
    import tensorflow as tf

    batches = tf.data.experimental.make_csv_dataset(
        str(directory / "rows.csv"),
        BATCH_SIZE,
        column_defaults=[tf.float32] * len(COLUMNS),
        num_epochs=1,
        shuffle=False,
        prefetch_buffer_size=tf.data.AUTOTUNE,
    )
    return _csv(batches.as_numpy_iterator, at_most=5)


def _text(start, nbytes: int, *, at_most: float | None = None) -> Round:
    num_rows = TEXT_NBYTES // nbytes
    return throughput(
        start, num_rows=num_rows, batch_size=BATCH_SIZE, scale=nbytes * 1e-9, at_most=at_most
    )


def _penstock_text(directory: Path, *, name: str) -> Round:
    import penstock as ps

    os.environ["XDG_CACHE_HOME"] = str(directory)
    ds = ps.from_files(directory / f"{name}.txt").batch(BATCH_SIZE)
    assert len(ds) == -(-(TEXT_NBYTES // LINES[name]) // BATCH_SIZE)
    return _text(ds.__iter__, LINES[name])


def _python_lines(directory: Path, *, name: str) -> Round:
    def epoch() -> Iterable:
        batch: list[str] = []
        with (directory / f"{name}.txt").open() as file:
            for line in file:
                batch.append(line.rstrip("\n"))
                if len(batch) == BATCH_SIZE:
                    yield batch
                    batch = []

    return _text(epoch, LINES[name])


def _tf_text(directory: Path, *, name: str) -> Round:
    import tensorflow as tf

    lines = tf.data.TextLineDataset(str(directory / f"{name}.txt"))
    batches = lines.batch(BATCH_SIZE).prefetch(tf.data.AUTOTUNE)
    return _text(batches.as_numpy_iterator, LINES[name], at_most=5)


def _bytes_alone(directory: Path, *, name: str) -> Round:
    path = directory / f"{name}.txt"

    def epoch() -> Iterable:
        with path.open("rb", buffering=0) as file:
            while block := file.read(1 << 20):
                yield block

    return _text(epoch, LINES[name])


_PEERS = (
    Contender("pandas", "read_csv(chunksize=16384, dtype=float32), batches of its arrays", _pandas),
    Contender("pyarrow", "csv.open_csv(column_types=float32), batches of its columns", _pyarrow),
    Contender("tf.data, CsvDataset", "CsvDataset.batch(32).prefetch(AUTOTUNE)", _tf_csv),
    Contender("tf.data, make_csv_dataset", "make_csv_dataset(shuffle=False)", _tf_make_csv),
)


def _text_case(name: str) -> Case:
    nbytes = LINES[name]
    return Case(
        name=f"w15-text-{name}",
        title=f"text, lines of {nbytes:,} bytes, from the page cache, batches of 32 str",
        unit="GB/s",
        prepare=prepare_text,
        contenders=(
            Contender("penstock", "from_files(path).batch(32)", partial(_penstock_text, name=name)),
            Contender(
                "bytes alone",
                "the bare limit: read the file, decode nothing",
                partial(_bytes_alone, name=name),
            ),
            Contender("Python", "for line in file, lists of 32", partial(_python_lines, name=name)),
            Contender(
                "tf.data",
                "TextLineDataset.batch(32).prefetch(AUTOTUNE)",
                partial(_tf_text, name=name),
            ),
        ),
        bars=(times_as_fast(0.5, "bytes alone"),),
    )


CASES = (
    Case(
        name="w15-csv",
        title=f"CSV, {NUM_ROWS:,} rows of 11 columns as float32, in file order, batch 32",
        unit="rows/s",
        prepare=prepare_csv,
        contenders=(Contender("penstock", "from_files(path, spec).batch(32)", _penstock), *_PEERS),
        bars=(times_as_fast(0.8, "pandas"),),
    ),
    Case(
        name="w15-csv-shuffled",
        title=f"CSV, {NUM_ROWS:,} rows of 11 columns as float32, shuffled (the peers are not), batch 32",
        unit="rows/s",
        prepare=prepare_csv,
        contenders=(
            Contender(
                "penstock", "from_files(path, spec).shuffle(seed=0).batch(32)", _penstock_shuffled
            ),
            *_PEERS[:1],
        ),
        bars=(times_as_fast(0.4, "pandas"),),
    ),
    Case(
        name="w15-jsonl",
        title=f"JSON Lines, {NUM_ROWS:,} rows of 11 numbers as float32, in file order, batch 32",
        unit="rows/s",
        prepare=prepare_json,
        contenders=(
            Contender(
                "penstock",
                "from_files(path, spec).batch(32)",
                partial(_penstock, name="rows.jsonl"),
            ),
            Contender(
                "penstock, shuffled",
                "from_files(path, spec).shuffle(seed=0).batch(32)",
                partial(_penstock_shuffled, name="rows.jsonl"),
            ),
            Contender(
                "pyarrow",
                "json.read_json(explicit_schema), whole, batches of its columns",
                _pyarrow_json,
            ),
        ),
        bars=(times_as_fast(1.0, "pyarrow"),),
    ),
    *map(_text_case, LINES),
)
