"""with_options(remote_cache=...): a fixed part of remote files, bounded, shared, checked, never stale."""

import gc
import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import run
from tests.object_store import SECRET, Store, storing

import penstock as ps
from penstock.io.location import Location
from penstock.io.remote import block_files, cache
from penstock.io.remote.cache import key_of, open_cache, share_of

for package in ("s3fs", "moto", "boto3"):
    pytest.importorskip(package)

MB = 1 << 20
OWNER = threading.Event()  # Anything that is not collected.
URL = "s3://bucket/data/*.npy"


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with storing() as store:
        for number in range(4):  # 4 files of 2 MB and a little.
            store.put(f"data/{number}.npy", npy(np.arange(64 * 4096).reshape(-1, 64) + number))
        yield store


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    server.requests.clear()
    server.sent = 0
    cache._opened.clear()
    yield server
    cache._opened.clear()


def dataset(tmp_path: Path, room: Any = "64MB", url: str = URL) -> ps.Dataset:
    return ps.from_files(url).with_options(remote_cache=room, scratch=tmp_path)


def epoch(ds: ps.Dataset, number: int = 0) -> tuple[np.ndarray, Any]:
    with ds.stream(epoch=number) as stream:
        found = np.concatenate(list(stream))
        return found, stream.report()


def blocks(tmp_path: Path) -> list[Path]:
    return [one for one in tmp_path.rglob("*-*") if one.is_file() and one.parent.name != "users"]


def on_disk(tmp_path: Path) -> int:
    return sum(one.stat().st_blocks * 512 for one in blocks(tmp_path))


def test_the_second_epoch_of_what_fits_reads_nothing_from_the_network(
    store: Store, tmp_path: Path
) -> None:
    plain = np.sort(np.concatenate(list(ps.from_files(URL).batch(100))), axis=0)
    ds = dataset(tmp_path).shuffle(seed=1).batch(100)
    store.sent = 0
    first, report = epoch(ds, 0)
    size = sum(one.size for one in ds.node.inputs[0].inputs[0].locations)
    assert report.net_nbytes == store.sent == size
    store.sent = 0
    second, again = epoch(ds, 1)
    assert store.sent == again.net_nbytes == 0
    assert again.cache_nbytes >= size - 600
    assert not np.array_equal(first, second)
    assert np.array_equal(np.sort(first, axis=0), plain)
    assert np.array_equal(np.sort(second, axis=0), plain)
    assert "over the network" in str(again)
    assert "(100 %)" in str(ds.explain())


def test_of_data_twice_the_size_half_is_read_each_epoch(store: Store, tmp_path: Path) -> None:
    room = 5 * MB
    ds = dataset(tmp_path, room).shuffle(seed=1).batch(100)
    epoch(ds, 0)
    assert on_disk(tmp_path) <= room
    kept = {one.name for one in blocks(tmp_path)}
    share = share_of(ds.node.inputs[0].inputs[0].locations, room)
    assert share.kept_nbytes > room - 2 * MB
    for number in (1, 2):
        store.sent = 0
        _, report = epoch(ds, number)
        rest = share.total_nbytes - share.kept_nbytes
        assert report.net_nbytes == store.sent
        assert rest - 600 <= store.sent <= rest  # Headers were read when the dataset was made.
        assert {one.name for one in blocks(tmp_path)} == kept
    assert f"({100 * share.kept_nbytes / share.total_nbytes:.0f} %)" in str(ds.explain())
    assert "each epoch fetches the rest" in str(ds.explain())


def test_the_rows_are_the_same_with_and_without_it(store: Store, tmp_path: Path) -> None:
    for room in (0, 3 * MB, "64MB"):
        ds = dataset(tmp_path, room)
        for chain in (ds.skip(1000).take(5000).batch(512), ds.shuffle(seed=3).batch(512)):
            mine, _ = epoch(chain)
            theirs, _ = epoch(chain.with_options(remote_cache=0))
            assert np.array_equal(mine, theirs)


def test_a_changed_object_is_never_served_from_the_cache(store: Store, tmp_path: Path) -> None:
    url = "s3://bucket/changing.npy"
    store.put("changing.npy", npy(np.arange(1000)))
    assert epoch(dataset(tmp_path, url=url).batch(100))[0][0] == 0
    store.put("changing.npy", npy(np.arange(1000) + 7))
    found, report = epoch(dataset(tmp_path, url=url).batch(100))
    assert found[0] == 7
    assert report.net_nbytes > 0


def test_damage_on_disk_is_noticed_and_fetched_again(store: Store, tmp_path: Path) -> None:
    ds = dataset(tmp_path).batch(100)
    good, _ = epoch(ds)
    for number, path in enumerate(sorted(blocks(tmp_path))):
        data = bytearray(path.read_bytes())
        if number % 4 == 0:
            data[len(data) // 2] ^= 1
        elif number % 4 == 1:
            del data[len(data) // 2 :]
        elif number % 4 == 2:
            data[40] ^= 1  # A checksum in the header.
        else:
            data = bytearray()
        path.write_bytes(data)
    store.sent = 0
    found, _ = epoch(ds)
    assert np.array_equal(found, good)
    assert store.sent > 8 * MB
    store.sent = 0
    assert np.array_equal(epoch(ds)[0], good)
    assert store.sent == 0


def test_a_block_of_another_place_is_not_taken_for_one(tmp_path: Path) -> None:
    data = np.arange(1000, dtype=np.uint8)
    block_files.write_block(tmp_path / "x", b"k" * 16, 3, data)
    out = np.zeros(10, np.uint8)
    assert block_files.read_block(tmp_path / "x", b"k" * 16, 3, 1000, [(990, out)])
    assert out.tolist() == data[990:].tolist()
    for key, number, size in ((b"j" * 16, 3, 1000), (b"k" * 16, 4, 1000), (b"k" * 16, 3, 999)):
        block_files.write_block(tmp_path / "x", b"k" * 16, 3, data)
        assert not block_files.read_block(tmp_path / "x", key, number, size, [(0, out)])
        assert not (tmp_path / "x").exists()


def test_a_disk_that_is_full_stops_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "write_block", full)
    found, report = epoch(dataset(tmp_path).batch(100))
    assert len(found) == 4 * 4096
    assert "No space left on device" in str(report)
    monkeypatch.undo()


def test_a_folder_that_can_not_be_made_stops_nothing(store: Store, tmp_path: Path) -> None:
    (tmp_path / "penstock").write_text("a file")
    found, report = epoch(dataset(tmp_path).batch(100))
    assert len(found) == 4 * 4096
    assert "remote_cache keeps no more blocks" in str(report)


def test_other_data_makes_room_and_the_bound_holds(store: Store, tmp_path: Path) -> None:
    room = 5 * MB
    epoch(dataset(tmp_path, room, "s3://bucket/data/[01].npy").batch(100))
    first = {one.name for one in blocks(tmp_path)}
    assert on_disk(tmp_path) > 4 * MB
    gc.collect()
    epoch(dataset(tmp_path, room, "s3://bucket/data/[23].npy").batch(100))
    assert on_disk(tmp_path) <= room
    assert not first <= {one.name for one in blocks(tmp_path)}
    store.sent = 0
    epoch(dataset(tmp_path, room, "s3://bucket/data/[23].npy").batch(100))
    assert store.sent <= 1024  # Headers alone, when the dataset was made.


def test_what_a_living_process_keeps_is_left_to_it(store: Store, tmp_path: Path) -> None:
    room = 5 * MB
    mine = dataset(tmp_path, room, "s3://bucket/data/[01].npy").batch(100)
    epoch(mine)
    first = {one.name for one in blocks(tmp_path)}
    other = "s3://bucket/data/[23].npy"
    for _ in range(2):
        _, report = epoch(dataset(tmp_path, room, other).batch(100))
        assert report.net_nbytes > 3 * MB
        assert first <= {one.name for one in blocks(tmp_path)}
        assert on_disk(tmp_path) <= room
    assert len(list(tmp_path.rglob("users/*"))) == 1
    del mine
    gc.collect()
    assert not list(tmp_path.rglob("users/*"))
    for _ in range(2):
        _, report = epoch(dataset(tmp_path, room, other).batch(100))
    assert report.net_nbytes == 0
    assert on_disk(tmp_path) <= room


def test_blocks_that_a_killed_process_began_are_removed(store: Store, tmp_path: Path) -> None:
    epoch(dataset(tmp_path).batch(100))
    left = blocks(tmp_path)[0].with_name(f"{block_files.FILLING}1-2")
    left.write_bytes(b"begun")
    os.utime(left, (1, 1))
    cache._opened.clear()
    epoch(dataset(tmp_path).batch(100))
    assert not left.exists()


def test_threads_that_want_one_block_fetch_it_once(store: Store, tmp_path: Path) -> None:
    ds = dataset(tmp_path).shuffle(seed=5).batch(16)
    store.sent = 0
    with ds.with_options(threads=8).stream() as stream:
        assert sum(len(batch) for batch in stream) == 4 * 4096
    size = sum(one.size for one in ds.node.inputs[0].inputs[0].locations)
    assert store.sent <= size + 1000


def test_several_processes_share_it(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "ds.pickle"
    path.write_bytes(pickle.dumps(dataset(tmp_path).shuffle(seed=1).batch(100)))
    program = (
        "import pickle, sys\n"
        "ds = pickle.load(open(sys.argv[1], 'rb'))\n"
        "stream = ds.stream(epoch=int(sys.argv[2]))\n"
        "print(sum(int(batch.sum()) for batch in stream), stream.report().net_nbytes)\n"
    )
    command = [sys.executable, "-c", program, str(path)]
    both = [
        subprocess.Popen([*command, str(number)], stdout=subprocess.PIPE, text=True)
        for number in range(2)
    ]
    told = [one.communicate()[0].split() for one in both]
    assert [one.returncode for one in both] == [0, 0]
    assert told[0][0] == told[1][0]
    found, report = epoch(pickle.loads(path.read_bytes()), 2)
    assert report.net_nbytes == 0
    assert int(found.sum()) == int(told[0][0])
    assert not list(tmp_path.rglob(f"{block_files.FILLING}*"))


@pytest.mark.parametrize("kind", ["written", "zarr", "hdf5", "parquet", "tfrecord", "csv"])
def test_every_format_reads_its_second_epoch_from_it(
    store: Store, tmp_path: Path, kind: str
) -> None:
    numbers = np.arange(3000)
    source = ps.from_arrays({"y": numbers, "name": [f"row {n}" for n in numbers]})
    place = tmp_path / "source"
    place.mkdir()
    if kind == "written":
        source.write(place / "x", shard_rows=1000)
    elif kind == "tfrecord":
        source.write(place / "x", format="tfrecord", shards=2)
    elif kind == "zarr":
        zarr = pytest.importorskip("zarr")
        group = zarr.open_group(str(place / "x.zarr"), mode="w")
        group.create_array("y", data=numbers, chunks=(500,))
    elif kind == "hdf5":
        h5py = pytest.importorskip("h5py")
        with h5py.File(place / "x.h5", "w") as file:
            file.create_dataset("y", data=numbers, chunks=(500,), compression="gzip")
    elif kind == "parquet":
        pa = pytest.importorskip("pyarrow")
        pytest.importorskip("pyarrow.parquet").write_table(
            pa.table({"y": numbers}), place / "x.parquet"
        )
    else:
        (place / "x.csv").write_text("y\n" + "\n".join(map(str, numbers)) + "\n")
    store.put_folder(place, kind)
    (name,) = [one.name for one in place.iterdir()]
    opened = ps.from_tfrecord if kind == "tfrecord" else ps.from_files
    ds = opened(f"s3://bucket/{kind}/{name}").with_options(
        remote_cache="64MB", scratch=tmp_path, memory="256MB"
    )
    first = [int(row["y"]) for row in run(ds)]
    store.sent = 0
    with ds.stream() as stream:
        second = [int(row["y"]) for row in stream]
        report = stream.report()
    assert first == second == numbers.tolist()
    assert store.sent == report.net_nbytes == 0
    assert report.cache_nbytes > 0
    skipping = ds.with_options(on_error="skip")
    assert [int(row["y"]) for row in run(skipping)] == first
    assert store.sent == 0


def test_nothing_on_disk_shows_a_secret(store: Store, tmp_path: Path) -> None:
    ds = ps.from_files(URL, storage_options=store.options).batch(100)
    epoch(ds.with_options(remote_cache="64MB", scratch=tmp_path))
    for path in tmp_path.rglob("*"):
        assert SECRET not in str(path)
        assert not path.is_file() or SECRET.encode() not in path.read_bytes()
    root = tmp_path / "penstock" / "remote-blocks"
    assert all(one.stat().st_mode & 0o077 == 0 for one in blocks(tmp_path))
    assert root.is_dir()


def test_it_lives_in_the_users_cache_directory_if_no_scratch_is_named(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ds = ps.from_files("s3://bucket/data/0.npy").with_options(remote_cache="64MB").batch(100)
    epoch(ds)
    assert blocks(tmp_path)
    assert str(tmp_path) in str(ds.explain())


@pytest.mark.parametrize("size", [-1, "much", True, 1.5])
def test_sizes_that_are_none_are_refused(size: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="remote_cache is the bytes to keep"):
        ps.from_arrays(np.arange(3)).with_options(remote_cache=size)


def test_without_urls_there_is_nothing_to_keep() -> None:
    ds = ps.from_arrays(np.arange(3)).with_options(remote_cache="1GB")
    assert "remote_cache keeps nothing" in str(ds.explain())
    assert [int(x) for x in ds] == [0, 1, 2]
    assert "remote_cache" not in str(ds.with_options(remote_cache=0).explain())


def files(count: int, size: int) -> list[Location]:
    return [Location(f"s3://b/{n}", size + n, etag=str(n)) for n in range(count)]


@pytest.mark.parametrize(("count", "size"), [(3, 50 * MB), (500, 30_000), (1, 10 * MB)])
def test_the_share_fills_the_room_and_never_more(count: int, size: int) -> None:
    some = files(count, size)
    total = sum(one.size for one in some)
    last = 0
    for room in range(0, int(1.2 * total), total // 7):
        share = share_of(some, room)
        assert share.disk_nbytes <= room or share.kept_nbytes == 0
        assert share.limit >= last  # What a smaller room keeps, a larger one keeps, too.
        last = share.limit
        if share.kept_nbytes < total:
            assert share.disk_nbytes > room - 2 * min(size, MB) - 8192
    assert share_of(some, 2 * total + 8192 * count).kept_nbytes == total


def test_the_key_follows_the_version_and_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    base = Location("s3://b/x", 10, etag="1")
    others = [
        Location("s3://b/y", 10, etag="1"),
        Location("s3://b/x", 11, etag="1"),
        Location("s3://b/x", 10, etag="2"),
        Location("s3://b/x", 10, etag="1", storage_options={"endpoint_url": "http://other"}),
    ]
    keys = {key_of(base), *map(key_of, others)}
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://another")
    keys.add(key_of(base))
    assert len(keys) == 6


def test_files_without_a_version_are_not_kept(tmp_path: Path) -> None:
    kept = open_cache(tmp_path, files(1, 10), 1 << 30, OWNER)
    assert kept.of(files(1, 10)[0]) is not None
    assert kept.of(Location("s3://b/0", 10)) is None
    assert kept.of(Location("s3://b/0", 10, etag="another")) is None


def test_a_thread_waits_for_the_block_that_another_fetches(tmp_path: Path) -> None:
    one = open_cache(tmp_path, files(1, 10), 1 << 30, OWNER).of(files(1, 10)[0])
    assert one is not None
    with one.claimed([0]) as (mine, others):
        assert (mine, others) == ([0], [])
        with one.claimed([0]) as (theirs, waiting):
            assert (theirs, waiting) == ([], [0])
        assert not one.wait(0, 0.0)
        done = threading.Thread(target=one.wait, args=(0, 60.0))
        done.start()
    done.join()
    assert one.wait(0, 0.0)
