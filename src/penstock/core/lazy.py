"""Modules that are loaded when they are first used: `import penstock` must not wait for them."""

import importlib
import os
import sys
import threading
import time
from types import ModuleType
from typing import Any

_PATIENCE = 10.0  # Seconds that a fork waits for modules that other threads load.
_loading: list[int] = []
"""The threads that load a module now, once for each module."""


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
        thread = threading.get_ident()
        _loading.append(thread)
        try:
            return getattr(importlib.import_module(self.__name__), name)
        finally:
            _loading.remove(thread)


def _wait_for_others() -> None:
    """Before a fork: let other threads load their modules to the end, else nobody could load these in the child."""
    until = time.monotonic() + _PATIENCE
    while any(one != threading.get_ident() for one in tuple(_loading)):
        if time.monotonic() > until:
            return
        time.sleep(1e-3)


os.register_at_fork(before=_wait_for_others, after_in_child=_loading.clear)
