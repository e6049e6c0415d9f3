"""Objects, compared by class and content; what no other process could have is not compared."""

import collections
import datetime as dt
import decimal
import logging
import pathlib
import re
import types

import numpy as np
import pytest
from tests.core.test_code import of

from penstock.core.digests import Unproven, digest

Point = collections.namedtuple("Point", "x y")
PAIRS = {
    "named tuple": (Point(1, 2), Point(1, 3)),
    "named tuple and tuple": (Point(1, 2), (1, 2)),
    "tuple and list": ((1, 2), [1, 2]),
    "nest": ((1, (2, 3)), ((1, 2), 3)),
    "text and bytes": ("a", b"a"),
    "range": (range(3), range(4)),
    "slice": (slice(1), slice(2)),
    "long pattern": (re.compile("a" * 300 + "b"), re.compile("a" * 300 + "c")),
    "flags of a pattern": (re.compile("a"), re.compile("a", re.IGNORECASE)),
    "path": (pathlib.Path("a"), pathlib.Path("b")),
    "date": (dt.date(2020, 1, 1), dt.date(2020, 1, 2)),
    "decimal": (decimal.Decimal("1.0"), decimal.Decimal("1.00")),
    "defaultdict": (collections.defaultdict(int), collections.defaultdict(list)),
    "deque": (collections.deque([1], 2), collections.deque([1], 3)),
    "ordered dict": (collections.OrderedDict(a=1, b=2), collections.OrderedDict(b=2, a=1)),
    "namespace": (types.SimpleNamespace(a=1), types.SimpleNamespace(a=2)),
    "logger": (logging.getLogger("a"), logging.getLogger("b")),
    "large numbers": (10**5000, 10**5000 + 1),
    "NumPy scalars": (np.float32(1), np.float32(2)),
    "dtype": (np.dtype("i4"), np.dtype("f4")),
    "arrays of objects": (np.array([1, "a"], object), np.array([1, "b"], object)),
    "types": (int, float),
    "surrogates": ("\ud800", "\ud801"),
    "descriptors": (str.upper, str.lower),
    "bytearrays": (bytearray(b"a"), bytearray(b"b")),
}


@pytest.mark.parametrize("name", PAIRS)
def test_values_that_differ_have_other_digests(name):
    one, other = PAIRS[name]
    assert digest(one) == digest(one)
    assert digest(one) != digest(other)


# Two texts each, with classes or objects that act otherwise.
CLASSES = {
    "attribute of an object": (
        "class A:\n    def __init__(self, a): self.a = a\n    def __call__(self, x): return x + self.a\nf = A(1)",
        "class A:\n    def __init__(self, a): self.a = a\n    def __call__(self, x): return x + self.a\nf = A(2)",
    ),
    "instance of a bound method": (
        "class A:\n    def __init__(self, a): self.a = a\n    def g(self, x): return x + self.a\nf = A(1).g",
        "class A:\n    def __init__(self, a): self.a = a\n    def g(self, x): return x + self.a\nf = A(2).g",
    ),
    "another method that is called": (
        "class A:\n    def h(self, x): return x\n    def g(self, x): return self.h(x)\nf = A().g",
        "class A:\n    def h(self, x): return -x\n    def g(self, x): return self.h(x)\nf = A().g",
    ),
    "slots": (
        "class A:\n    __slots__ = ('a',)\n    def __init__(self, a): self.a = a\nf = A(1)",
        "class A:\n    __slots__ = ('a',)\n    def __init__(self, a): self.a = a\nf = A(2)",
    ),
    "class attribute": ("class A:\n    a = 1\nf = A()", "class A:\n    a = 2\nf = A()"),
    "base class": (
        "class B:\n    a = 1\nclass A(B): pass\nf = A()",
        "class B:\n    a = 2\nclass A(B): pass\nf = A()",
    ),
    "property": (
        "class A:\n    @property\n    def a(self): return 1\nf = A()",
        "class A:\n    @property\n    def a(self): return 2\nf = A()",
    ),
    "static method": (
        "class A:\n    @staticmethod\n    def f(x): return x\nf = A.f",
        "class A:\n    @staticmethod\n    def f(x): return -x\nf = A.f",
    ),
    "class method": (
        "class A:\n    a = 1\n    @classmethod\n    def f(cls, x): return cls.a\nf = A.f",
        "class A:\n    a = 2\n    @classmethod\n    def f(cls, x): return cls.a\nf = A.f",
    ),
    "dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    a: int = 1\nf = A()",
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    a: int = 2\nf = A()",
    ),
    "constant of a dataclass": (
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    _B = 1\n    def f(self): return self._B\nf = A().f",
        "import dataclasses\n@dataclasses.dataclass\nclass A:\n    _B = 2\n    def f(self): return self._B\nf = A().f",
    ),
    "enum": (
        "import enum\nclass A(enum.Enum):\n    B = 1\ndef f(x): return A.B",
        "import enum\nclass A(enum.Enum):\n    B = 2\ndef f(x): return A.B",
    ),
    "method of an enum": (
        "import enum\nclass A(enum.Enum):\n    B = 1\n    def g(self): return 1\ndef f(x): return A.B.g()",
        "import enum\nclass A(enum.Enum):\n    B = 1\n    def g(self): return 2\ndef f(x): return A.B.g()",
    ),
    "named tuple": (
        "import typing\nclass A(typing.NamedTuple):\n    a: int = 1\ndef f(x): return A()",
        "import typing\nclass A(typing.NamedTuple):\n    a: int = 2\ndef f(x): return A()",
    ),
    "class derived from dict": (
        "class A(dict):\n    def __missing__(self, key): return 0\nf = A(a=1)",
        "class A(dict):\n    def __missing__(self, key): return 0\nf = A(a=2)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_objects_that_act_otherwise_have_other_digests(name):
    one, other = CLASSES[name]
    assert of(one) == of(one)
    assert of(one) != of(other)


def test_an_object_that_holds_itself_comes_to_an_end():
    one = types.SimpleNamespace(a=1)
    one.me = one
    other = types.SimpleNamespace(a=1)
    other.me = other
    assert digest(one) == digest(other)


class Odd:
    def __getattr__(self, name):
        raise RuntimeError("not mine to give")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.random.default_rng(0), "a Generator of numpy"),
        (np.random.default_rng(0).random, "a Generator of numpy"),
        (iter([1]), "a list_iterator of builtins"),
        (type("A", (logging.Handler,), {})(), "an? A of"),
        (pytest, None),
        (types.ModuleType("users"), "the module users"),
        (Odd(), "raises RuntimeError when looked at"),
    ],
    ids=["generator", "method", "iterator", "handler", "installed module", "module", "odd"],
)
def test_what_no_other_process_has_can_not_be_compared(value, message):
    if message is None:
        assert digest(value)
        return
    with pytest.raises(Unproven, match=message):
        digest(value)


def test_what_is_nested_too_deeply_can_not_be_compared():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(Unproven, match="nested too deeply"):
        digest(deep)
    while deep:  # Else its end would be a deep recursion, too.
        deep = deep.pop()
