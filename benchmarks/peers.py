"""The environment the benchmarks run in: every peer, and penstock as a user would install it.

It is separate from the one used to develop penstock, so that a peer's requirements never decide
what penstock is tested with. Run it by itself (`python benchmarks/peers.py`) or let `run.py` do so;
a second run does nothing unless the list of peers or the checkout has changed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parent.parent
ENVIRONMENT = Path(__file__).resolve().parent / ".venv-bench"

# One pip command each, in this order. torch goes first and alone: resolved together with
# TensorFlow, pip may pick a CUDA build of several GB. All are pinned because a ratio means nothing
# without the version it was taken against.
PEERS = (
    ("torch==2.13.0",),
    ("tensorflow-cpu==2.21.0", "jax==0.10.2", "keras==3.15.1", "grain==0.2.18"),
    ("pillow==13.0.0", "simplejpeg==1.9.0"),
    ("h5py==3.14.0", "zarr==3.1.6", "tensorstore==0.1.86"),
    ("pandas==3.1.1", "pyarrow==26.0.1"),
)

# What decides how penstock is built. A change in any of them reinstalls it.
PENSTOCK_INPUTS = ("pyproject.toml", "CMakeLists.txt", "README.md", "src")


def python() -> Path:
    """Return the interpreter of the benchmark environment, whether or not it exists yet."""
    if os.name == "nt":
        return ENVIRONMENT / "Scripts" / "python.exe"
    return ENVIRONMENT / "bin" / "python"


def lock() -> int:
    """Return a descriptor that keeps other runs out while it is open, having waited for them.

    Two runs at once would slow each other down, and exchange penstock under each other's feet.
    """
    handle = os.open(__file__, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("waiting for another run of the benchmarks to end", file=sys.stderr, flush=True)
        fcntl.flock(handle, fcntl.LOCK_EX)
    return handle


def ensure(*, with_penstock: bool = True) -> str | None:
    """Make the environment what this file says; return why penstock is not in it, or None."""
    _ensure_peers()
    return _ensure_penstock() if with_penstock else None


def _ensure_peers() -> None:
    wanted = json.dumps({"python": sys.version, "peers": PEERS})
    stamp = ENVIRONMENT / "peers.stamp"
    if _reads(stamp, wanted):
        return
    venv.create(ENVIRONMENT, with_pip=True, clear=True)
    # Git and the linters that honour it must not look inside.
    (ENVIRONMENT / ".gitignore").write_text("*\n")
    for requirements in PEERS:
        _pip("install", *requirements, check=True)
    stamp.write_text(wanted)


def _ensure_penstock() -> str | None:
    if not (CHECKOUT / "pyproject.toml").exists():
        return "the checkout has no pyproject.toml"
    wanted = _fingerprint()
    stamp = ENVIRONMENT / "penstock.stamp"
    if _reads(stamp, wanted):
        return None
    stamp.unlink(missing_ok=True)
    # A build directory of its own: the one in the checkout belongs to whoever develops there.
    with tempfile.TemporaryDirectory() as build:
        setting = f"--config-settings=build-dir={build}"
        failure = _pip("install", setting, str(CHECKOUT), check=False)
    if failure is not None:
        # Or the figures would be those of the build before it.
        _pip("uninstall", "--yes", "penstock", check=False)
        return f"`pip install .` failed: {failure}"
    stamp.write_text(wanted)
    return None


def _fingerprint() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in PENSTOCK_INPUTS:
        top = CHECKOUT / name
        files = sorted(path for path in top.rglob("*") if path.is_file()) if top.is_dir() else [top]
        for path in files:
            if path.exists() and "__pycache__" not in path.parts:
                digest.update(str(path.relative_to(CHECKOUT)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _pip(*arguments: str, check: bool) -> str | None:
    command = [str(python()), "-m", "pip", *arguments, "--quiet", "--disable-pip-version-check"]
    print("+ pip", *arguments, file=sys.stderr, flush=True)
    finished = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    if finished.returncode == 0:
        return None
    if check:
        raise RuntimeError(f"pip {' '.join(arguments)} failed:\n{finished.stderr}")
    lines = [line for line in finished.stderr.splitlines() if line.strip()]
    return lines[-1] if lines else f"exit status {finished.returncode}"


def _reads(stamp: Path, wanted: str) -> bool:
    return stamp.exists() and stamp.read_text() == wanted


if __name__ == "__main__":
    lock()
    problem = ensure()
    if problem is not None:
        sys.exit(f"the peers are ready, but penstock is not: {problem}")
