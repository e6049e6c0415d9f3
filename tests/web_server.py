"""A web server with ranged reads that misbehaves on demand."""

import contextlib
import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


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
        if self.server.password and self.headers.get("Authorization") != self.server.password:
            self.send_response(401)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
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
        if "//" in fault:
            self.send_response(302)
            self.send_header("Location", fault)
            self.send_header("Content-Length", "0")
            self.end_headers()
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
    """Serves `files` with ranges; each entry of `faults` spoils one request of its method, an address redirects it."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.files: dict[str, bytes] = {}
        self.faults: dict[str, deque[str]] = {"GET": deque(), "HEAD": deque()}
        self.requests: list[tuple[str, str, str | None]] = []
        self.etag = '"1"'
        self.password = ""
        """What the header `Authorization` of every request must be."""
        self.stopping = threading.Event()

    def url(self, path: str) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}{path}"

    def handle_error(self, request, client_address): ...  # a client that hung up is no news


@contextlib.contextmanager
def serving() -> Iterator[Server]:
    """Run a server on a free port of this machine."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield server
    finally:
        server.stopping.set()
        server.shutdown()
        thread.join()
        server.server_close()
