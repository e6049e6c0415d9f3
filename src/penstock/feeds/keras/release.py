"""Which Keras there is: installed at all, with a backend, and one of those that penstock was run with."""

import re

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
