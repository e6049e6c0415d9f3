"""Packages that only some programs need: imported when they are used, with the way to get them."""

import importlib
from typing import Any


def require(package: str, purpose: str, extra: str) -> Any:
    """Return an optional package, or raise an ImportError that says how to get it.

    `purpose` is what needs it ('reading .zarr'), `extra` what brings it along.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        root = package.partition(".")[0]
        message = f"{purpose} needs {root}: pip install 'penstock[{extra}]'"
        raise ImportError(message, name=root) from error
