"""Which Keras there is: installed at all, with a backend, and one of those that penstock was run with."""

import importlib.util
import json
import os
import re
from pathlib import Path

from penstock.errors import warn_user

RUN = "3.7 to 3.15, and 3.16.0.dev2026102704"
"""The releases of Keras that the tests were run with."""
_NEWEST = (3, 15)
_NIGHTLIES = frozenset({"3.16.0.dev2026102704"})
_BACKENDS = ("tensorflow", "jax", "torch")
_warned: set[str] = set()


def missing_keras(error: ImportError) -> ImportError:
    """Return the error of an `import keras` that failed, with the name of what is missing: Keras, or its backend."""
    missing = error.name or ""
    if missing == "keras":
        return ImportError("to_keras needs keras: pip install 'penstock[keras]'", name=missing)
    if missing in _BACKENDS:
        return ImportError(
            f"Keras is installed without the backend that it is set to use, {missing}: "
            f"pip install 'penstock[{missing}]', or set the environment variable KERAS_BACKEND to one of "
            f"{', '.join(_BACKENDS)} that is installed.",
            name=missing,
        )
    return ImportError(
        f"to_keras can't use the Keras that is installed: {error}. Penstock was run with Keras {RUN}.",
        name=missing or None,
    )


def warn_of_unknown_release(version: str) -> None:
    """Warn, once a process, if Keras is newer than those that penstock was run with."""
    found = re.match(r"(\d+)\.(\d+)", version)
    is_known = found is not None and (int(found[1]), int(found[2])) <= _NEWEST
    if is_known or version in _NIGHTLIES or version in _warned:
        return
    _warned.add(version)
    warn_user(
        f"Keras {version} is newer than those that this penstock was run with ({RUN}); look whether the first "
        "epochs are as you expect them, or install one of those."
    )


def choose_backend(wanted: str | None = None, *, by_file: bool = True) -> str:
    """Return the backend for a process that has not imported Keras yet, and set it: it can't be changed afterwards.

    It is the one that is wanted, or set in the environment, or (`by_file`) in Keras' own file, or the first that is
    installed.
    """
    if importlib.util.find_spec("keras") is None:
        raise ImportError(
            "training needs Keras and a backend: pip install 'penstock[keras,jax]'", name="keras"
        )
    chosen = wanted or os.environ.get("KERAS_BACKEND") or (_configured() if by_file else "")
    if not chosen:
        # The order of how fast they start; TensorFlow takes longest.
        chosen = next((name for name in ("jax", "torch", "tensorflow") if _is_there(name)), "")
    if not chosen:
        raise ImportError(
            "Keras has no backend here: pip install 'penstock[jax]', or 'penstock[torch]', or 'penstock[tensorflow]'",
            name="jax",
        )
    if chosen not in _BACKENDS:
        raise ValueError(
            f"KERAS_BACKEND must be one of {', '.join(_BACKENDS)} to train, got {chosen!r}."
        )
    if not _is_there(chosen):
        raise missing_keras(ImportError(name=chosen))
    os.environ["KERAS_BACKEND"] = chosen
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # Log lines of TensorFlow are not for users.
    return chosen


def _configured() -> str:
    """Return what Keras' own file says, if that is installed: Keras writes one that says tensorflow by itself."""
    home = Path(os.environ.get("KERAS_HOME") or "~/.keras").expanduser()
    try:
        found = json.loads((home / "keras.json").read_text()).get("backend", "")
    except (OSError, ValueError, AttributeError):
        return ""
    return found if isinstance(found, str) and _is_there(found) else ""


def _is_there(package: str) -> bool:
    return package in _BACKENDS and importlib.util.find_spec(package) is not None
