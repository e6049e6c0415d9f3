"""What it costs to compare checksums: W5 with 2 GB of its rows, as shards that `ds.write` made."""

from __future__ import annotations

import time
from pathlib import Path

import big_file
import numpy as np
from harness import Bar, Case, Contender, Round, times_as_fast
from measure import Sample, device_bytes, forget_pages, throughput

NUM_ROWS = 5_000_000
NBYTES = NUM_ROWS * big_file.ROW_NBYTES
FOLDER = "shards"
MEMORY = 300 << 20
LEAST = 0.95  # What may be lost is a twentieth.


def prepare(directory: Path) -> None:
    """Write the shards, by way of a plain file."""
    import penstock as ps

    plain = directory / "plain.npy"
    shape = (NUM_ROWS, big_file.NUM_FEATURES)
    x = np.lib.format.open_memmap(plain, "w+", np.float32, shape)
    random = np.random.default_rng(0)
    for start in range(0, NUM_ROWS, big_file.STRIDE):
        stop = start + big_file.STRIDE
        x[start:stop] = random.random((big_file.STRIDE, big_file.NUM_FEATURES), np.float32)
    del x
    ps.from_files(plain).write(directory / FOLDER)
    plain.unlink()


def _dataset(directory: Path, *, shuffle: bool, verify: bool):
    import penstock as ps

    ds = ps.from_files(directory / FOLDER, verify=verify)
    return (ds.shuffle(seed=0) if shuffle else ds).batch(big_file.BATCH_SIZE)


def _reads_all(batches) -> None:
    """Raise unless every row comes."""
    num_rows = sum(len(batch) for batch in batches)
    if num_rows != NUM_ROWS:
        raise AssertionError(f"{num_rows} rows came")


def _cold(directory: Path, *, shuffle: bool, verify: bool) -> Round:
    _reads_all(_dataset(directory, shuffle=shuffle, verify=verify))

    def one_round() -> Sample:
        ds = _dataset(directory, shuffle=shuffle, verify=verify)
        for path in (directory / FOLDER).iterdir():
            forget_pages(path)
        before = device_bytes()
        began = time.perf_counter()
        for _ in ds:
            pass
        took = time.perf_counter() - began
        if device_bytes() - before < 0.95 * NBYTES:
            raise RuntimeError("not a cold read: some of it did not come from the device")
        return Sample(NBYTES / took)

    return one_round


def _warm(directory: Path, *, shuffle: bool, verify: bool) -> Round:
    return throughput(
        _dataset(directory, shuffle=shuffle, verify=verify).__iter__,
        num_rows=NUM_ROWS,
        batch_size=big_file.BATCH_SIZE,
        check=_reads_all,
        scale=big_file.ROW_NBYTES,
    )


def _case(name: str, *, shuffle: bool, is_cold: bool, bars: tuple[Bar, ...] = ()) -> Case:
    def contender(contender_name: str, *, verify: bool) -> Contender:
        start = _cold if is_cold else _warm
        call = f"from_files(folder{'' if verify else ', verify=False'})"
        return Contender(
            contender_name,
            f"{call}{'.shuffle(seed=0)' if shuffle else ''}.batch(32)",
            lambda directory: start(directory, shuffle=shuffle, verify=verify),
            memory=MEMORY if is_cold else None,
        )

    where = f"from the disk, in {MEMORY >> 20} MB" if is_cold else "in the page cache"
    how = "shuffled" if shuffle else "forward"
    return Case(
        name=name,
        title=f"2 GB of shards of 100 float32 a row, {where}, {how}, batch 32",
        unit="B/s",
        rounds=8,
        prepare=prepare,
        contenders=(contender("penstock", verify=True), contender("verify=False", verify=False)),
        bars=bars,
    )


CASES = (
    _case("checks-w5", shuffle=True, is_cold=True, bars=(times_as_fast(LEAST, "verify=False"),)),
    # Without a bar: from the page cache rows come nearly as fast as memory is copied.
    _case("checks-warm-shuffled", shuffle=True, is_cold=False),
    _case("checks-warm-forward", shuffle=False, is_cold=False),
)
