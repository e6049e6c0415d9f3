"""How much one rank reads, writes and holds, and what explain() says of it."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import penstock as ps

NUM_ROWS = 100_003
WIDTH = 400
NBYTES = NUM_ROWS * WIDTH
WINDOW = 4 << 20


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reading") / "x.npy"
    x = np.zeros((NUM_ROWS, WIDTH // 8), "int64")
    x[:, 0] = np.arange(NUM_ROWS)
    np.save(path, x)
    return path


def counted(ds: ps.Dataset) -> tuple[int, int]:
    """The bytes that one epoch reads and writes, as the kernel counts them."""
    before = _counts()
    # One thread: with windows as small as two blocks, a thread that is late reads a window again.
    with ds.with_options(threads=1).stream() as stream:
        for _ in stream:
            pass
    after = _counts()
    return after["rchar"] - before["rchar"], after["wchar"] - before["wchar"]


def _counts() -> dict[str, int]:
    lines = Path("/proc/self/io").read_text().splitlines()
    return {name: int(value) for name, value in (line.split(": ") for line in lines)}


def notes(ds: ps.Dataset) -> str:
    return "\n".join(ds.explain().notes)


@pytest.mark.parametrize("rest", ["", "map", "take", "zip", "repeat", "passes"])
@pytest.mark.parametrize("world", [2, 3, 4, 8, 12])
def test_a_windowed_shuffle_reads_the_blocks_of_its_rank(file: Path, world: int, rest: str) -> None:
    ds = ps.from_files(file).shuffle(window=WINDOW)
    if rest == "map":
        ds = ds.map(lambda x: x + 1, spec=ps.ArraySpec((50,), "int64")).with_options(processes=0)
    elif rest == "take":
        ds = ds.skip(5).take(NUM_ROWS - 10)
    elif rest == "zip":
        ds = ps.zip(ds, ds)
    elif rest == "repeat":  # 100,003 is prime: each pass of a rank has other rows than its first.
        ds = ds.repeat(2)
    elif rest == "passes":
        ds = ds.repeat().take(2 * NUM_ROWS)
    files = 2 if rest in ("zip", "repeat", "passes") else 1
    ds = ds.batch(96).distribute(rank=world - 1, world=world, uneven="pad")
    nbytes, _ = counted(ds)
    assert nbytes <= files * (1.1 * NBYTES / world + WINDOW)
    assert f"1/{world} of the data" in notes(ds)


def test_a_world_that_shares_a_divisor_with_the_lanes_reads_as_much_as_that_allows(
    file: Path,
) -> None:
    ds = ps.from_files(file).shuffle(window=WINDOW).batch(100)
    nbytes, _ = counted(ds.distribute(rank=3, world=10, uneven="drop"))
    assert nbytes <= 1.1 * NBYTES / 2 + WINDOW
    assert "1/2 of the data" in notes(ds.distribute(rank=3, world=10, uneven="drop"))
    ds = ds.distribute(rank=3, world=5, uneven="drop")
    assert counted(ds)[0] >= NBYTES * 0.99
    assert "every rank reads all data" in notes(ds)


def test_a_window_that_holds_all_is_read_by_every_rank(file: Path) -> None:
    ds = ps.from_files(file).shuffle().batch(96).distribute(rank=0, world=4, uneven="drop")
    assert "every rank reads all of it" in notes(ds)


@pytest.mark.parametrize("world", [2, 5, 8])
def test_an_exact_shuffle_reads_all_and_scatters_its_own(file: Path, world: int) -> None:
    ds = ps.from_files(file).shuffle(exact=True, window=WINDOW).batch(80)
    ds = ds.distribute(rank=1, world=world, uneven="pad")
    nbytes, written = counted(ds)
    assert NBYTES * 0.99 / world <= written <= NBYTES * 1.01 / world + 4096
    assert nbytes <= NBYTES * (1 + 1 / world) * 1.02
    assert f"writes its own 1/{world} to scratch" in notes(ds)


def test_an_exact_shuffle_of_several_passes_scatters_its_own_of_each(file: Path) -> None:
    ds = ps.from_files(file).shuffle(exact=True, window=WINDOW)
    passes = ds.repeat(2).batch(80).distribute(rank=1, world=4, uneven="drop")
    assert counted(passes)[1] <= 2 * NBYTES * 1.01 / 4 + 4096
    shard = ds.shard(2, 0).batch(80).distribute(rank=1, world=4, uneven="drop")
    assert counted(shard)[1] <= NBYTES * 1.01 / 8 + 4096
    assert "writes its own 1/8 to scratch" in notes(shard)


@pytest.mark.parametrize(
    "between",
    [
        lambda ds: ps.mix([ds, ds], seed=0),
        lambda ds: ds.window(2),
        lambda ds: ds.batch(7).unbatch(),
        lambda ds: ds.shuffle(seed=1, window=WINDOW),
    ],
)
def test_a_stage_between_that_needs_all_blocks_is_told(
    file: Path, between: Callable[[ps.Dataset], ps.Dataset]
) -> None:
    ds = between(ps.from_files(file).shuffle(window=WINDOW)).batch(96)
    found = notes(ds.distribute(rank=1, world=4, uneven="drop"))
    assert "a stage between shuffle and batch needs rows of all blocks" in found, found


def test_what_is_read_of_each_input_is_told_with_its_name(file: Path) -> None:
    parts = [ps.from_files(file).shuffle(window=WINDOW), ps.from_files(file)]
    for joined in (ps.concatenate(*parts), ps.zip(*parts, strict=False)):
        ds = joined.batch(96).distribute(rank=1, world=4, uneven="drop")
        found = notes(ds)
        assert re.search(r"shuffle\(.*\): this rank loads .* 1/4 of the data", found), found
        assert re.search(r"from_files\(.*\): in the order of the files .* all bytes", found), found
        assert 1.2 * NBYTES <= counted(ds)[0] <= 1.35 * NBYTES


def test_a_cache_is_told_as_what_it_is(file: Path, tmp_path: Path) -> None:
    ds = ps.from_files(file)
    flow = ds.filter(lambda x: True)
    for chain, text in [
        (flow.cache(tmp_path / "a").shuffle(), "one rank fills the cache"),
        (flow.cache().shuffle(), "keeps them in its memory; .cache(path) is filled by one rank"),
        (ds.cache().shuffle(), "every rank reads all rows once, and keeps them in its memory"),
        (ds.cache(tmp_path / "b"), "one rank reads all rows to fill the cache"),
    ]:
        found = notes(chain.batch(96).distribute(rank=1, world=4, uneven="drop"))
        assert text in found, found


@pytest.mark.parametrize("world", [2, 4, 5])
@pytest.mark.parametrize("fields", [1, 3])
@pytest.mark.parametrize("width", [100, 9_000, 17_000, 70_000])
def test_what_is_told_of_rows_in_the_order_of_files_is_what_is_read(
    tmp_path: Path, width: int, fields: int, world: int
) -> None:
    rows = 12_000_000 // width // 60 * 60
    for number in range(fields):
        np.save(tmp_path / f"{number}.npy", np.zeros((rows, width), "u1"))
    parts = [ps.from_files(tmp_path / f"{number}.npy") for number in range(fields)]
    ds = ps.zip(*parts) if fields > 1 else parts[0]
    ds = ds.batch(60).distribute(rank=1, world=world)
    share = counted(ds)[0] / (fields * rows * width)
    found = notes(ds)
    if "reads all bytes" in found:
        assert 0.9 < share < 1.1, found
    elif f"from 1/{world} to all" in found:
        assert 0.9 / world < share < 1.1, found
    else:
        assert f"this rank reads 1/{world} of the bytes" in found, found
        assert share < 1.1 / world, found
    is_cure_told = "in the order of the files" in found and 192 % world == 0
    assert (f"shuffle() of more than a window of rows reads 1/{world}." in found) == is_cure_told


def test_in_the_order_of_the_file_small_rows_are_read_with_those_between_them(file: Path) -> None:
    ds = ps.from_files(file).batch(96).distribute(rank=1, world=4, uneven="drop")
    assert "in the order of the files this rank reads all bytes: rows of 400 B" in notes(ds)
    assert counted(ds)[0] <= NBYTES * 1.05


def test_in_the_order_of_the_file_large_rows_are_read_one_by_one(tmp_path: Path) -> None:
    np.save(tmp_path / "large.npy", np.zeros((600, 80_000), "u1"))
    for world in (2, 4, 8):
        ds = ps.from_files(tmp_path / "large.npy").batch(24).distribute(rank=1, world=world)
        assert counted(ds)[0] <= 1.1 * 48_000_000 / world
        assert f"reads 1/{world} of the bytes" in notes(ds)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda ds: ds.filter(lambda x: True).batch(96), "every rank reads and makes all of them"),
        (lambda ds: ds.batch(96).map(lambda x: x), r"works on whole global batches"),
        (lambda ds: ds.padded_batch(96), r"padded_batch\(96\) works on whole global batches"),
        (lambda ds: ds.batch(96), "67 rows of a last global batch are filled up to 68 with repeats of weight 0"),
    ],
)  # fmt: skip
def test_explain_tells_what_every_rank_does_besides_its_part(
    file: Path, build: Callable[[ps.Dataset], ps.Dataset], text: str
) -> None:
    ds = build(ps.from_files(file))
    found = notes(ds.distribute(rank=1, world=4, uneven="pad"))
    assert re.search(text, found), found


def test_explain_tells_how_many_rows_are_dropped(file: Path) -> None:
    ds = ps.from_files(file).batch(96).distribute(rank=0, world=2, uneven="drop")
    assert "67 rows of a last global batch that is not whole are left out" in notes(ds)


def test_the_windows_of_a_rank_take_less_memory(tmp_path: Path) -> None:
    # 4 GB, none of them on disk.
    np.lib.format.open_memmap(tmp_path / "x.npy", "w+", "f4", (10**7, 100))
    ds = ps.from_files(tmp_path / "x.npy").shuffle().batch(192)
    needs = {
        world: ds.distribute(rank=0, world=world, uneven="drop").explain().need_nbytes
        for world in (1, 2, 4, 64)
    }
    assert needs[2] < 0.7 * needs[1]
    assert needs[4] < 0.5 * needs[1]
    assert needs[64] < 0.5 * needs[1]
