"""What the tests of the reading layer share: readers of bytes, a server that misbehaves on demand."""

import contextlib
import os
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from penstock.io.location import Location
from penstock.io.reader import check_range, writable_bytes


class BytesReader:
    """A Reader of bytes in memory."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.location = Location("memory.bin", len(data))
        self.size = len(data)
        self.num_bytes_read = 0

    def read_into(self, buffer, offset):
        target = writable_bytes(buffer)
        check_range(self.location, offset, target.size)
        self.num_bytes_read += target.size
        target[:] = memoryview(self.data)[offset : offset + target.size]

    def read_ranges(self, ranges):
        for one in ranges:
            self.read_into(one.buffer, one.offset)

    def check_unchanged(self): ...

    def close(self): ...

    def __enter__(self):
        return self

    def __exit__(self, *error): ...


@pytest.fixture(scope="session")
def bytes_reader() -> type[BytesReader]:
    return BytesReader


@pytest.fixture(scope="session")
def locate() -> Callable[[Path], Location]:
    def locate(path: Path) -> Location:
        found = path.stat()
        return Location(str(path), found.st_size, mtime_ns=found.st_mtime_ns)

    return locate


@pytest.fixture
def without_privileges(tmp_path_factory) -> Callable[[], contextlib.AbstractContextManager[None]]:
    """Root may read everything: for as long as it lasts, be someone else."""

    @contextlib.contextmanager
    def without_privileges() -> Iterator[None]:
        if os.geteuid() != 0:
            yield
            return
        os.seteuid(65534)
        try:
            yield
        finally:
            os.seteuid(0)

    return without_privileges


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "Server"

    def log_message(self, *args): ...

    def do_HEAD(self):
        self._answer(with_body=False)

    def do_GET(self):
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        self.server.requests.append((self.command, self.path, self.headers.get("Range")))
        wanted = ("GET",) if with_body else ("HEAD",)
        faults = self.server.faults[wanted[0]]
        fault = faults.popleft() if faults else ""
        body = self.server.files.get(self.path.partition("?")[0])
        if fault == "reset":
            # Closing with nothing lingering sends RST.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
            self.connection.close()
            return
        if fault == "stall":
            self.server.stopping.wait(30)
            self.close_connection = True
            return
        if fault.isdigit() or body is None:
            self.send_response(int(fault or 404))
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(body, fault, with_body=with_body)

    def _send(self, body: bytes, fault: str, *, with_body: bool) -> None:
        part, status = body, 200
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found and fault != "ignore_range":
            start, stop = int(found[1]), int(found[2]) + 1
            if start >= len(body):
                self.send_response(416)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            part, status = body[start:stop], 206
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{start + len(part) - 1}/{len(body)}")
        if fault == "gzip":
            self.send_header("Content-Encoding", "gzip")
        if fault != "no_length":
            self.send_header("Content-Length", str(len(part)))
        else:
            self.close_connection = True
        self.send_header("ETag", self.server.etag)
        self.end_headers()
        if not with_body:
            return
        if fault in ("truncate", "no_length", "half_then_stall"):
            part = part[: len(part) // 2]
            self.close_connection = True
        with contextlib.suppress(OSError):  # the client may have hung up
            self.wfile.write(part)
        if fault == "half_then_stall":
            self.server.stopping.wait(30)


class Server(ThreadingHTTPServer):
    """Serves `files` with ranges; each entry of `faults` spoils one request of its method."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, deque[str]] = {"GET": deque(), "HEAD": deque()}
        self.requests: list[tuple[str, str, str | None]] = []
        self.etag = '"1"'
        self.stopping = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request, client_address): ...  # a client that hung up is no news


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.stopping.set()
    server.shutdown()
    server.server_close()
    thread.join()
