"""The socket between a pool and a worker: frames, and descriptors that go with them.

The worker loads this file, too: see wire.py.
"""

import os
import socket
import sys
from array import array
from collections.abc import Sequence
from contextlib import suppress

from .portable import is_portable
from .wire import FRAME_NBYTES, HEADER_NBYTES, Frame, frame_nbytes

# Room for one descriptor of the message and one of its bulk; the kernel closes any further ones.
_RIGHTS_NBYTES = socket.CMSG_SPACE(2 * 4)
_NO_SIGNAL = getattr(socket, "MSG_NOSIGNAL", 0)
_SO_NOSIGPIPE = 0x1022  # sys/socket.h of macOS, which has no MSG_NOSIGNAL.
# Several frames: some systems have room for a few kilobytes only, unless asked.
_STREAM_NBYTES = 1 << 18


class TruncatedDescriptors(OSError):
    """A frame came without its descriptors: this process may open no more files."""


def socket_pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends of a new connection."""
    if sys.platform != "linux" or is_portable:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def channel_over(end: socket.socket) -> "Channel":
    """Return a channel over one end of a connection, by its kind."""
    return StreamChannel(end) if end.type == socket.SOCK_STREAM else Channel(end)


class Channel:
    """One end of a connection that keeps frames apart: each comes as it was sent, or not at all."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    def fileno(self) -> int:
        """Return the descriptor to wait on."""
        return self._socket.fileno()

    # Not socket.send_fds and recv_fds: in Python 3.11 they ignore their flags.

    def send(self, frame: Frame, *, fds: Sequence[int] = (), wait: bool = True) -> None:
        """Send a frame and descriptors; with wait=False, raise BlockingIOError if the reader is far behind."""
        self._send(frame, fds, wait=wait)

    def _send(self, frame: Frame, fds: Sequence[int], *, wait: bool) -> int:
        """Return how many bytes were sent."""
        carried = [*fds] if frame.memory_fd is None else [*fds, frame.memory_fd]
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", carried))] if carried else []
        return self._socket.sendmsg([frame.data], rights, _sending(wait=wait))

    def receive(self, *, wait: bool = True) -> tuple[bytes, list[int]] | None:
        """Return the next frame's bytes and descriptors, or None when the other end is closed.

        With wait=False, raise BlockingIOError if none is there.
        """
        data, fds = self._receive(FRAME_NBYTES, wait=wait)
        return (data, fds) if data else None

    def _receive(self, most: int, *, wait: bool) -> tuple[bytes, list[int]]:
        flags = 0 if wait else socket.MSG_DONTWAIT
        if sys.platform == "linux" and not is_portable:
            flags |= socket.MSG_CMSG_CLOEXEC
        try:
            data, rights, came, _ = self._socket.recvmsg(most, _RIGHTS_NBYTES, flags)
        except ConnectionResetError:
            # The other end died with messages unread. The kernel says so once, and then hands out what the
            # other end had sent.
            return self._receive(most, wait=wait)
        fds = array("i", b"".join(content for _, _, content in rights)).tolist()
        if came & socket.MSG_CTRUNC:
            _close_all(fds)
            raise TruncatedDescriptors(
                "a message between a pool and its worker lost its descriptors: this process has "
                "too many files open; raise its limit (ulimit -n)."
            )
        if sys.platform != "linux" or is_portable:
            for fd in fds:
                os.set_inheritable(fd, False)  # noqa: FBT003  it takes no keyword
        return data, fds

    def close(self) -> None:
        """Close this end; the other end then receives None, even if a fork of this process has copies of this end."""
        with suppress(OSError):  # closed already, or the other end is gone
            self._socket.shutdown(socket.SHUT_RDWR)
        self.forget()

    def forget(self) -> None:
        """Close only this process's copy: for a forked child, whose parent goes on using the channel."""
        self._socket.close()


class StreamChannel(Channel):
    """The same over a stream of bytes, for systems whose unix sockets keep no packets apart."""

    def __init__(self, end: socket.socket) -> None:
        super().__init__(end)
        self._data = b""
        """What has come of the next frame, and its descriptors."""
        self._fds: list[int] = []
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, _STREAM_NBYTES)
        if sys.platform == "darwin":
            end.setsockopt(socket.SOL_SOCKET, _SO_NOSIGPIPE, 1)

    def send(self, frame: Frame, *, fds: Sequence[int] = (), wait: bool = True) -> None:
        """Send a frame and descriptors; with wait=False, raise BlockingIOError if the reader is far behind.

        After that error a part of the frame may have been sent, and nothing more can be.
        """
        sent = self._send(frame, fds, wait=wait)
        while sent < len(frame.data):
            sent += self._socket.send(frame.data[sent:], _sending(wait=wait))

    def receive(self, *, wait: bool = True) -> tuple[bytes, list[int]] | None:
        """Return the next frame's bytes and descriptors, or None when the other end is closed.

        With wait=False, raise BlockingIOError if no whole frame is there. No byte of the frame after it is asked for,
        so that descriptors which come belong to this one.
        """
        while (missing := self._missing()) > 0:
            data, fds = self._receive(missing, wait=wait)
            if not data:
                return None
            self._data += data
            self._fds += fds
        received = self._data, self._fds
        self._data, self._fds = b"", []
        return received

    def _missing(self) -> int:
        if len(self._data) < HEADER_NBYTES:
            return HEADER_NBYTES - len(self._data)
        return frame_nbytes(self._data) - len(self._data)

    def forget(self) -> None:
        """Close only this process's copy, and descriptors that came for a frame which did not."""
        super().forget()
        fds, self._fds = self._fds, []
        _close_all(fds)


def _sending(*, wait: bool) -> int:
    # A program that lets SIGPIPE end it (many command lines do) must not end with its worker.
    return _NO_SIGNAL if wait else _NO_SIGNAL | socket.MSG_DONTWAIT


def _close_all(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)
