"""The stream: its state in another process, and who owns a batch."""

import json
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.nest import flatten

X = np.arange(900, dtype="f4").reshape(300, 3)


def even(x: Any, y: Any) -> bool:
    return bool(y % 2 == 0)


CHAIN = """
import numpy as np, penstock as ps
def even(x, y):
    return bool(y % 2 == 0)
def made(kind):
    ds = ps.from_arrays((np.arange(900, dtype="f4").reshape(300, 3), np.arange(300)))
    ds = ds.shuffle(seed=4)
    if kind == "flow":
        ds = ds.filter(even).shuffle(seed=1, window="2KB")
    return ds.batch(7).repeat(2)
"""


@pytest.mark.parametrize("kind", ["rows", "flow"])
def test_a_state_goes_on_in_a_new_process_with_other_threads(kind: str):
    scope: dict[str, Any] = {}
    exec(CHAIN, scope)
    ds = scope["made"](kind)
    with ds.stream(epoch=2) as stream:
        batches, states = [], []
        for batch in stream:
            batches.append(batch[1].tolist())
            states.append(stream.state())
    picks = [0, 13, len(states) // 2, len(states) - 2]
    code = (
        CHAIN
        + """
import json, sys
states = json.load(sys.stdin)
for threads, state in zip((0, 1, 3, 2), states):
    ds = made(sys.argv[1]).with_options(threads=threads, memory="100MB")
    with ds.stream(state=state) as stream:
        print(json.dumps([batch[1].tolist() for batch in stream]))
"""
    )
    done = subprocess.run(
        [sys.executable, "-c", code, kind],
        input=json.dumps([states[pick] for pick in picks]),
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    for pick, line in zip(picks, done.stdout.splitlines(), strict=True):
        assert json.loads(line) == batches[pick + 1 :]


def test_a_dataset_pickled_before_it_was_iterated_goes_on_where_the_first_was():
    ds = ps.from_arrays((X, np.arange(300))).shuffle(seed=None).filter(even).batch(7)
    copy = pickle.loads(pickle.dumps(ds))
    with ds.stream() as stream:
        for _ in range(5):
            next(stream)
        state = stream.state()
        rest = [batch[1].tolist() for batch in stream]
    with copy.stream(state=state) as stream:
        assert [batch[1].tolist() for batch in stream] == rest


# -- ownership ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda ds: ds,
        lambda ds: ds.filter(even),
        lambda ds: ds.cache(),
        lambda ds: ds.cache().shuffle(),
    ],
)
def test_writing_into_batches_changes_no_other_batch_and_not_the_source(build: Any):
    source = X.copy()
    ds = build(ps.from_arrays((source, np.arange(300)))).batch(7)
    kept = list(ds.stream())
    copies = [tuple(leaf.copy() for leaf in batch) for batch in kept]
    for number, batch in enumerate(kept):
        for leaf in batch:
            leaf[...] = -1 - number
        for later, copied in zip(kept[number + 1 :], copies[number + 1 :], strict=True):
            assert all((a == b).all() for a, b in zip(later, copied, strict=True))
    assert (source == X).all()
    again = list(ds.stream())
    assert all(
        (a == b).all()
        for one, two in zip(again, copies, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def test_rows_without_batch_are_the_consumers_own_as_well():
    source = X.copy()
    kept = list(ps.from_arrays(source))
    for row in kept:
        row += 1
    assert (np.array(kept) == X + 1).all()
    assert (source == X).all()


def test_batches_live_on_after_the_stream_and_the_dataset():
    ds = ps.from_arrays(X).batch(10)
    kept = list(ds)
    del ds
    other = [batch * 0 for batch in ps.from_arrays(np.zeros((300, 3), "f4")).batch(10)]
    assert (np.concatenate(kept) == X).all()
    assert len(other) == 30


@pytest.mark.parametrize("dtype", ["u1", "f2", "f8", "S7", "M8[s]", "V3"])
def test_every_column_of_every_batch_starts_on_64_bytes(dtype: str):
    array = np.zeros((100, 3), dtype)
    for ds in (
        ps.from_arrays((array, array[:, 0])).batch(7),
        ps.from_arrays((array, array[:, 0])).shuffle().batch(7).map(lambda a, b: (a, b)),
        ps.from_arrays((array, array[:, 0])).filter(lambda *_: True).batch(7).shuffle(),
        ps.from_arrays((array, array[:, 0])).padded_batch(7).repeat(2).take(9),
    ):
        for batch in ds:
            assert all(leaf.ctypes.data % 64 == 0 for leaf in flatten(batch)[0])


def test_a_stream_is_its_own_iterator():
    with ps.from_arrays(X).stream() as stream:
        assert iter(stream) is stream


def test_importing_it_pulls_in_no_framework_and_no_format():
    code = (
        "import sys, penstock; print([m for m in ('tensorflow', 'jax', 'torch', 'keras', 'h5py', 'zarr',"
        " 'pyarrow', 'pandas', 'PIL', 'fsspec', 'ray', 'rich', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    assert Path(ps.__file__).with_name("py.typed").exists()


SHARED = {
    "arrays": lambda: ps.from_arrays(np.arange(40_000)).shuffle(seed=1).batch(3),
    "texts": lambda: ps.from_arrays([str(number) for number in range(4000)]),
    "a map at the hand-over": lambda: ps.from_arrays(np.arange(6000)).batch(3).map(lambda x: x + 0),
    "a filter": lambda: ps.from_arrays(np.arange(6000)).filter(lambda x: x >= 0).batch(3),
    "a generator": lambda: ps.from_generator(
        lambda: iter(np.arange(6000)), ps.ArraySpec((), "int64")
    ),
}


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("make", SHARED.values(), ids=SHARED)
def test_each_batch_goes_to_one_of_the_threads_that_share_a_stream(make, threads):
    ds = make().with_options(threads=threads, processes=0)
    with ds.stream(epoch=0) as stream:
        expected = [str(element) for element in stream]
    found = [[] for _ in range(4)]
    failed = []
    begin = threading.Barrier(4)

    def take(mine):
        begin.wait()
        try:
            for element in stream:
                mine.append(str(element))
                stream.state()
        except BaseException as error:  # noqa: BLE001  # The test looks at it.
            failed.append(error)

    with ds.stream(epoch=0) as stream:
        readers = [threading.Thread(target=take, args=(mine,)) for mine in found]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
        assert stream.state()["epoch"] == 1
    assert not failed
    assert sorted(one for mine in found for one in mine) == sorted(expected)
    # Each of them gets its batches in the order of the stream.
    place = {one: number for number, one in enumerate(expected)}
    assert all(mine == sorted(mine, key=place.__getitem__) for mine in found)


@pytest.mark.parametrize("threads", [0, 1, 2])
@pytest.mark.parametrize("kind", ["files", "no rows", "memory", "flow", "map"])
def test_a_stream_that_begins_early_gives_the_same_batches(tmp_path, kind, threads):
    np.save(tmp_path / "x.npy", X)
    ds = ps.from_files(tmp_path / "x.npy") if kind != "memory" else ps.from_arrays(X)
    ds = {"flow": lambda: ds.filter(lambda x: x[0] > 9), "no rows": lambda: ds.take(0)}.get(
        kind, lambda: ds
    )()
    ds = ds.map(lambda x: x + 1) if kind == "map" else ds
    ds = ds.shuffle(seed=3).batch(7).with_options(threads=threads)
    expected = [batch.tolist() for batch in ds.stream(epoch=2)]
    with ds.stream(epoch=2) as stream:
        stream.begin()
        assert stream.report().num_elements == 0
        assert stream.state() == ds.stream(epoch=2).state()
        assert [batch.tolist() for batch in stream] == expected
    with ds.stream() as stream:
        stream.begin()  # And is closed before it was read.
    assert stream.is_closed
