"""Reads from S3 (moto's server, in a process of its own) against s3fs alone, and epochs with and without the cache.

    .venv/bin/python benchmarks/object_store.py [--megabytes 256]

moto is Python: it serves a few hundred MB/s at most. So this measures what penstock adds to the requests.
"""

import argparse
import contextlib
import io
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import numpy as np
import s3fs

import penstock as ps

ROW = 100  # float32 in a row.
FILES = 8


@contextlib.contextmanager
def server():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(
        command, **quiet, env={**os.environ, "MOTO_S3_DEFAULT_KEY_BUFFER_SIZE": str(1 << 30)}
    )
    url = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{url}/moto-api/").close()
                break
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait()


def timed(what: str, nbytes: int, run) -> None:
    best = float("inf")
    for _ in range(3):
        started = time.perf_counter()
        note = run()
        best = min(best, time.perf_counter() - started)
    print(f"{what:44} {nbytes / best / 1e6:8.0f} MB/s  {note or ''}", flush=True)


def drained(ds: ps.Dataset, epoch: int = 0) -> str:
    with ds.stream(epoch=epoch) as stream:
        for _ in stream:
            pass
        report = stream.report()
    return f"{report.net_nbytes / 1e6:.0f} MB over the network"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=int, default=256)
    nbytes = parser.parse_args().megabytes * 1_000_000
    rows = nbytes // FILES // (4 * ROW)
    with server() as url, tempfile.TemporaryDirectory() as scratch:
        options = {"endpoint_url": url, "key": "k", "secret": "s"}
        fs = s3fs.S3FileSystem(**options)
        fs.mkdir("bucket")
        for number in range(FILES):
            file = io.BytesIO()
            np.save(file, np.full((rows, ROW), number, np.float32))
            fs.pipe_file(f"bucket/{number}.npy", file.getvalue())
        names = [f"bucket/{number}.npy" for number in range(FILES)]
        rng = np.random.default_rng(0)

        def whole() -> None:
            for name in names:
                fs.cat_file(name)

        def pieces() -> None:
            starts = rng.permutation(rows * 4 * ROW // 65536) * 65536
            for name in names:
                fs.cat_ranges([name] * len(starts), starts.tolist(), (starts + 65536).tolist())

        def parts() -> None:
            for name in names:
                for start in range(0, rows * 4 * ROW, 2 << 20):
                    fs.cat_file(name, start=start, end=start + (2 << 20))

        timed("s3fs, whole objects in turn", nbytes, whole)
        timed("s3fs, cat_file of 2 MB in turn", nbytes, parts)
        timed("s3fs, cat_ranges of 64 KB in random order", nbytes, pieces)
        ds = ps.from_files("s3://bucket/*.npy", storage_options=options)
        shuffled = ds.shuffle(seed=0).batch(1024)
        timed("penstock, in order, batch 1024", nbytes, lambda: drained(ds.batch(1024)))
        timed("penstock, shuffled, batch 1024", nbytes, lambda: drained(shuffled))
        for name, share in (("all of it fits", 2.0), ("half of it fits", 0.5)):
            folder = Path(scratch) / name
            folder.mkdir()
            cached = shuffled.with_options(remote_cache=int(share * nbytes), scratch=folder)
            note = drained(cached)
            print(f"first epoch, {name}: {note}")
            timed(
                f"penstock, later epochs, {name}", nbytes, lambda cached=cached: drained(cached, 1)
            )


if __name__ == "__main__":
    main()
