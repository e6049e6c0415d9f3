"""Optional packages: imported when they are used, with an error that says how to install them."""

import importlib
import importlib.metadata
import re
from typing import Any


def require(package: str, purpose: str, extra: str, least: str = "0") -> Any:
    """Return an optional package, or raise an ImportError that says how to get it.

    `purpose` is what needs the package ('reading .zarr'), `extra` the extra of penstock that installs it, `least`
    the oldest version that will do.
    """
    root = package.partition(".")[0]
    found = _version(root) if least != "0" else least
    if _numbers(found) < _numbers(least):
        # Not tried: an old version fails in ways that look like damage of a file.
        message = (
            f"{purpose} needs {root} {least} or newer, and {found} is installed: "
            f"pip install --upgrade 'penstock[{extra}]'"
        )
        raise ImportError(message, name=root)
    try:
        return importlib.import_module(package)
    except ImportError as error:
        message = f"{purpose} needs {root}: pip install 'penstock[{extra}]'"
        raise ImportError(message, name=root) from error


def _version(package: str) -> str:
    """Return the version that is installed; one that is newer than any where that is not known."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "9999"


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:2]]
