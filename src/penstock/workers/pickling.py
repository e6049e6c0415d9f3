"""Sending a function to another process by cloudpickle, or saying why it cannot be sent."""

import functools
import itertools
import sys
import types
from collections.abc import Iterator
from typing import Any

from penstock.core import forking
from penstock.errors import CannotPickle

# Deep enough for a variable of a function that is an attribute of an object in a partial.
_SEARCH_DEPTH = 6
# More parts than this are data: looking at a million rows for a function would take longer than it is worth.
_SEARCH_PARTS = 1000
# Which modules go by value is a setting of cloudpickle for the whole process: one thread changes it at a time.
_registry_lock = forking.lock()
_ON_THREADS = "stay on threads: with_options(processes=0)"


def pickle_function(function: Any, *, name: str | None = None, cure: str = _ON_THREADS) -> bytes:
    """Return function as bytes that a fresh process can load; lambdas, closures, notebooks work.

    So do objects that hold functions. What is defined in importable modules goes by name, all else by value. `cure` is
    what else the user can do, if it can't be sent.

    >>> import pickle
    >>> pickle.loads(pickle_function(lambda x: 2 * x))(21)
    42
    """
    cloudpickle = load_cloudpickle()
    with _registry_lock:
        registered = cloudpickle.list_registry_pickle_by_value()
        modules = [m for m in _modules_to_copy(function) if m.__name__ not in registered]
        for module in modules:
            cloudpickle.register_pickle_by_value(module)
        try:
            return bytes(cloudpickle.dumps(function, protocol=5))
        except Exception as error:
            # The culprit is searched while those modules still go by value: later, the search would blame another.
            raise CannotPickle(_explain(function, name or _label(function), error, cure)) from error
        finally:
            for module in modules:
                cloudpickle.unregister_pickle_by_value(module)


def load_cloudpickle() -> Any:
    """Return the cloudpickle module, or say how to get it."""
    try:
        import cloudpickle
    except ImportError:
        raise ImportError(
            "running functions in processes needs cloudpickle: pip install 'penstock[processes]'"
        ) from None
    return cloudpickle


def _explain(function: Any, label: str, error: Exception, cure: str) -> str:
    path, culprit = _find_culprit(function)
    kind = type(culprit)
    return (
        f"{label} cannot be sent to worker processes: {path or 'it'} is a {kind.__module__}."
        f"{kind.__qualname__}, which cannot be pickled ({error}). Make it inside the function "
        f"(once: keep it in a global that starts as None), or {cure}."
    )


def _find_culprit(value: Any, *, depth: int = _SEARCH_DEPTH) -> tuple[str, Any]:
    """Return the path to the innermost part of value that cannot be pickled, and that part."""
    if depth:
        for path, part in _parts(value):
            if not _can_pickle(part):
                inner, culprit = _find_culprit(part, depth=depth - 1)
                return (f"{inner} of {path}" if inner else path), culprit
    return "", value


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield each thing that value refers to, after a phrase that describes it."""
    if isinstance(value, types.MethodType):
        yield "the object it is a method of", value.__self__
    elif isinstance(value, functools.partial):
        yield "the function of the partial", value.func
        for index, argument in enumerate(value.args):
            yield f"argument {index} of the partial", argument
        for key, argument in value.keywords.items():
            yield f"argument {key!r} of the partial", argument
    elif isinstance(value, types.FunctionType):
        yield from _parts_of_function(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            yield f"item {key!r}", item
    elif isinstance(value, list | tuple | set | frozenset):
        for index, item in enumerate(value):
            yield f"item {index}", item
    elif not isinstance(value, type | types.ModuleType):
        yield from _parts_of_object(value)


def _parts_of_object(value: Any) -> Iterator[tuple[str, Any]]:
    slots = getattr(type(value), "__slots__", ())
    slots = (slots,) if isinstance(slots, str) else slots
    for key in (*getattr(value, "__dict__", ()), *slots):
        if (item := getattr(value, key, None)) is not None:
            yield f"the attribute {key!r}", item


def _parts_of_function(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for key, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:
            continue  # not assigned yet
        yield f"the variable {key!r}", content
    for key in sorted(_global_names(function.__code__)):
        if key in function.__globals__:
            yield f"the global {key!r}", function.__globals__[key]
    for argument in function.__defaults__ or ():
        yield "a default argument", argument
    for key, argument in (function.__kwdefaults__ or {}).items():
        yield f"the default of argument {key!r}", argument


def _global_names(code: types.CodeType) -> set[str]:
    """Return the names that code may look up in its module, inner functions included."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _can_pickle(value: Any) -> bool:
    try:
        load_cloudpickle().dumps(value, protocol=5)
    except Exception:  # noqa: BLE001  whatever it was, the answer is no
        return False
    return True


def _modules_to_copy(function: Any) -> list[types.ModuleType]:
    """Return the modules that function refers to and that a fresh process could not import by name."""
    names: set[str] = set()
    seen = {id(function): function}
    waiting = [function]
    while waiting and len(seen) < _SEARCH_PARTS:
        value = waiting.pop()
        # An instance has the module of its class.
        names.add(getattr(value, "__module__", None) or "")
        for _, part in itertools.islice(_parts(value), _SEARCH_PARTS):
            if id(part) not in seen:
                seen[id(part)] = part
                waiting.append(part)
    modules = [sys.modules[name] for name in sorted(names) if name in sys.modules]
    return [module for module in modules if not _is_importable(module)]


def _is_importable(module: types.ModuleType) -> bool:
    """Tell whether a fresh process would find the same module under its name."""
    # cloudpickle takes care of the main module; modules without a file are Python's own.
    if module.__name__ == "__main__" or getattr(module, "__file__", None) is None:
        return True
    parent = module.__name__.rpartition(".")[0]
    path = getattr(sys.modules.get(parent), "__path__", None) if parent else None
    for finder in sys.meta_path:
        # Ask each finder: importlib.util.find_spec does not search for a module that is already imported.
        spec = finder.find_spec(module.__name__, path)
        if spec is not None:
            return bool(spec.origin == module.__file__)
    return False


def _label(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or type(function).__qualname__)
