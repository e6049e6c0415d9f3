"""Rows that stay on a device give the batches of their stream, are copied there once, and are let go of."""

import time

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.chains import chains
from tests.feeds.on_device.numpy_device import NumpyDevice, chosen, same

import penstock as ps
from penstock.core.fingerprint import fingerprint
from penstock.core.state import State
from penstock.feeds.on_device.choice import choose
from penstock.feeds.on_device.resident import INDEX_DTYPE, ResidentStream, promised_nbytes

NUM_ROWS = 100


def dataset():
    x = np.random.default_rng(0).random((NUM_ROWS, 3))
    return ps.from_arrays({"x": x, "n": np.arange(NUM_ROWS, dtype="i4")}).shuffle(seed=1).batch(8)


def stream_of(ds, data, epoch=0, **options):
    return ResidentStream(ds, data, State(fingerprint(ds.node), epoch), **options)


@settings(max_examples=40, suppress_health_check=list(HealthCheck), deadline=None)
@given(chains(), st.integers(1, 9))
def test_any_chain_that_can_stay_gives_the_batches_of_its_stream(made, batch_size):
    ds, _ = made
    ds = ds if ds.node.is_batched else ds.batch(batch_size)
    data = chosen(ds).data
    assume(data is not None)
    identity = fingerprint(ds.node)
    for epoch in range(2):
        with ds.stream(epoch=epoch) as stream:
            wanted = list(stream)
        assert same(ResidentStream(ds, data, State(identity, epoch)), wanted)
    with ds.stream() as stream:
        for _ in range(min(batch_size, len(wanted))):
            next(stream)
        state = stream.state()
        found = ResidentStream(ds, data, State.from_dict(state))
        with ds.stream(state=state) as again:
            assert found.position == again.position
        assert same(found, stream if state["element"] else wanted)


def test_rows_are_copied_when_they_are_first_asked_for_and_again_after_closing():
    ds = dataset()
    data = chosen(ds).data
    nbytes = NUM_ROWS * (3 * 8 + 4)
    assert (data.nbytes, data.traffic.to_device_nbytes) == (nbytes, 0)
    for epoch in range(3):
        assert len(list(stream_of(ds, data, epoch))) == 13
        assert data.traffic.to_device_nbytes == nbytes
        assert data.traffic.index_nbytes == (epoch + 1) * NUM_ROWS * 4
    data.close()
    data.load()
    data.load()
    assert data.traffic.to_device_nbytes == 2 * nbytes


def test_bytes_are_promised_until_they_are_taken():
    class OtherDevice(NumpyDevice):
        """A kind of its own: nobody else has promised bytes of it."""

    data = choose(dataset(), OtherDevice(), lambda batch: batch, "1MB").data
    assert promised_nbytes(OtherDevice) == data.promised_nbytes() == data.nbytes
    data.load()
    assert promised_nbytes(OtherDevice) == data.promised_nbytes() == 0
    data.close()
    assert promised_nbytes(OtherDevice) == data.nbytes


@pytest.mark.parametrize("epoch", [0, 2])
def test_row_numbers_are_what_the_batches_are_gathered_by(epoch):
    ds = dataset()
    data = chosen(ds).data
    with ds.stream(epoch=epoch) as stream:
        wanted = [batch["n"].tolist() for batch in stream]
    found = list(stream_of(ds, data, epoch, by_number=True))
    assert {rows.dtype for rows in found} == {INDEX_DTYPE}
    assert [rows.tolist() for rows in found] == wanted
    joined = np.concatenate(list(stream_of(ds, data, epoch).numbers()))
    assert joined.tolist() == [row for batch in wanted for row in batch]


def test_a_stream_reports_what_it_gave_out_and_gives_nothing_once_closed():
    ds = dataset()
    stream = stream_of(ds, chosen(ds).data, 4)
    next(stream)
    next(stream)
    report = stream.report()
    assert (report.epoch, report.num_elements, report.state) == (4, 2, "open")
    assert report.num_rows == 16
    assert (stream.position.epoch, stream.position.element) == (4, 2)
    stream.close()
    report = stream.report()
    assert report.state == "closed"
    assert report == stream.report()  # Its time stands still.
    with pytest.raises(ps.StreamClosedError, match="the stream is closed; iterate over the feed"):
        next(stream)


def test_who_waits_for_rows_to_be_copied_waits(monkeypatch):
    data = chosen(dataset()).data
    load = data._load

    def slowly():
        time.sleep(0.1)
        load()

    monkeypatch.setattr(data, "_load", slowly)
    for epoch, (least, most) in enumerate([(0.1, 10), (0.0, 0.1)]):
        stream = stream_of(dataset(), data, epoch)
        list(stream)
        assert least <= stream.report().waited_seconds < most
