"""The parts of a report."""

from penstock.reports.figures import Decided, DeviceTraffic, StagePadding


def test_a_decision_says_when_if_that_was_not_at_the_start():
    assert str(Decided("map(f) on threads", "it is short")) == "map(f) on threads: it is short"
    assert (
        str(Decided("threads 2 -> 3", "it waits", 1.25)) == "threads 2 -> 3 after 1.2 s: it waits"
    )


def test_the_share_of_padding_of_nothing_is_none():
    assert StagePadding("pack", 0, 0).share == 0
    assert StagePadding("pack", 3, 1).share == 0.25


def test_what_went_to_a_device_says_how_often_each_byte_did():
    streamed = DeviceTraffic(nbytes=10, all_nbytes=30, data_nbytes=10)
    assert streamed.copies == 3
    assert str(streamed) == "10 B in this epoch, 30 B in all: each byte was copied 3.0 times"
    resident = DeviceTraffic(0, 10, 10, index_nbytes=8, is_resident=True)
    assert str(resident).endswith("each byte was copied 1.0 times, and it stays there")
    assert str(DeviceTraffic(0, 0, 10, is_shared=True)).startswith("nothing was copied")
    assert DeviceTraffic(0, 0, 0).copies == 0
