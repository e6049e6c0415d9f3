"""storage_options: they reach every reader of every format, and no message, repr or saved file."""

import pickle
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.conformance import run
from tests.sources.test_files import write_every_format
from tests.web_server import Server, serving

import penstock as ps

pytest.importorskip("aiohttp")
pytest.importorskip("fsspec")

SECRET = "Bearer of-a-secret"
OPTIONS = {"headers": {"Authorization": SECRET}}
NUMBERS = np.arange(50)
Open = Callable[..., ps.Dataset]


def values(ds: ps.Dataset) -> list[int]:
    return [int(row["y"] if isinstance(row, dict) else row) for row in run(ds)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    zarr = pytest.importorskip("zarr")
    folder = tmp_path_factory.mktemp("every format")
    write_every_format(folder, NUMBERS)
    NUMBERS.astype("<i4").tofile(folder / "a.bin")
    ps.from_arrays({"y": NUMBERS}).write(folder / "written", shard_rows=20)
    store = zarr.open_group(str(folder / "a.zarr"), mode="w")
    store.create_array("y", data=NUMBERS, chunks=(8,))
    return folder


@pytest.fixture
def server(folder: Path) -> Iterator[Server]:
    with serving() as server:
        for path in folder.rglob("*"):
            if path.is_file():
                server.files[f"/{path.relative_to(folder)}"] = path.read_bytes()
        server.password = SECRET
        yield server


def record(server: Server) -> str:
    (name,) = [name for name in server.files if name.endswith(".tfrecord")]
    return server.url(name)


def files(name: str, *fields: str, **arguments: Any) -> Callable[[Server], Open]:
    return lambda server: (
        lambda **options: ps.from_files(server.url(f"/{name}"), *fields, **arguments, **options)
    )


KINDS: dict[str, Callable[[Server], Open]] = {
    "npy": files("a.npy"),
    "stored npz": files("a.npz", "y"),
    "deflated npz": files("b.npz", "y"),
    "raw": files("a.bin", format="raw", spec=ps.ArraySpec((), "<i4")),
    "hdf5": files("a.h5", "y"),
    "zarr": files("a.zarr", "y"),
    "parquet": files("a.parquet", "y"),
    "arrow": files("a.feather", "y"),
    "csv": files("a.csv", "y"),
    "jsonl": files("a.jsonl", "y"),
    "packed jsonl": files("b.jsonl.gz", "y"),
    "tar": files("a.tar", "cls"),
    "written": files("written/manifest.json"),
    "tfrecord": lambda server: lambda **options: ps.from_tfrecord(record(server), **options),
    "tfrecord read forward": lambda server: (
        lambda **options: ps.from_tfrecord(record(server), index=False, **options)
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_is_read_with_a_password_and_not_without(kind: str, server: Server) -> None:
    opened = KINDS[kind](server)
    ds = opened(storage_options=OPTIONS)
    assert values(ds) == NUMBERS.tolist()
    assert values(ds.with_options(threads=0)) == NUMBERS.tolist()
    assert sorted(values(ds.shuffle(seed=1))) == NUMBERS.tolist()
    with pytest.raises(ps.AccessError, match=r"refuses.*Pass credentials in storage_options"):
        opened()


@pytest.mark.parametrize("kind", KINDS)
def test_a_dataset_that_went_to_another_process_still_knows_the_password(
    kind: str, server: Server
) -> None:
    copy = pickle.loads(pickle.dumps(KINDS[kind](server)(storage_options=OPTIONS)))
    assert values(copy) == NUMBERS.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_the_password_is_never_printed(kind: str, server: Server, tmp_path: Path) -> None:
    ds = KINDS[kind](server)(storage_options=OPTIONS)
    shown = [repr(ds), str(ds.explain()), str(ds.spec), str(vars(ds.node))]
    with ds.stream() as stream:
        list(stream)
        shown += [repr(stream), str(stream.report()), str(stream.state())]
    ds.write(tmp_path / "out")
    shown += [(tmp_path / "out" / "manifest.json").read_text()]
    server.password = "changed since"
    with pytest.raises(ps.PenstockError) as caught:
        list(ds.stream())
    shown += [str(caught.value), repr(caught.value), *getattr(caught.value, "__notes__", ())]
    assert not any("secret" in text for text in shown)


def test_lines_and_images_are_read_with_a_password(server: Server) -> None:
    lines = ps.from_files(server.url("/a.txt"), storage_options=OPTIONS)
    assert run(lines) == ["one", "two"]
    image = ps.from_files(server.url("/a.png"), "image", storage_options=OPTIONS)
    assert run(image)[0].tolist() == [[[9] * 3] * 5] * 4


def test_two_passwords_are_two_sessions(server: Server) -> None:
    mine = ps.from_files(server.url("/a.npy"), storage_options=OPTIONS)
    server.password = "Bearer 2"
    theirs = ps.from_files(
        server.url("/a.npy"), storage_options={"headers": {"Authorization": "Bearer 2"}}
    )
    assert values(theirs) == NUMBERS.tolist()
    with pytest.raises(ps.AccessError):
        values(mine)


def test_options_that_are_none_are_refused_with_their_names_alone(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", NUMBERS)
    with pytest.raises(TypeError, match=r"storage_options must be a dict .* got list"):
        ps.from_files(tmp_path / "a.npy", storage_options=[("key", "secret")])
    with pytest.raises(TypeError, match="storage_options must be a dict"):
        ps.from_tfrecord(tmp_path / "a.npy", storage_options="secret")
    # Local files need none, and take them without a word: the same call may get a path or a URL.
    assert values(ps.from_files(tmp_path / "a.npy", storage_options=OPTIONS)) == NUMBERS.tolist()


class Hidden(str):
    """A secret as settings libraries have it: its repr hides the value."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "**********"


def test_secrets_whose_repr_hides_them_are_not_taken_for_one_another(server: Server) -> None:
    def options(token: str) -> dict[str, Any]:
        return {"headers": {"Authorization": Hidden(token)}}

    first = ps.from_files(server.url("/a.npy"), storage_options=options(SECRET))
    with first.stream() as stream:
        next(stream)
        with pytest.raises(ps.AccessError):
            ps.from_files(server.url("/a.npy"), storage_options=options("Bearer of another"))


def test_changing_the_options_later_does_not_change_the_dataset(server: Server) -> None:
    options = {"headers": {"Authorization": SECRET}}
    ds = ps.from_files(server.url("/a.npy"), storage_options=options)
    options["headers"]["Authorization"] = "changed"
    assert values(ds) == NUMBERS.tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"pasword": "secret"},
        {"headers": {"Authorization": b"Bearer of-a-secret"}},
        {"headers": {"Authorization": ("of-a-secret",)}},
        {"headers": {"Authorization": "of-a-secret\n"}},
        {"client_kwargs": {"headers": {"Authorization": b"of-a-secret"}}},
        {"client_kwargs": "of-a-secret"},
    ],
)
def test_options_that_can_not_be_used_are_named_without_their_values(
    server: Server, options: dict[str, Any]
) -> None:
    with pytest.raises(ps.DataError, match=f"storage_options {next(iter(options))}") as caught:
        ps.from_files(server.url("/a.npy"), storage_options=options)
    shown = "".join(traceback.format_exception(caught.value))
    # Neither in the message nor in what it was raised from; the line of this call is no message.
    assert "of-a-secret" not in shown
    assert "secret" not in str(caught.value)


def test_what_a_chain_of_urls_leads_to_is_named_when_it_is_not_there(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "no.zip").write_bytes(b"no archive")
    for url in (
        f"zip://x.npy::file://{tmp_path}/nothing.zip",
        f"zip://x.npy::file://{tmp_path}/no.zip",
        "zip://x.npy::memory://nothing.zip",
    ):
        with pytest.raises(ps.PenstockError, match=r"nothing\.zip|no\.zip"):
            ps.from_files(url)
