"""What Python or an installed package defines: it counts by its name and version, and is not looked into."""

import functools
import hashlib
import importlib.metadata
import pathlib
import sys
import sysconfig
from typing import Any

import numpy as np

from penstock.core.evidence import Unproven


@functools.cache
def library_of(module: str) -> str | None:
    """Return name and version of the package that a module belongs to; None if it is the user's own code.

    >>> library_of("json.decoder") == f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    True
    >>> library_of("__main__")
    """
    top = module.partition(".")[0]
    found = sys.modules.get(top)
    if top in ("__main__", "__mp_main__"):
        return None
    if top == "penstock":
        return f"penstock {getattr(found, '__version__', '')}"
    # A namespace package has no file, but its modules do.
    file = getattr(found, "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    is_python = top in sys.stdlib_module_names or top in sys.builtin_module_names
    python = f"Python {sys.version_info[0]}.{sys.version_info[1]}"
    if file is None:
        return python if is_python else None
    parts = pathlib.PurePath(file).parts
    if "site-packages" in parts or "dist-packages" in parts:
        return f"{top} {_version(top, file)}"
    paths = sysconfig.get_paths()
    is_there = any(file.startswith(paths[one]) for one in ("stdlib", "platstdlib"))
    return python if is_python and is_there else None


def _version(top: str, file: str) -> str:
    """Return the version of a package, and a digest of the list of its files, which an installer writes.

    So a package that is installed again with other code is another one, even if nobody gave it a new version.
    """
    try:
        package = importlib.metadata.distribution(top)
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(top)
        if not names:
            found = pathlib.Path(file).stat()
            return f"of {found.st_size} bytes, {found.st_mtime_ns}"
        package = importlib.metadata.distribution(names[0])
    # Scripts name the folder of the interpreter, and the rest is about this installation.
    listed = [
        line
        for line in (package.read_text("RECORD") or "").splitlines()
        if not line.startswith("..") and ".dist-info/" not in line and ".pyc" not in line
    ]
    digest = hashlib.blake2b("\n".join(sorted(listed)).encode(), digest_size=8).hexdigest()
    return f"{package.version} {digest}"


def by_name(value: Any) -> tuple[Any, ...] | None:
    """Return module, name and version of what a package defines, if it is found under that name; else None."""
    if isinstance(value, np.ufunc):
        return _ufunc(value)
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module not in sys.modules:
        return None
    library = library_of(module)
    found: Any = sys.modules[module]
    for part in name.split("."):
        found = getattr(found, part, None)
    return (module, name, library) if library and found is value else None


def _ufunc(value: "np.ufunc") -> tuple[Any, ...]:
    for module in ("numpy", "scipy.special"):  # A ufunc does not know where it is defined.
        if getattr(sys.modules.get(module), value.__name__, None) is value:
            return module, value.__name__, library_of(module)
    raise Unproven(f"the ufunc {value.__name__}")
