"""write("s3://..."): whole or refused, whatever happens, against a real S3 API on this machine."""

import os
import pickle
import subprocess
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.object_store import SECRET, Store, storing

import penstock as ps
from penstock.io.remote import store as remote_store
from penstock.io.remote.retry import RetryPolicy

for package in ("s3fs", "moto", "boto3"):
    pytest.importorskip(package)

ROWS = {"x": np.arange(100).reshape(50, 2), "name": [f"row {number}" for number in range(50)]}
NUMBERS = {"y": np.arange(50)}


@pytest.fixture(scope="module")
def server() -> Iterator[Store]:
    with storing() as store:
        yield store


@pytest.fixture
def store(server: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    for name, value in server.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setattr(RetryPolicy, "delays", lambda self: iter([0.0] * (self.num_attempts - 1)))
    server.clear()
    return server


def rows(ds: ps.Dataset) -> list[Any]:
    return [(one["x"].tolist(), one["name"]) for one in run(ds)]


def numbers(ds: ps.Dataset) -> list[int]:
    return [int(one["y"]) for one in run(ds)]


def test_rows_come_back_with_the_nest_they_had(store: Store) -> None:
    ds = ps.from_arrays(ROWS)
    ds.write("s3://bucket/out", shard_rows=20, storage_options=store.options)
    assert rows(ps.from_files("s3://bucket/out")) == rows(ds)
    assert rows(ps.from_files("s3://bucket/out/")) == rows(ds)
    back = ps.from_files("s3://bucket/out/manifest.json", storage_options=store.options)
    assert sorted(rows(back.shuffle(seed=1))) == sorted(rows(ds))
    assert not any(".unfinished" in key for key in store.listed())
    keys = [key for method, key, _ in store.requests if method == "PUT" and ".unf" not in key]
    assert keys[-1] == "/bucket/out/manifest.json"
    # NumPy alone reads what is there, and a copy of the folder is a folder that penstock wrote.
    assert store.get("out/x-00000.npy").startswith(b"\x93NUMPY")
    assert SECRET.encode() not in store.get("out/manifest.json")


def test_the_bytes_are_those_of_a_local_folder(store: Store, tmp_path: Path) -> None:
    ds = ps.from_arrays(ROWS)
    ds.write(tmp_path / "out", shard_rows=20)
    ds.write("s3://bucket/out", shard_rows=20)
    for path in (tmp_path / "out").iterdir():
        assert store.get(f"out/{path.name}") == path.read_bytes()
    assert len(store.listed("out/")) == len(list((tmp_path / "out").iterdir()))


@pytest.mark.parametrize("shards", [None, 4])
def test_records_are_written_and_read_back(store: Store, shards: int | None) -> None:
    ds = ps.from_arrays(NUMBERS)
    ds.write("s3://bucket/records", format="tfrecord", shards=shards)
    assert len(store.listed("records/")) == (shards or 1)
    features = {"y": ps.FixedFeature((), "int64")}
    for path in ("s3://bucket/records", "s3://bucket/records/*.tfrecord"):
        assert numbers(ps.from_tfrecord(path, features)) == [*range(50)]


@pytest.mark.parametrize("name", ["zz", "zz.zarr", "zz/", "in/it/zz"])
def test_a_zarr_store_of_any_name_is_read_back_as_from_a_disk(store: Store, name: str) -> None:
    pytest.importorskip("zarr")
    nest = {"x": np.arange(30), "meta": {"text": [str(n) for n in range(30)]}}
    ds = ps.from_arrays(nest)
    url = f"s3://bucket/{name}"
    ds.write(url, format="zarr", storage_options=store.options)
    for format in (None, "zarr"):
        found = ps.from_files(url, format=format, storage_options=store.options)
        assert_same(run(found), run(ds))
    again = ps.from_files(f"{url.rstrip('/')}/", storage_options=store.options)
    assert_same(run(again), run(ds))
    assert_same(run(again.shuffle(seed=1)), run(ds.shuffle(seed=1)))


def test_zarr_stores_are_found_in_a_folder_and_by_a_pattern(store: Store) -> None:
    pytest.importorskip("zarr")
    for number in range(3):
        one = ps.from_arrays({"x": np.arange(10) + 10 * number})
        one.write(f"s3://bucket/many/{number}.zarr", format="zarr", storage_options=store.options)
    for name in ("many", "many/", "many/*.zarr", "many/[012].zarr"):
        found = ps.from_files(f"s3://bucket/{name}", storage_options=store.options)
        assert [row["x"] for row in run(found)] == [*range(30)]
    store.put("many/1.zarr/.unfinished.jsonl", b"{}")
    for name in ("many", "many/*.zarr", "many/1.zarr"):
        with pytest.raises(ps.DataError, match=r"many/1\.zarr/?: this folder was never finished"):
            ps.from_files(f"s3://bucket/{name}", storage_options=store.options)


def test_a_glob_over_folders_notices_one_that_is_not_finished(store: Store) -> None:
    for day in range(3):
        ps.from_arrays({"x": np.arange(10 * day, 10 * day + 10)}).write(f"s3://bucket/days/{day}")
    patterns = ("days/*/x-*.npy", "days/**/x-*.npy", "da*/[012]/x-00000.npy", "days/2/*.npy")
    for pattern in patterns:
        found = ps.from_files(f"s3://bucket/{pattern}")
        assert [int(one) for one in run(found)][-1] == 29
    store.put("days/2/.unfinished.jsonl", b"{}")
    # Both: a kill came right after the manifest, and all is there.
    assert len(ps.from_files("s3://bucket/days/*/x-*.npy")) == 30
    store.client.delete_object(Bucket="bucket", Key="days/2/manifest.json")
    for pattern in patterns:
        with pytest.raises(ps.DataError, match=r"days/2: this folder was never finished"):
            ps.from_files(f"s3://bucket/{pattern}")
    assert len(ps.from_files("s3://bucket/days/[01]/x-*.npy")) == 20


def test_a_flow_is_written_too(store: Store) -> None:
    def count() -> Iterator[int]:
        yield from range(50)

    flow = ps.from_generator(count, ps.ArraySpec((), "int64")).filter(lambda x: x % 2 == 0)
    flow.write("s3://bucket/flow", shard_rows=10)
    assert [int(one) for one in run(ps.from_files("s3://bucket/flow"))] == [*range(0, 50, 2)]


def test_large_files_are_sent_in_parts(store: Store) -> None:
    ds = ps.from_arrays(np.arange(3_000_000))
    ds.write("s3://bucket/large", shard_rows=3_000_000)
    parts = [path for method, path, _ in store.requests if method == "PUT" and "value" in path]
    assert len(parts) >= 3
    assert sum(map(len, ps.from_files("s3://bucket/large").batch(100_000))) == 3_000_000


def test_a_place_with_anything_in_it_is_refused(store: Store) -> None:
    ds = ps.from_arrays(NUMBERS)
    ds.write("s3://bucket/out")
    for format in ("npy", "tfrecord"):
        with pytest.raises(ps.TargetExistsError, match=r"s3://bucket/out: this exists already"):
            ds.write("s3://bucket/out", format=format)
    store.put("mine/notes.md", b"mine")
    with pytest.raises(ps.TargetExistsError, match=r"s3://bucket/mine: this exists already"):
        ds.write("s3://bucket/mine")
    assert numbers(ps.from_files("s3://bucket/out")) == [*range(50)]
    assert store.listed("mine/") == ["mine/notes.md"]


def test_what_can_not_be_done_is_refused_before_anything_is_touched(store: Store) -> None:
    ds = ps.from_arrays(NUMBERS)
    with pytest.raises(ValueError, match=r"overwrite=True is for folders on this machine"):
        ds.write("s3://bucket/out", overwrite=True)
    with pytest.raises(ValueError, match=r'engine="ray" writes to a folder that all nodes share'):
        ds.write("s3://bucket/out", engine="ray")
    with pytest.raises(ps.WriteError, match="can't be written over HTTP"):
        ds.write("http://127.0.0.1:9/out")
    with pytest.raises(TypeError, match="storage_options must be a dict"):
        ds.write("s3://bucket/out", storage_options=["secret"])
    assert not store.listed()


def test_what_is_wrong_is_said_with_the_cure(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = ps.from_arrays(NUMBERS)
    with pytest.raises(ps.WriteError, match=r"s3://none/out: .*there is no bucket 'none'"):
        ds.write("s3://none/out")
    store.faults["PUT"].append("403")
    with pytest.raises(ps.WriteError, match=r"refuses it.*AWS_ACCESS_KEY_ID") as caught:
        ds.write("s3://bucket/out")
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(ps.WriteError, match=r"no credentials.*AWS_ACCESS_KEY_ID"):
        ds.write("s3://bucket/out")


@pytest.mark.parametrize("fault", ["503", "500", "reset"])
@pytest.mark.parametrize("format", ["npy", "tfrecord"])
def test_faults_that_pass_are_tried_again(store: Store, fault: str, format: str) -> None:
    store.faults["PUT"].extend([fault] * 5)
    store.faults["HEAD"].extend([fault] * 2)
    ps.from_arrays(NUMBERS).write("s3://bucket/out", format=format)
    assert not store.faults["PUT"]
    opened = ps.from_files if format == "npy" else ps.from_tfrecord
    assert numbers(opened("s3://bucket/out")) == [*range(50)]


class Killed(BaseException):
    """Stands for a process that ends here: nothing is cleaned up."""


def killed_after(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing be sent, removed or listed any more after so many objects were sent."""
    left = iter(range(number))
    whole = {
        name: getattr(remote_store.ObjectStore, name) for name in ("put", "put_file", "remove")
    }

    def limited(name: str) -> Any:
        def call(self: Any, *arguments: Any) -> Any:
            if name == "remove" and not getattr(self, "is_dead", False):
                return whole[name](self, *arguments)
            if next(left, None) is None:
                self.is_dead = True
                raise Killed
            return whole[name](self, *arguments)

        return call

    for name in whole:
        monkeypatch.setattr(remote_store.ObjectStore, name, limited(name))


@pytest.mark.parametrize("format", ["npy", "tfrecord", "zarr"])
def test_a_kill_leaves_nothing_that_reads_as_whole(
    store: Store, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = ps.from_arrays(NUMBERS)
    opened = ps.from_tfrecord if format == "tfrecord" else ps.from_files
    suffix = "tfrecord" if format == "tfrecord" else "npy"
    number = 0
    while True:
        number += 1
        with monkeypatch.context() as patch:
            killed_after(number, patch)
            try:
                ds.write("s3://bucket/out", format=format, shard_rows=20)
                break
            except Killed:
                pass
        assert store.listed("out/")
        with pytest.raises(ps.DataError, match="never finished"):
            opened("s3://bucket/out")
        with pytest.raises(ps.DataError, match=r"never finished|nothing matches"):
            opened(f"s3://bucket/out/*.{suffix}")
    assert number > 4
    assert numbers(opened("s3://bucket/out")) == [*range(50)]


def test_the_same_call_goes_on_after_the_shards_that_are_there(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []

    def failing(row: Any) -> Any:
        calls.append(int(row["y"]))
        if row["y"] == 45 and len(calls) < 60:
            raise RuntimeError("as asked")
        return row

    ds = ps.from_arrays(NUMBERS).map(failing, spec={"y": ps.ArraySpec((), "int64")})
    ds = ds.with_options(threads=0)
    with pytest.raises(ps.PenstockError, match="as asked") as caught:
        ds.write("s3://bucket/out", shard_rows=20)
    doubt = "".join(caught.value.__notes__)
    assert "s3://bucket/out" in doubt or "starts over" in doubt
    with pytest.raises(ps.DataError, match="never finished"):
        ps.from_files("s3://bucket/out")
    plain = ps.from_arrays(NUMBERS)
    with pytest.warns(ps.PenstockWarning, match=r"starts over.*s3://bucket/out"):
        plain.write("s3://bucket/out", shard_rows=20)
    assert numbers(ps.from_files("s3://bucket/out")) == [*range(50)]


def test_finished_shards_are_not_sent_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    ds = ps.from_arrays(NUMBERS)
    with monkeypatch.context() as patch:
        killed_after(
            7, patch
        )  # The journal, two shards of two files, each listed; then a file of the third.
        with pytest.raises(Killed):
            ds.write("s3://bucket/out", shard_rows=20)
    store.requests.clear()
    ds.write("s3://bucket/out", shard_rows=20)
    sent = {path for method, path, _ in store.requests if method == "PUT"}
    assert "/bucket/out/y-00000.npy" not in sent
    assert "/bucket/out/y-00002.npy" in sent
    assert numbers(ps.from_files("s3://bucket/out")) == [*range(50)]


@pytest.mark.parametrize("format", ["npy", "tfrecord"])
def test_someone_elses_object_is_neither_removed_nor_written_over(
    store: Store, format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = ps.from_arrays(NUMBERS)
    with monkeypatch.context() as patch:
        killed_after(3, patch)
        with pytest.raises(Killed):
            ds.write("s3://bucket/out", format=format, shard_rows=20)
    store.put("out/notes.md", b"mine")
    with pytest.raises(ps.TargetExistsError, match=r"'notes.md'.*not written by penstock"):
        ds.write("s3://bucket/out", format=format, shard_rows=20)
    assert store.get("out/notes.md") == b"mine"


@pytest.mark.parametrize("format", ["npy", "tfrecord"])
def test_of_two_that_write_to_one_place_the_first_gives_up(store: Store, format: str) -> None:
    ds = ps.from_arrays(NUMBERS)
    other = ps.from_arrays({"y": np.arange(50) + 1000})
    once = []

    def meddle(row: Any) -> Any:
        if row["y"] == 25 and not once:
            once.append(other.write("s3://bucket/out", format=format, shard_rows=20))
        return row

    meddled = ds.map(meddle, spec={"y": ps.ArraySpec((), "int64")}).with_options(threads=0)
    with pytest.raises(ps.WriteError, match=r"s3://bucket/out: another process has begun to write"):
        meddled.write("s3://bucket/out", format=format, shard_rows=20)
    opened = ps.from_files if format == "npy" else ps.from_tfrecord
    assert numbers(opened("s3://bucket/out")) == [*range(1000, 1050)]


@pytest.mark.slow
def test_a_process_that_is_really_killed_is_gone_on_from(store: Store, tmp_path: Path) -> None:
    program = (
        "import os, sys, numpy as np, penstock as ps\n"
        "from penstock.shards.remote_folder import RemoteFolder\n"
        "record = RemoteFolder.record\n"
        "def dying(self, shard, cursor=None):\n"
        "    record(self, shard, cursor)\n"
        "    if len(self.finished) == 2: os.kill(os.getpid(), 9)\n"
        "RemoteFolder.record = dying\n"
        "ds = ps.from_arrays({'y': np.arange(50)}).with_options(scratch=sys.argv[1])\n"
        "ds.write('s3://bucket/out', shard_rows=20)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    assert subprocess.run(command, env=os.environ, check=False).returncode == -9
    with pytest.raises(ps.DataError, match="never finished"):
        ps.from_files("s3://bucket/out")
    store.requests.clear()
    ps.from_arrays(NUMBERS).with_options(scratch=tmp_path).write("s3://bucket/out", shard_rows=20)
    assert not any("y-00000" in path for method, path, _ in store.requests if method == "PUT")
    assert numbers(ps.from_files("s3://bucket/out")) == [*range(50)]
    assert not list(tmp_path.iterdir())


def test_a_job_does_not_show_its_options(store: Store) -> None:
    from penstock.writers import Job

    ds = ps.from_arrays(NUMBERS)
    job = Job(ds.node, ds.options, Path("x"), url="s3://b/x", storage_options=store.options)
    assert SECRET not in repr(job)
    assert pickle.loads(pickle.dumps(dict(job.storage_options))) == store.options


def test_names_may_have_any_character(store: Store) -> None:
    for url in ("s3://bucket/a b/ü#x", "s3://bucket/50%/+&=@x"):
        ps.from_arrays(NUMBERS).write(url)
        assert numbers(ps.from_files(url)) == [*range(50)]
    with pytest.raises(ValueError, match=r"must not have \* or \? in it.*takes that for a pattern"):
        ps.from_arrays(NUMBERS).write("s3://bucket/what?*")


def test_urls_that_are_none_are_refused(store: Store) -> None:
    ds = ps.from_arrays(NUMBERS)
    with pytest.raises(ps.WriteError, match="names no place to write to"):
        ds.write("s3://")
    with pytest.raises(ValueError, match="must be given as a str"):
        ds.write(Path("s3://bucket/out"))
    with pytest.raises(ps.WriteError, match="this is an object, not a folder"):
        store.put("x", b"mine")
        ds.write("s3://bucket/x")


def test_a_file_url_is_a_path(tmp_path: Path) -> None:
    ps.from_arrays(NUMBERS).write(f"file://{tmp_path}/out")
    assert numbers(ps.from_files(tmp_path / "out")) == [*range(50)]


@pytest.mark.parametrize("format", ["npy", "tfrecord"])
def test_other_stores_of_fsspec_are_written_to_by_the_same_code(format: str) -> None:
    import fsspec

    opened = ps.from_files if format == "npy" else ps.from_tfrecord
    try:
        ps.from_arrays(NUMBERS).write("memory://penstock/out", format=format, shard_rows=20)
        assert numbers(opened("memory://penstock/out")) == [*range(50)]
        with pytest.raises(ps.TargetExistsError):
            ps.from_arrays(NUMBERS).write("memory://penstock/out", format=format)
    finally:
        fsspec.filesystem("memory").rm("/penstock", recursive=True)
