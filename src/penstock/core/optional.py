"""Optional packages: imported when they are used, with an error that says how to install them."""

import importlib
from typing import Any


def require(package: str, purpose: str, extra: str) -> Any:
    """Return an optional package, or raise an ImportError that says how to get it.

    `purpose` is what needs the package ('reading .zarr'), `extra` the extra of penstock that installs it.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        root = package.partition(".")[0]
        message = f"{purpose} needs {root}: pip install 'penstock[{extra}]'"
        raise ImportError(message, name=root) from error
