"""The server of the live page: for this machine only, and only for who knows the token that is in its address.

It answers GET requests whose first part of the path is the token and whose Host is this machine: a page of somebody
else's that runs in the same browser knows no token, and can't pass its own name off as ours.
"""

import hmac
import json
import secrets
import socket
import socketserver
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from penstock.core.crew import Crew
from penstock.live.summary import all_runs
from penstock.reports.style import COLORS

HOST = "127.0.0.1"
_PAGE = Path(__file__).parent / "page"
_FILES = {
    "": ("index.html", "text/html; charset=utf-8"),
    "page.css": ("page.css", "text/css; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "draw.js": ("draw.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_MOST_CONNECTIONS = 32
_SECONDS = 10.0
"""How long a connection may say nothing: browsers open some ahead of time, and never use them."""


class PageServer:
    """The page of all runs of this user on this machine, or of one of them, on a port of its own."""

    def __init__(self, *, port: int = 0, token: str = "", only: str = "") -> None:
        """Open the port; 0 is a free one. Nothing is answered yet.

        Args:
            port: Where it listens.
            token: What must be in the address; a random one if none is given.
            only: The run, or the process, that is shown; all if it is ''.
        """
        self.token = token or secrets.token_urlsafe(24)
        self.only = only
        self._http = _Server(self.token, only, port)
        self.port = int(self._http.server_address[1])
        self._crew: Crew | None = None

    @staticmethod
    def again(url: str) -> "PageServer":
        """Return a server with the address of one that was closed, so that its page goes on; or with a new one."""
        parts = urlsplit(url)
        token = parts.path.strip("/")
        try:
            return PageServer(port=parts.port or 0, token=token)
        except OSError:  # Another program has that port now.
            # With another token: the page of the old address tells that program the one that it knows.
            return PageServer()

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{HOST}:{self.port}/{self.token}/"

    def serve(self) -> None:
        """Answer until `close` is called by another thread, or Ctrl-C."""
        self._http.serve_forever(poll_interval=0.2)

    def start(self) -> None:
        """Answer on a thread of its own."""
        self._crew = Crew()
        self._crew.start(["penstock-live-page"], self.serve)

    def close(self) -> None:
        """End it, with all that is connected."""
        if self._crew is not None:
            self._http.shutdown()
            self._crew.join()
        self._http.server_close()

    def leave_to_parent(self) -> None:
        """In a forked child: let go of the port."""
        self._http.socket.close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2 * _MOST_CONNECTIONS

    def __init__(self, token: str, only: str, port: int) -> None:
        self._connected: dict[Any, threading.Thread | None] = {}
        super().__init__((HOST, port), _Handler)
        self.token = token.encode()
        self.only = only
        number = self.server_address[1]
        self.hosts = {f"{HOST}:{number}", f"localhost:{number}"}

    def server_bind(self) -> None:
        """Bind it, without asking the network for the name of this machine, as HTTPServer does."""
        socketserver.TCPServer.server_bind(self)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread of its own, unless there are too many."""
        if len(self._connected) >= _MOST_CONNECTIONS:
            self.shutdown_request(request)
            return
        self._connected[request] = None
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        self._connected[request] = threading.current_thread()
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connected.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the other side has gone, and nobody reads it."""

    def server_close(self) -> None:
        """Close the port and all connections, and wait for those who answer them."""
        super().server_close()
        for request, thread in list(self._connected.items()):
            try:
                request.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue  # It has just ended.
            if thread is not None and thread is not threading.current_thread():
                thread.join(_SECONDS)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = _SECONDS

    def version_string(self) -> str:
        """Return what it calls itself: no versions, which only help an attacker."""
        return "penstock"

    def do_GET(self) -> None:
        """Answer, if the request comes from this machine and knows the token."""
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            self._say(HTTPStatus.MISDIRECTED_REQUEST, f"this is {HOST} and no other host")
            return
        address = urlsplit(self.path)
        token, _, rest = unquote(address.path.removeprefix("/")).partition("/")
        if not hmac.compare_digest(token.encode(errors="replace"), self.server.token):
            self._say(
                HTTPStatus.FORBIDDEN,
                "the address has no token, or a wrong one: take it from where it was printed",
            )
            return
        if rest == "runs":
            wanted = parse_qs(address.query).get("run", [""])[0]
            found = all_runs(only=self.server.only, wanted=wanted)
            self._send(json.dumps(found).encode(), "application/json")
        elif rest == "colors.css":
            self._send(COLORS.encode(), "text/css; charset=utf-8")
        elif rest in _FILES:
            name, kind = _FILES[rest]
            self._send((_PAGE / name).read_bytes(), kind)
        else:
            self._say(HTTPStatus.NOT_FOUND, "there is nothing here")

    def _refuse(self) -> None:
        self._say(HTTPStatus.METHOD_NOT_ALLOWED, "this page is only read: GET", {"Allow": "GET"})

    def __getattr__(self, name: str) -> Any:
        """Return what answers any other method: that there is none."""
        if name.startswith("do_"):
            return self._refuse
        raise AttributeError(name)

    def _send(self, data: bytes, kind: str) -> None:
        self._begin(HTTPStatus.OK, kind, data)

    def _say(self, code: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        self._begin(code, "text/plain; charset=utf-8", f"penstock: {text}.\n".encode(), headers)

    def _begin(
        self, code: HTTPStatus, kind: str, data: bytes, headers: dict[str, str] | None = None
    ) -> None:
        self.close_connection = True
        self.send_response(code)
        own = {"Content-Type": kind, "Content-Length": str(len(data)), "Connection": "close"}
        for name, value in {**own, **_HEADERS, **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what is no request that can be read; in a line, and without what it was."""
        self.command = self.command if getattr(self, "command", None) else ""
        status = HTTPStatus(code)
        self._say(status, status.phrase.lower())

    def log_message(self, format: str, *arguments: Any) -> None:
        """Print nothing: the terminal is the training's."""
