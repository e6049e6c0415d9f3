"""Modules that are loaded when they are first used: `import penstock` must not wait for them."""

import importlib.util
import sys
from types import ModuleType


def lazy(name: str) -> ModuleType:
    """Return a module of ours, or of the standard library, that loads at its first attribute.

    For modules that most programs never use: worker processes, remote files, formats. The recipe is from
    the importlib documentation.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.find_spec(name)
    if name in sys.modules:  # find_spec imported the parent package, which imported this module.
        return sys.modules[name]
    if spec is None or spec.loader is None:
        raise ModuleNotFoundError(f"no module named {name!r}", name=name)
    loader = importlib.util.LazyLoader(spec.loader)
    spec.loader = loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    loader.exec_module(module)
    return module
