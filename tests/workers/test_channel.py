"""Frames and descriptors over a socket: over packets as on Linux, and over a stream as elsewhere."""

import os
import pickle
import socket
import threading

import numpy as np
import pytest

from penstock.workers.channel import Channel, StreamChannel, TruncatedDescriptors, channel_over
from penstock.workers.wire import FRAME_NBYTES, Frame, pack, unpack

KINDS = {"packets": 5, "stream": socket.SOCK_STREAM}  # 5: tests/portable takes SOCK_SEQPACKET away.


@pytest.fixture(params=KINDS)
def ends(request):
    pair = socket.socketpair(socket.AF_UNIX, KINDS[request.param])
    made = [channel_over(end) for end in pair]
    assert type(made[0]) is (StreamChannel if request.param == "stream" else Channel)
    yield made
    for one in made:
        one.close()


def message(value):
    return pack(value, dumps=pickle.dumps)


def close_all(fds):
    for fd in fds:
        os.close(fd)


def test_frames_come_one_by_one_with_their_own_descriptors(ends):
    here, there = ends
    big = np.arange(100_000)
    values = [1, "x" * 8000, big, (), "y" * 3000, big[::-1].copy()]
    for number, value in enumerate(values):
        frame = message((number, value))
        read, write = os.pipe()
        os.write(write, bytes([number]))
        here.send(frame, fds=[read] if number % 2 else [], wait=False)
        frame.close()
        close_all([read, write])
    for number, value in enumerate(values):
        data, fds = there.receive(wait=False)
        got_number, got = unpack(data, fds)
        assert got_number == number
        np.testing.assert_array_equal(got, value)
        assert len(fds) == number % 2
        for fd in fds:
            assert os.read(fd, 10) == bytes([number])
            assert not os.get_inheritable(fd)
        close_all(fds)
    with pytest.raises(BlockingIOError):
        there.receive(wait=False)


def test_what_was_sent_before_the_other_end_closed_still_comes(ends):
    here, there = ends
    there.send(message("never read"))
    for number in range(3):
        here.send(message(number))
    here.close()
    assert [unpack(*there.receive()) for _ in range(3)] == [0, 1, 2]
    assert there.receive() is None
    with pytest.raises(OSError, match=r"Broken pipe|reset"):
        there.send(message("too late"))


def test_a_reader_that_is_far_behind_is_told_of_at_once(ends):
    here, there = ends
    frame = Frame(message("x" * 8000).data)
    sent = 0
    with pytest.raises(BlockingIOError):
        while sent < 10_000:
            here.send(frame, wait=False)
            sent += 1
    assert sent * len(frame.data) > 2 * FRAME_NBYTES
    for _ in range(sent):
        assert unpack(*there.receive(wait=False)) == "x" * 8000


def test_a_sender_may_wait_for_its_reader(ends):
    here, there = ends
    frames = [message(("x" * (number % 8000), number)) for number in range(3000)]
    thread = threading.Thread(target=lambda: [here.send(frame) for frame in frames])
    thread.start()
    found = [unpack(*there.receive())[1] for _ in frames]
    thread.join()
    assert found == list(range(3000))


def test_a_frame_that_is_cut_anywhere_is_put_together_again():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with near:
        channel = channel_over(far)
        data = message("some text").data + message("more").data
        found = []
        for i in range(len(data)):
            near.send(data[i : i + 1])
            try:
                found.append(unpack(*channel.receive(wait=False)))
            except BlockingIOError:
                continue
        assert found == ["some text", "more"]
        near.send(data[:12])
        near.shutdown(socket.SHUT_WR)
        assert channel.receive() is None
        channel.close()


def test_descriptors_of_a_frame_that_never_came_are_closed():
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    with near:
        channel = channel_over(far)
        read, write = os.pipe()
        socket.send_fds(near, [message("text").data[:5]], [write])
        os.close(write)
        with pytest.raises(BlockingIOError):
            channel.receive(wait=False)
        os.set_blocking(read, False)
        with pytest.raises(BlockingIOError):
            os.read(read, 1)  # Somebody could still write.
        channel.close()
        assert os.read(read, 1) == b""
        os.close(read)


def test_more_descriptors_than_there_is_room_for_are_an_error(ends):
    here, there = ends
    read, write = os.pipe()
    here.send(message("text"), fds=[read] * 5)
    os.close(read)
    with pytest.raises(TruncatedDescriptors, match="raise its limit"):
        there.receive()
    with pytest.raises(BrokenPipeError):
        os.write(write, b"x")  # All copies were closed.
    os.close(write)
