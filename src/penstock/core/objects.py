"""Python objects, taken apart into values that can be compared: functions, classes and what is made of them."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import functools
import logging
import operator
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from penstock.core.code import Empty, Used, Variable, code_parts, function_parts
from penstock.core.evidence import Unproven
from penstock.core.libraries import by_name, library_of

# What Python puts into a class by itself, or what only people read.
_NOISE = {
    "__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__", "__annotate_func__",
    "__annotations_cache__", "__firstlineno__", "__static_attributes__", "__abstractmethods__", "_abc_impl",
    "__parameters__", "__orig_bases__", "__match_args__", "__dataclass_fields__", "__dataclass_params__",
}  # fmt: skip
_BY_TEXT = (
    pathlib.PurePath, dt.date, dt.time, dt.timedelta, dt.tzinfo, decimal.Decimal,
    fractions.Fraction, uuid.UUID, types.GenericAlias,
)  # fmt: skip
_GETTERS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_NUMBERS_AND_TEXT = (str, bytes, int, float, complex)
_HOLDERS = {object, tuple, list, dict, set, frozenset, *_NUMBERS_AND_TEXT}
_DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType,
    types.ClassMethodDescriptorType,
)  # fmt: skip
_SUNDER = re.compile(r"_[^_].*_")  # What Enum keeps in its classes.


def reduced(value: Any) -> tuple[Any, ...]:
    """Return a word for the kind of value, and the values it consists of; raise Unproven if it can't be compared."""
    for kind, parts in _KINDS:
        if isinstance(value, kind):
            return kind.__name__, *parts(value)
    # Not those of a user's class derived from these: their text may be anything.
    if isinstance(value, _BY_TEXT) and library_of(type(value).__module__) is not None:
        return "text", type(value).__qualname__, repr(value)
    if isinstance(value, types.BuiltinFunctionType) and not _is_module_level(value):
        return "bound", value.__name__, value.__self__
    named = by_name(value)
    if named is not None:
        return "named", *named
    if hasattr(value, "cache_parameters") and hasattr(value, "__wrapped__"):  # functools.cache
        return "cached", value.__wrapped__
    if isinstance(value, type):
        return "class", *_class_parts(value)
    return "object", *_object_parts(value)


def _is_module_level(function: types.BuiltinFunctionType) -> bool:
    return function.__self__ is None or isinstance(function.__self__, types.ModuleType)


def _module_parts(module: types.ModuleType) -> tuple[Any, ...]:
    library = library_of(module.__name__)
    if library is None:
        raise Unproven(f"the module {module.__name__}, of which anything may be used")
    return module.__name__, library


_KINDS: tuple[tuple[type, Callable[[Any], tuple[Any, ...]]], ...] = (
    (Used, lambda one: one.parts()),
    (types.CodeType, code_parts),
    (types.FunctionType, function_parts),
    (types.MethodType, lambda one: (one.__func__, one.__self__)),
    (types.ModuleType, _module_parts),
    (functools.partial, lambda one: (one.func, one.args, one.keywords, vars(one))),
    (staticmethod, lambda one: (one.__func__,)),
    (classmethod, lambda one: (one.__func__,)),
    (property, lambda one: (one.fget, one.fset, one.fdel)),
    (functools.cached_property, lambda one: (one.func,)),
    (types.MemberDescriptorType, lambda one: (one.__name__,)),
    (types.GetSetDescriptorType, lambda one: (one.__name__,)),
    (types.MappingProxyType, lambda one: (dict(one),)),
    (enum.Enum, lambda one: (type(one), one.name, one.value)),
    (logging.Logger, lambda one: (one.name,)),
    (bytearray, lambda one: (bytes(one),)),
    *((kind, lambda one: (one.__reduce__(),)) for kind in _GETTERS),
    *((kind, lambda one: (one.__qualname__, getattr(one, "__self__", None))) for kind in _DESCRIPTORS),
    *((kind, lambda one: (one.start, one.stop, one.step)) for kind in (range, slice)),
    (re.Pattern, lambda one: (one.pattern, one.flags)),
)  # fmt: skip


# -- classes ----------------------------------------------------------------------------------------


def _class_parts(kind: type) -> tuple[Any, ...]:
    if library_of(kind.__module__) is not None:
        # A package made it while it ran: nothing is found under its name.
        raise Unproven(f"the class {kind.__qualname__} of {kind.__module__}")
    bases = tuple(base for base in kind.__bases__ if base is not object)
    meta = None if type(kind).__module__ in ("builtins", "abc", "enum") else type(kind)
    fields = _fields(kind)
    own = tuple(
        Variable(name, value)
        for name, value in sorted(vars(kind).items())
        if name not in _NOISE and (fields is None or not _is_generated(name, value))
    )
    return kind.__qualname__, bases, meta, fields, own


def _fields(kind: type) -> Any:
    """Return the fields of a dataclass, an Enum or a named tuple; None for any other class."""
    if issubclass(kind, enum.Enum):
        return [(one.name, one.value) for one in kind]
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        return kind._fields, getattr(kind, "_field_defaults", {})
    if not dataclasses.is_dataclass(kind):
        return None
    return [
        (one.name, _given(one.default), _given(one.default_factory), one.init, one.compare)
        for one in dataclasses.fields(kind)
    ]


def _given(value: Any) -> Any:
    return Empty if value is dataclasses.MISSING else value


def _is_generated(name: str, value: Any) -> bool:
    """Return whether an attribute of a class with fields follows from these."""
    if isinstance(value, classmethod | staticmethod):
        value = value.__func__
    if isinstance(value, types.FunctionType):
        is_librarys = library_of(str(value.__globals__.get("__name__", ""))) is not None
        return is_librarys or value.__code__.co_filename.startswith("<string>")
    is_enums = type(value).__module__ == "enum" or isinstance(value, enum.Enum)
    is_table = name in ("_fields", "_field_defaults") or _SUNDER.fullmatch(name) is not None
    return is_enums or is_table or type(value).__name__ == "_tuplegetter"


# -- objects ----------------------------------------------------------------------------------------


def _object_parts(value: Any) -> tuple[Any, ...]:
    kind = type(value)
    if kind.__module__ == "typing":
        return ("typing", repr(value))
    items = tuple(_items(value))
    if kind is types.SimpleNamespace or (kind.__module__ == "collections" and items):
        return kind.__name__, *items, getattr(value, "__dict__", None)
    packages = {base for base in kind.__mro__ if library_of(base.__module__) is not None}
    plain = {base for base in kind.__mro__ if base.__module__ in ("abc", "typing")}
    if kind in packages or not packages <= _HOLDERS | plain:
        article = "an" if kind.__qualname__[:1] in "AEIOaeio" else "a"
        raise Unproven(f"{article} {kind.__qualname__} of {kind.__module__}")
    return kind, *items, *(Variable(name, one) for name, one in _state(value))


def _items(value: Any) -> Iterator[Any]:
    """Yield what an object holds as that of a built-in class from which its own is derived."""
    if isinstance(value, collections.defaultdict):
        yield value.default_factory
    if isinstance(value, dict):
        yield list(dict.items(value))
    elif isinstance(value, set | frozenset):
        yield frozenset(value)
    elif isinstance(value, tuple | list | collections.deque):
        yield [*value, getattr(value, "maxlen", None)]
    else:
        kinds: tuple[Any, ...] = _NUMBERS_AND_TEXT
        yield from (kind(value) for kind in kinds if isinstance(value, kind))


def _state(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the attributes of an object, in its dict and in slots."""
    yield from sorted(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, types.MemberDescriptorType):
                yield name, getattr(value, name, Empty)
