"""s3://, against a real S3 API on this machine: every format, listings, ranges, faults, secrets, other processes."""

import io
import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import run
from tests.object_store import SECRET, Store, storing
from tests.sources.test_files import write_every_format

import penstock as ps
from penstock.io.remote.retry import RetryPolicy

for package in ("s3fs", "moto", "boto3"):
    pytest.importorskip(package)

NUMBERS = np.arange(50)
Open = Callable[..., ps.Dataset]


def values(ds: ps.Dataset) -> list[int]:
    return [int(row["y"] if isinstance(row, dict) else row) for row in run(ds)]


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    zarr = pytest.importorskip("zarr")
    folder = tmp_path_factory.mktemp("every format")
    write_every_format(folder, NUMBERS)
    NUMBERS.astype("<i4").tofile(folder / "a.bin")
    ps.from_arrays({"y": NUMBERS}).write(folder / "written", shard_rows=20)
    ps.from_arrays({"y": NUMBERS}).write(folder / "parts", format="tfrecord", shards=3)
    group = zarr.open_group(str(folder / "a.zarr"), mode="w")
    group.create_array("y", data=NUMBERS, chunks=(8,))
    with storing() as store:
        store.put_folder(folder, "data")
        yield store


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for one in server.faults.values():
        one.clear()
    server.requests.clear()
    return server


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits between two tries."""
    monkeypatch.setattr(RetryPolicy, "delays", lambda self: iter([0.0] * (self.num_attempts - 1)))


def files(name: str, *fields: str, **arguments: Any) -> Open:
    return lambda **options: ps.from_files(
        f"s3://bucket/data/{name}", *fields, **arguments, **options
    )


def records(**options: Any) -> ps.Dataset:
    feature = {"y": ps.FixedFeature((), "int64")}
    return ps.from_tfrecord("s3://bucket/data/parts", feature, **options)


KINDS: dict[str, Open] = {
    "npy": files("a.npy"),
    "npy by a glob": files("*.npy"),
    "stored npz": files("a.npz", "y"),
    "deflated npz": files("b.npz", "y"),
    "raw": files("a.bin", format="raw", spec=ps.ArraySpec((), "<i4")),
    "hdf5": files("a.h5", "y"),
    "zarr": files("a.zarr", "y"),
    "parquet": files("a.parquet", "y"),
    "arrow": files("a.feather", "y"),
    "csv": files("a.csv", "y"),
    "written": files("written"),
    "written, by its manifest": files("written/manifest.json"),
    "tfrecord": records,
    "tfrecord read forward": lambda **options: records(index=False, **options),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read(kind: str, store: Store) -> None:
    ds = KINDS[kind](storage_options=store.options)
    assert sorted(values(ds.shuffle(seed=1))) == NUMBERS.tolist()
    assert values(pickle.loads(pickle.dumps(ds)).skip(10).take(20)) == NUMBERS[10:30].tolist()


def test_lines_and_images_are_read(store: Store) -> None:
    assert run(files("a.txt")(storage_options=store.options)) == ["one", "two"]
    image = files("a.png", "image")(storage_options=store.options)
    assert run(image)[0].tolist() == [[[9] * 3] * 5] * 4


def test_credentials_and_the_endpoint_come_from_the_environment(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.env.items():
        monkeypatch.setenv(name, value)
    assert values(files("a.npy")()) == NUMBERS.tolist()
    assert values(records()) == NUMBERS.tolist()
    assert store.requests


def test_data_that_is_public_is_read_without_credentials(store: Store) -> None:
    body = npy(NUMBERS)
    store.client.put_object(Bucket="bucket", Key="public.npy", Body=body, ACL="public-read")
    options = {"endpoint_url": store.endpoint, "anon": True}
    ds = ps.from_files("s3://bucket/public.npy", storage_options=options)
    assert values(ds) == NUMBERS.tolist()
    with pytest.raises(ps.AccessError, match=r"a.npy: the storage refuses it"):
        files("a.npy")(storage_options=options)


def test_lists_globs_and_prefixes_of_more_than_a_page_of_keys_are_found(store: Store) -> None:
    client = store.client
    for number in range(19):
        body = npy(np.array([number], np.int32))
        client.put_object(Bucket="bucket", Key=f"many/{number:04d}.npy", Body=body)
    client.put_object(Bucket="bucket", Key="many/deeper/x.npy", Body=npy(np.array([7], np.int32)))
    client.put_object(Bucket="bucket", Key="many/", Body=b"")  # How consoles make a folder.
    from penstock.io.paths import expand

    folder = expand("s3://bucket/many/", suffixes=(".npy",), storage_options=store.options)
    assert [one.name for one in folder] == [f"{number:04d}.npy" for number in range(19)]
    glob = expand("s3://bucket/many/*.npy", storage_options=store.options)
    assert [one.url for one in glob] == [one.url for one in folder]
    assert all(one.size == 132 and one.etag for one in glob)
    deep = expand("s3://bucket/many/**/*.npy", storage_options=store.options)
    assert "s3://bucket/many/deeper/x.npy" in [one.url for one in deep]
    several = [f"s3://bucket/many/{number:04d}.npy" for number in (5, 3, 9)]
    assert values(ps.from_files(several, storage_options=store.options)) == [5, 3, 9]
    assert values(ps.from_files("s3://bucket/many/001*.npy", storage_options=store.options)) == [
        *range(10, 19)
    ]


def test_a_part_of_a_large_object_is_read_by_itself(store: Store) -> None:
    store.put("large.npy", npy(np.arange(3_000_000)))
    ds = ps.from_files("s3://bucket/large.npy", storage_options=store.options)
    store.sent = 0
    assert values(ds.skip(2_000_000).take(5)) == [*range(2_000_000, 2_000_005)]
    assert 0 < store.sent < 1 << 20


@pytest.mark.usefixtures("hasty")
@pytest.mark.parametrize("fault", ["500", "503", "429", "reset"])
def test_faults_that_pass_are_tried_again(fault: str, store: Store) -> None:
    store.faults["HEAD"].extend([fault] * 4)
    ds = files("a.npy")(storage_options=store.options)
    store.faults["GET"].extend([fault] * 4)
    assert values(ds) == NUMBERS.tolist()
    assert not store.faults["GET"]
    assert not store.faults["HEAD"]


@pytest.mark.usefixtures("hasty")
def test_faults_that_stay_are_an_error_that_says_what_came(store: Store) -> None:
    ds = files("a.npy")(storage_options=store.options)
    store.faults["GET"].extend(["503"] * 6)
    with pytest.raises(ps.ReadError, match=r"s3://bucket/data/a.npy.*failed 6 times.*SlowDown"):
        values(ds)


def test_what_is_wrong_is_said_with_the_object_and_the_cure(store: Store) -> None:
    options = store.options

    def failing(url: str, **more: Any) -> str:
        with pytest.raises(ps.PenstockError) as caught:
            ps.from_files(url, storage_options=options | more)
        shown = "".join(traceback.format_exception(caught.value))
        assert SECRET not in shown
        assert url in str(caught.value)
        return f"{type(caught.value).__name__}: {caught.value}"

    missing = failing("s3://bucket/data/none.npy")
    assert missing.startswith("MissingFileError")
    assert "no such file" in missing
    for url in ("s3://no-such/x.npy", "s3://no-such/x/", "s3://no-such/*.npy"):
        bucket = failing(url)
        assert bucket.startswith("MissingFileError")
        assert "there is no bucket 'no-such'" in bucket
        assert "AWS_ENDPOINT_URL" in bucket
    keyless = failing("s3://bucket/data/a.npy", key=None, secret=None)
    assert keyless.startswith("AccessError")
    assert "AWS_ACCESS_KEY_ID" in keyless
    assert "'anon': True" in keyless
    store.faults["HEAD"].extend(["403", "403"])
    refused = failing("s3://bucket/data/a.npy")
    assert refused.startswith("AccessError")
    assert "refuses it" in refused
    with pytest.raises(ps.DataError, match="'sekret' is not known") as caught:
        files("a.npy")(storage_options=options | {"sekret": SECRET})
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_an_object_that_changes_while_it_is_read_is_an_error(store: Store) -> None:
    store.put("changing.npy", npy(np.arange(1000)))
    ds = ps.from_files("s3://bucket/changing.npy", storage_options=store.options)
    assert values(ds.take(3)) == [0, 1, 2]
    store.put("changing.npy", npy(np.arange(1000)[::-1].copy()))  # Of the same size.
    with pytest.raises(ps.FileChangedError, match=r"changing.npy.*replaced.*Build the dataset"):
        values(ds)
    store.put("changing.npy", npy(np.arange(10)))
    with pytest.raises(ps.FileChangedError, match=r"changing.npy"):
        values(ds)
    store.client.delete_object(Bucket="bucket", Key="changing.npy")
    with pytest.raises(ps.MissingFileError, match=r"changing.npy"):
        values(ds)


def test_a_new_dataset_sees_what_changed_even_while_another_is_open(store: Store) -> None:
    store.put("folder/a.npy", npy(np.arange(3)))
    first = ps.from_files("s3://bucket/folder/", storage_options=store.options)
    with first.stream() as stream:  # Its session, with all that it listed, is shared.
        next(stream)
        store.put("folder/a.npy", npy(np.arange(5)))
        store.put("folder/b.npy", npy(np.arange(2)))
        second = ps.from_files("s3://bucket/folder/", storage_options=store.options)
        assert values(second) == [0, 1, 2, 3, 4, 0, 1]


def test_a_stream_goes_on_from_every_state(store: Store) -> None:
    ds = files("a.npy")(storage_options=store.options).shuffle(seed=2).batch(8)
    whole = [batch.tolist() for batch in ds.stream()]
    for count in range(len(whole)):
        with ds.stream() as stream:
            for _ in range(count):
                next(stream)
            state = stream.state()
        assert [batch.tolist() for batch in ds.stream(state=state)] == whole[count:]


@pytest.mark.parametrize("kind", ["npy", "zarr", "written", "tfrecord"])
def test_secrets_are_never_shown(kind: str, store: Store, tmp_path: Path) -> None:
    ds = KINDS[kind](storage_options=store.options)
    shown = [repr(ds), str(ds.explain()), str(ds.spec), str(vars(ds.node)), repr(ds.node)]
    with ds.stream() as stream:
        list(stream)
        shown += [repr(stream), str(stream.report()), str(stream.state())]
    ds.write(tmp_path / "out")
    shown += [(tmp_path / "out" / "manifest.json").read_text()]
    assert not any(SECRET in text for text in shown)


def test_functions_run_in_worker_processes_on_rows_from_a_store(store: Store) -> None:
    ds = files("a.npy")(storage_options=store.options).map(lambda x: x * 2)
    assert values(ds.with_options(processes=1)) == (2 * NUMBERS).tolist()
    ds.close()


@pytest.mark.slow
def test_ranks_in_processes_of_their_own_share_the_rows(store: Store, tmp_path: Path) -> None:
    ds = files("a.npy")(storage_options=store.options).shuffle(seed=1).batch(10)
    whole = [batch.tolist() for batch in ds.stream()]
    program = (
        "import pickle, sys, json\n"
        "ds = pickle.load(open(sys.argv[1], 'rb'))\n"
        "print(json.dumps([batch.tolist() for batch in ds]))\n"
    )
    parts = []
    for rank in range(2):
        path = tmp_path / f"{rank}.pickle"
        path.write_bytes(pickle.dumps(ds.distribute(rank=rank, world=2)))
        command = [sys.executable, "-c", program, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ)
        parts.append(eval(done.stdout))
    assert [sorted(a + b) for a, b in zip(*parts, strict=True)] == [sorted(one) for one in whole]
