"""Penstock in a worker process, loaded one module at a time.

A block of rows and the loop over it need a quarter of the library. A plain `import penstock` would load the
rest as well, and a worker would take twice as long to start.
"""

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    """Stands for a package: a submodule loads when it is asked for; any other name loads the whole package."""

    def __getattr__(self, name: str) -> Any:
        # Python itself asks for names like __wrapped__.
        if name.startswith("__") and name not in ("__all__", "__version__"):
            raise AttributeError(name)
        full_name = f"{self.__name__}.{name}"
        if not name.startswith("__") and importlib.util.find_spec(full_name) is not None:
            return importlib.import_module(full_name)
        self.__class__ = ModuleType  # type: ignore[assignment]  # From here on this is the real package.
        assert self.__spec__ is not None
        assert self.__spec__.loader is not None
        self.__spec__.loader.exec_module(self)
        return getattr(self, name)


def install(name: str) -> None:
    """Let a package be imported without running it, until one of its own names is asked for."""
    spec = None if name in sys.modules else importlib.util.find_spec(name)
    if spec is None or spec.loader is None or spec.submodule_search_locations is None:
        return
    package = _Package(name)
    package.__spec__, package.__loader__ = spec, spec.loader
    package.__path__ = list(spec.submodule_search_locations)
    package.__package__, package.__file__ = name, spec.origin
    sys.modules[name] = package
