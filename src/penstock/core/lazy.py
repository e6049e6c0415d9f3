"""Modules that are loaded when they are first used: `import penstock` must not wait for them."""

import importlib
import sys
from types import ModuleType
from typing import Any


def lazy(name: str) -> ModuleType:
    """Return a module, or what stands for it until it is loaded: at its first attribute.

    For modules that most programs never use: worker processes, remote files, formats.
    """
    return sys.modules.get(name) or _LazyModule(name)


class _LazyModule(ModuleType):
    """Stands for a module. Python's own import loads it: once, on one thread, while others wait; or it raises.

    (`importlib.util.LazyLoader` lets other threads see a module of which only a part is loaded, and one that failed to
    load as if it were whole.)
    """

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self.__name__), name)
