"""What a function does, taken apart: its code, and all that the code refers to.

That is bytecode and constants, defaults, the closure, and the globals that are used. Line numbers, file names and
comments stay out.
"""

import builtins
import collections
import dis
import importlib
import itertools
import random
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.core.evidence import Unproven
from penstock.core.libraries import library_of

_READS = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}
_TAKES = {*_READS, "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF"}
_ADDS: dict[type, str] = {list: "append", set: "add", collections.deque: "append"}
_ANYTHING = {
    "eval",
    "exec",
    "globals",
    "locals",
    "__import__",
}  # What these reach can't be told from code.


class Empty:
    """Stands for a variable without a value."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable of a function, or an attribute; an error about its value names it."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True)
class Used:
    """A module, and the names that code mentions: those that are attributes of the module count."""

    module: types.ModuleType
    names: tuple[str, ...]

    @property
    def key(self) -> Any:
        """What tells it from others: modules may refer to each other, without end."""
        return id(self.module), self.names

    def parts(self) -> tuple[Any, ...]:
        """Return the module's version if it is a package's, else the attributes that are mentioned."""
        library = library_of(self.module.__name__)
        if library is not None:
            return self.module.__name__, library
        found = vars(self.module)
        return self.module.__name__, *(
            Variable(
                name,
                Used(found[name], self.names)
                if isinstance(found[name], types.ModuleType)
                else found[name],
            )
            for name in self.names
            if name in found
        )


def code_parts(code: types.CodeType) -> tuple[Any, ...]:
    """Return what code does; other versions of Python have other bytecode."""
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    version = tuple(sys.version_info[:2])
    return version, code.co_code, code.co_exceptiontable, counts, names, code.co_consts


def function_parts(function: types.FunctionType) -> tuple[Any, ...]:
    """Return what a function consists of; one that a package defines counts by its name, but for what it was given."""
    code = function.__code__
    names = _names(code)
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    closure = tuple(
        Variable(name, _of_use(name, _unless_added_to(name, _content(cell), code), code, names))
        for name, cell in cells
    )
    given = (function.__defaults__, function.__kwdefaults__, closure, vars(function))
    home = str(function.__globals__.get("__name__", ""))
    library = library_of(home)
    if library is not None:
        return home, function.__qualname__, library, *given
    used = tuple(_globals(function.__globals__, code, names))
    return code, used, *given


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return Empty


def _names(code: types.CodeType) -> tuple[str, ...]:
    """Return all names that code mentions, and the functions in it, in alphabetical order."""
    found = set(code.co_names)
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            found.update(_names(one))
    return tuple(sorted(found))


def _globals(
    known: dict[str, Any], code: types.CodeType, names: tuple[str, ...]
) -> Iterator[Variable]:
    """Yield the globals that code and the functions in it refer to."""
    instructions = list(dis.get_instructions(code))
    for at, one in enumerate(instructions):
        name = one.argval
        if one.opname == "IMPORT_NAME":
            # `import a.b` binds a, and `from a.b import c` takes c of a.b.
            for module in _imported(name, instructions[at - 2].argval, known):
                yield Variable(name, Used(module, names))
        elif one.opname not in _READS:
            continue
        elif name in known:
            yield Variable(
                name, _of_use(name, _unless_added_to(name, known[name], code), code, names)
            )
        elif name in _ANYTHING:
            raise Unproven(f"{name}(), which can reach anything")
        else:
            yield Variable(name, getattr(builtins, str(name), Empty))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals(known, constant, names)


def _unless_added_to(name: str, value: Any, code: types.CodeType) -> Any:
    """Return the value of a variable; of a list that code only adds to, its type: what is in it changes no result."""
    add = _ADDS.get(type(value))
    return type(value) if add and all(after == add for after in _uses(name, code)) else value


def _uses(name: str, code: types.CodeType) -> Iterator[Any]:
    """Yield what comes after each place where code, or a function in it, takes the value of a variable."""
    for one, after in itertools.pairwise(dis.get_instructions(code)):
        if one.argval == name and one.opname in _TAKES:
            yield after.argval if after.opname in ("LOAD_ATTR", "LOAD_METHOD") else None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _uses(name, constant)


def _of_use(name: str, value: Any, code: types.CodeType, names: tuple[str, ...]) -> Any:
    """Return the value of a variable; of a module, what code uses of it."""
    if not isinstance(value, types.ModuleType):
        return value
    for chain in _chains(name, code):
        if not chain and library_of(value.__name__) is None:
            raise Unproven(f"module {name}, of which any name may be used")
        found: Any = value
        for place, attribute in enumerate(chain):
            if isinstance(found, types.ModuleType) and attribute == "__dict__":
                raise Unproven(f"{name}.{'.'.join(chain[: place + 1])}, which can reach anything")
            found = getattr(found, attribute, None)
            if found is sys.modules or found is importlib.import_module:
                raise Unproven(f"{name}.{attribute}, which can reach anything")
            if isinstance(getattr(found, "__self__", None), random.Random | np.random.RandomState):
                raise Unproven(
                    f"{name}.{'.'.join(chain[: place + 1])}, whose numbers come from elsewhere "
                    "(map(f, seed=0) hands out a generator)"
                )
    return Used(value, names)


def _chains(name: str, code: types.CodeType) -> Iterator[tuple[str, ...]]:
    """Yield the attributes that code, or a function in it, takes of a variable: ('random', 'rand') of np."""
    chain: list[str] | None = None
    for one in dis.get_instructions(code):
        if chain is not None and one.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            chain.append(one.argval)
            continue
        if chain is not None:
            yield tuple(chain)
        chain = [] if one.argval == name and one.opname in _TAKES else None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _chains(name, constant)


def _imported(name: str, level: Any, known: dict[str, Any]) -> Iterator[types.ModuleType]:
    relative = "." * level if isinstance(level, int) else ""
    try:
        yield importlib.import_module(relative + name, known.get("__package__"))
    except Exception as error:
        raise Unproven(f"module {name}, which can't be imported here") from error
    if not relative and "." in name:
        yield sys.modules[name.partition(".")[0]]
