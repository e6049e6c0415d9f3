"""A real S3 API on this machine: moto's server, on a thread, with faults on demand."""

import contextlib
import functools
import logging
import socket
import struct
import threading
import urllib.request
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

KEY, SECRET = "AKIDTESTING", "hush-hush-hush"
SLOW_DOWN = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


class Store:
    """An S3 server with one bucket, `bucket`; each entry of `faults` spoils one request of its method."""

    def __init__(self, app: Any) -> None:
        from werkzeug.serving import make_server

        self._app = app
        self.faults: dict[str, deque[str]] = {"GET": deque(), "HEAD": deque(), "PUT": deque()}
        self.requests: list[tuple[str, str, str | None]] = []
        self.sent = 0
        """The bytes of objects that were sent, in answers to GET with a Range."""
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self.options = {"endpoint_url": self.endpoint, "key": KEY, "secret": SECRET}

    @property
    def env(self) -> dict[str, str]:
        """What a process needs in its environment to read without storage_options."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    @functools.cached_property
    def client(self) -> Any:
        """A client of boto3's, which shares no code with s3fs; to make one takes 100 ms."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name="us-east-1",
        )

    def clear(self) -> None:
        """Remove all that is there: the state of moto is one a process."""
        urllib.request.urlopen(f"{self.endpoint}/moto-api/reset", b"").close()
        self.client.create_bucket(Bucket="bucket")
        for one in self.faults.values():
            one.clear()
        self.requests.clear()

    def put(self, key: str, body: bytes) -> None:
        self.client.put_object(Bucket="bucket", Key=key, Body=body)

    def get(self, key: str) -> bytes:
        return self.client.get_object(Bucket="bucket", Key=key)["Body"].read()

    def listed(self, prefix: str = "") -> list[str]:
        pages = self.client.get_paginator("list_objects_v2")
        found = pages.paginate(Bucket="bucket", Prefix=prefix)
        return [one["Key"] for page in found for one in page.get("Contents", ())]

    def put_folder(self, folder: Path, prefix: str) -> None:
        client = self.client
        for path in folder.rglob("*"):
            if path.is_file():
                key = f"{prefix}/{path.relative_to(folder)}"
                client.put_object(Bucket="bucket", Key=key, Body=path.read_bytes())

    def gets(self) -> list[str]:
        """Return the paths of all GETs of objects, and forget all requests."""
        found = [path for method, path, part in self.requests if method == "GET" and part]
        self.requests.clear()
        return found

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Any:
        method, part = environ["REQUEST_METHOD"], environ.get("HTTP_RANGE")
        self.requests.append((method, environ["PATH_INFO"], part))
        faults = self.faults.get(method)
        fault = faults.popleft() if faults else ""
        if fault == "reset":
            # Closing with nothing lingering sends RST.
            connection = environ["werkzeug.socket"]
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.shutdown(socket.SHUT_RDWR)
            connection.close()
            raise ConnectionError("as asked")
        if fault:
            body = SLOW_DOWN if fault == "503" and method != "HEAD" else b""
            start_response(f"{fault} Fault", [("Content-Length", str(len(body)))])
            return [body]
        answer = self._app(environ, start_response)
        if method == "GET" and part:
            low, high = part.removeprefix("bytes=").split("-")
            self.sent += int(high) - int(low) + 1
        return answer

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@contextlib.contextmanager
def storing() -> Iterator[Store]:
    """Run a server with an empty bucket on a free port of this machine."""
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "7")  # A page of a listing; S3 itself has 1,000.
        patch.setenv("MOTO_S3_DEFAULT_KEY_BUFFER_SIZE", str(1 << 30))  # Objects stay in memory.
        store = Store(DomainDispatcherApplication(create_backend_app))
        yield from _served(store)


def _served(store: Store) -> Iterator[Store]:
    try:
        store.clear()
        yield store
    finally:
        store.close()
