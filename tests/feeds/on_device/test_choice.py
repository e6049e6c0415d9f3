"""What stays on the device gives the batches that streaming gives, and goes there once."""

import json

import h5py
import numpy as np
import pytest
from tests.feeds.on_device.numpy_device import chosen, same

import penstock as ps
from penstock.core.fingerprint import fingerprint
from penstock.core.state import State
from penstock.feeds.on_device.resident import ResidentStream
from penstock.reports.figures import DeviceTraffic

pytestmark = pytest.mark.filterwarnings("ignore:JAX narrows")

NUM_ROWS = 1000


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    x, n = rng.random((NUM_ROWS, 30), np.float32), np.arange(NUM_ROWS)
    np.save(folder / "x.npy", x)
    ps.from_arrays({"x": x, "n": n}).write(folder / "shards", shard_rows=300)
    ps.from_arrays({"x": x, "n": n}).write(folder / "records", format="tfrecord")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(100, 30))
    return folder


def in_memory():
    rng = np.random.default_rng(0)
    return ps.from_arrays({"x": rng.random((NUM_ROWS, 3)), "n": np.arange(NUM_ROWS, dtype="i4")})


CHAINS = {
    "arrays": lambda f: in_memory().shuffle(seed=1).batch(64),
    "windows": lambda f: ps.from_files(f / "x.npy").shuffle(seed=1, window="20KB").batch(64),
    "exact": lambda f: ps.from_files(f / "x.npy").shuffle(exact=True, window="20KB").batch(64),
    "shards": lambda f: ps.from_files(f / "shards").shuffle(seed=2, window="30KB").batch(7),
    "records": lambda f: ps.from_tfrecord(f / "records").shuffle(seed=2).batch(64),
    "hdf5": lambda f: ps.from_files(f / "x.h5", fields="x").shuffle(window="20KB").batch(64),
    "whole": lambda f: ps.from_files(f / "shards").shuffle().batch(64, drop_remainder=True),
    "part": lambda f: ps.from_files(f / "x.npy").shard(3, 1).shuffle().skip(5).batch(64),
    "batches": lambda f: in_memory().batch(64).shuffle(seed=3).take(9),
    "passes": lambda f: in_memory().shuffle().repeat(2).shuffle().batch(64).repeat(2),
    "combined": lambda f: ps.concatenate(in_memory(), in_memory()).enumerate().shuffle().batch(64),
}


@pytest.mark.parametrize("kind", CHAINS)
def test_files_and_windows_give_the_batches_of_their_stream(kind, files):
    ds = CHAINS[kind](files)
    data = chosen(ds).data
    for epoch in range(3):
        with ds.stream(epoch=epoch) as stream:
            assert same(ResidentStream(ds, data, State(fingerprint(ds.node), epoch)), stream)
    assert data.traffic.to_device_nbytes == data.nbytes
    small = ds.with_options(memory=ds.explain().need_nbytes)
    chosen(small).data.load()


def test_only_rows_that_are_used_are_kept(files):
    rows = ps.from_files(files / "x.npy")
    assert chosen(rows.shard(4, 0).shuffle().batch(8)).data.nbytes == 250 * 30 * 4
    assert chosen(rows.take(10).repeat().batch(8)).data.nbytes == 10 * 30 * 4
    assert chosen(rows.skip(990).shuffle().batch(8)).data.nbytes == 10 * 30 * 4


def test_a_device_memory_of_nothing_streams():
    ds = in_memory().shuffle().batch(8)
    for nothing in (0, "0", "0MB"):
        residency = chosen(ds, nothing)
        assert residency.data is None
        assert "against 0 B of device memory" in residency.why
    with pytest.raises(ValueError, match="at least 0 bytes, got -1"):
        chosen(ds, -1)


REASONS = {
    "map(<lambda>) calls a function": lambda f: in_memory().map(lambda row: row).batch(8),
    "can only be read forward": lambda f: in_memory().filter(lambda row: True).batch(8),
    "only rows of numbers": lambda f: ps.from_arrays((["a", "b"], np.arange(2))).batch(2),
    "mix(2 datasets": lambda f: ps.mix(
        [in_memory().shuffle(), in_memory()], weights=[1, 1], seed=0
    ).batch(8),
    "more rows than can be numbered": lambda f: ps.from_arrays(
        np.broadcast_to(np.uint8(1), 1 << 31)
    ).batch(8),
    "padded_batch(8": lambda f: in_memory().padded_batch(8),
}


@pytest.mark.parametrize("why", REASONS)
def test_what_can_not_stay_is_streamed_and_says_why(why, files):
    residency = chosen(REASONS[why](files))
    assert residency.data is None
    assert why in residency.why


def test_the_default_is_half_of_what_is_free_and_not_promised_to_another(files):
    ds = ps.from_files(files / "x.npy").batch(8)
    nbytes = NUM_ROWS * 30 * 4
    assert chosen(ds, None).why == "the device has no memory of its own"
    assert chosen(ds, None, free=2 * nbytes - 2).data is None
    first = chosen(ds, None, free=3 * nbytes)
    assert first.data is not None
    assert chosen(ds, None, free=3 * nbytes - 2).data is None
    first.data.load()
    assert chosen(ds, None, free=2 * nbytes).data is not None


def make_jax(ds, **options):
    pytest.importorskip("jax")
    return ds.to_jax(**options)


def make_torch(ds, **options):
    pytest.importorskip("torch")
    return ds.to_torch(**options)


def make_tf(ds, **options):
    pytest.importorskip("tensorflow")
    return ds.to_tf(**options)


FEEDS = {"jax": make_jax, "torch": make_torch, "tf": make_tf}


@pytest.fixture(params=FEEDS)
def make(request):
    return FEEDS[request.param]


@pytest.mark.parametrize("kind", ["arrays", "windows", "whole", "batches", "passes"])
def test_every_feed_gives_the_same_batches_wherever_the_data_is(make, kind, files):
    ds = CHAINS[kind](files)
    resident, streamed = make(ds, device_memory="1GB"), make(ds, device_memory=10)
    assert "note: resident on the device" in str(resident.explain())
    assert "streamed to the device: its" in str(streamed.explain())
    nbytes = []
    for _ in range(3):
        assert same(resident, streamed)
        nbytes.append((resident.traffic.to_device_nbytes, streamed.traffic.to_device_nbytes))
    once, epoch = nbytes[0]
    assert nbytes == [(once, epoch), (once, 2 * epoch), (once, 3 * epoch)]
    assert resident.report().num_elements == len(ds)
    resident.close()


@pytest.mark.parametrize("dtype", ["bool", "uint8", "uint16", "int64", "float16", "complex64"])
def test_every_dtype_stays_as_it_is_streamed(make, dtype):
    values = np.random.default_rng(0).integers(0, 200, (50, 2)).astype(dtype)
    ds = ps.from_arrays(values).shuffle().batch(8)
    assert same(make(ds, device_memory="1MB"), make(ds))


def test_a_tf_dataset_goes_on_from_every_batch(files):
    tf = pytest.importorskip("tensorflow")
    ds = ps.from_files(files / "x.npy").shuffle(seed=1, window="20KB").batch(150)
    feed = ds.to_tf(device_memory="1GB")
    with ds.stream() as stream:
        wanted = [np.array(batch) for batch in stream]
    assert feed.cardinality() == len(wanted)
    assert feed.element_spec == tf.TensorSpec((None, 30), tf.float32)
    assert same(feed, wanted)
    for done in range(1, len(wanted)):
        state = json.loads(json.dumps(feed.state(done)))
        resumed = ds.to_tf(device_memory="1GB")
        resumed.resume(state)
        assert same(resumed, wanted[done:])
    assert feed.traffic.index_nbytes == NUM_ROWS * 4


def test_a_strategy_spreads_what_is_gathered_by_tf_data():
    tf = pytest.importorskip("tensorflow")
    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    feed = in_memory().shuffle().batch(64).to_tf(device_memory="1MB")
    spread = strategy.experimental_distribute_dataset(feed)
    rows = [strategy.experimental_local_results(batch["n"])[0].numpy() for batch in spread]
    assert sorted(np.concatenate(rows)) == list(range(NUM_ROWS))


def test_closing_gives_the_memory_back_and_the_next_epoch_copies_again(make):
    ds = in_memory().batch(64)
    feed = make(ds, device_memory="1MB")
    list(feed)
    once = feed.traffic.to_device_nbytes
    feed.close()
    with ds.stream(epoch=1) as stream:
        assert len(list(feed)) == len(list(stream))
    assert feed.traffic.to_device_nbytes == 2 * once


def test_what_is_streamed_to_a_device_of_its_own_memory_is_copied_once_an_epoch():
    residency = chosen(in_memory().map(lambda row: row).batch(8), free=10**9)
    assert residency.data is None
    for epoch in (1, 2):
        residency.traffic.begin_epoch()
        residency.traffic.to_device_nbytes += 100
        assert residency.measured() == DeviceTraffic(100, epoch * 100, 100)
    assert residency.measured().copies == 2
