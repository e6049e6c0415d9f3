"""Optional packages: imported when they are used, with an error that says how to install them."""

import importlib
import re
from typing import Any

# What extras in pyproject.toml ask for, too. Older ones fail in ways that look like damaged files, or crash.
_LEAST = {"h5py": "3.12.1", "pyarrow": "18", "ray": "2.60", "s3fs": "2024.12", "zarr": "3.1.3"}
_new_enough: set[str] = set()


def require(package: str, purpose: str, extra: str) -> Any:
    """Return an optional package, or raise an ImportError that says how to get it, or a newer version of it.

    `purpose` is what needs the package ('reading .zarr'), `extra` the extra of penstock that installs it.
    """
    root = package.partition(".")[0]
    cure = f"pip install 'penstock[{extra}]'"
    try:
        found = importlib.import_module(package)
    except ImportError as error:
        raise ImportError(f"{purpose} needs {root}: {cure}", name=root) from error
    if root in _LEAST and root not in _new_enough:
        version = str(getattr(importlib.import_module(root), "__version__", ""))
        if version and _numbers(version) < _numbers(_LEAST[root]):
            problem = f"{purpose} needs {root} {_LEAST[root]} or newer, and {version} is installed"
            raise ImportError(f"{problem}: {cure}", name=root)
        _new_enough.add(root)
    return found


def _numbers(version: str) -> list[int]:
    """Return the numbers that a version begins with."""
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:3]]
