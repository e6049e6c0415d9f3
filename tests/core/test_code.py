"""Functions, compared by what they do: whatever can change a result tells, and nothing else does."""

import contextlib
import sys
import textwrap
import types

import pytest

from penstock.core.digests import Unproven, digest

HEAD = "import functools, operator, math\nimport numpy as np\n"


def made(text: str, name: str = "f"):
    """Return the function that a module of this text defines."""
    module = types.ModuleType("users_module")
    exec(compile(HEAD + textwrap.dedent(text), "users_module.py", "exec"), vars(module))
    return vars(module)[name]


def of(text: str) -> str:
    return digest(made(text))


# Two texts each, whose functions f give other results.
DIFFERENT = {
    "operator": ("def f(x): return x + 1", "def f(x): return x - 1"),
    "constant": ("def f(x): return x + 1", "def f(x): return x + 2"),
    "type of a constant": ("def f(x): return x + 1", "def f(x): return x + 1.0"),
    "sign of zero": ("def f(x): return x * 0.0", "def f(x): return x * -0.0"),
    "text": ("def f(x): return 'a'", "def f(x): return 'b'"),
    "constant in a set": ("def f(x): return x in {1, 2}", "def f(x): return x in {1, 3}"),
    "constant in a tuple": ("def f(x): return x in (1, 2)", "def f(x): return x in (1, 3)"),
    "attribute": ("def f(x): return x.real", "def f(x): return x.imag"),
    "default": ("def f(x, a=1): return x + a", "def f(x, a=2): return x + a"),
    "keyword default": ("def f(x, *, a=1): return x + a", "def f(x, *, a=2): return x + a"),
    "mutable default": ("def f(x, a=[1]): return a[x]", "def f(x, a=[2]): return a[x]"),
    "global": ("A = 1\ndef f(x): return x + A", "A = 2\ndef f(x): return x + A"),
    "global of another type": ("A = 1\ndef f(x): return x + A", "A = True\ndef f(x): return x + A"),
    "global dict": ("A = {0: 1}\ndef f(x): return A[x]", "A = {0: 2}\ndef f(x): return A[x]"),
    "order of a dict": (
        "A = {'a': 1, 'b': 2}\ndef f(x): return next(iter(A))",
        "A = {'b': 2, 'a': 1}\ndef f(x): return next(iter(A))",
    ),
    "global array": (
        "A = np.zeros(9)\ndef f(x): return A[x]",
        "A = np.zeros(9)\nA[4] = 1\ndef f(x): return A[x]",
    ),
    "large array": (
        "A = np.zeros(10**6)\ndef f(x): return A[x]",
        "A = np.zeros(10**6)\nA[-1] = 1\ndef f(x): return A[x]",
    ),
    "dtype of an array": (
        "A = np.zeros(9, 'i4')\ndef f(x): return A[x]",
        "A = np.zeros(9, 'f4')\ndef f(x): return A[x]",
    ),
    "shape of an array": (
        "A = np.zeros((2, 3))\ndef f(x): return A[x]",
        "A = np.zeros((3, 2))\ndef f(x): return A[x]",
    ),
    "missing global": ("def f(x): return A", "A = 1\ndef f(x): return A"),
    "called function": (
        "def g(x): return x\ndef f(x): return g(x)",
        "def g(x): return -x\ndef f(x): return g(x)",
    ),
    "function called by a called function": (
        "def h(x): return x\ndef g(x): return h(x)\ndef f(x): return g(x)",
        "def h(x): return -x\ndef g(x): return h(x)\ndef f(x): return g(x)",
    ),
    "function in a dict": (
        "A = {'a': lambda x: x}\ndef f(x): return A['a'](x)",
        "A = {'a': lambda x: -x}\ndef f(x): return A['a'](x)",
    ),
    "package's function": ("def f(x): return np.sin(x)", "def f(x): return np.cos(x)"),
    "package's function by another name": (
        "from math import sin as g\ndef f(x): return g(x)",
        "from math import cos as g\ndef f(x): return g(x)",
    ),
    "ufunc": ("g = np.sin\ndef f(x): return g(x)", "g = np.cos\ndef f(x): return g(x)"),
    "closure": (
        "def make(a):\n    return lambda x: x + a\nf = make(1)",
        "def make(a):\n    return lambda x: x + a\nf = make(2)",
    ),
    "function in a function": (
        "def f(x):\n    def g(): return x\n    return g()",
        "def f(x):\n    def g(): return -x\n    return g()",
    ),
    "global of a function in a function": (
        "A = 1\ndef f(x): return [A + y for y in x]",
        "A = 2\ndef f(x): return [A + y for y in x]",
    ),
    "partial": (
        "def g(a, x): return a + x\nf = functools.partial(g, 1)",
        "def g(a, x): return a + x\nf = functools.partial(g, 2)",
    ),
    "keyword of a partial": (
        "def g(x, a): return a + x\nf = functools.partial(g, a=1)",
        "def g(x, a): return a + x\nf = functools.partial(g, a=2)",
    ),
    "function of a partial": (
        "f = functools.partial(lambda a, x: a + x, 1)",
        "f = functools.partial(lambda a, x: a - x, 1)",
    ),
    "cached function": (
        "@functools.lru_cache\ndef f(x): return x",
        "@functools.lru_cache\ndef f(x): return -x",
    ),
    "decorated function": (
        "def d(g):\n    @functools.wraps(g)\n    def w(x): return g(x)\n    return w\n@d\ndef f(x): return x",
        "def d(g):\n    @functools.wraps(g)\n    def w(x): return g(x)\n    return w\n@d\ndef f(x): return -x",
    ),
    "decorator": (
        "def d(g):\n    @functools.wraps(g)\n    def w(x): return g(x)\n    return w\n@d\ndef f(x): return x",
        "def d(g):\n    @functools.wraps(g)\n    def w(x): return -g(x)\n    return w\n@d\ndef f(x): return x",
    ),
    "attribute of the function": (
        "def f(x): return x + f.a\nf.a = 1",
        "def f(x): return x + f.a\nf.a = 2",
    ),
    "getter": ("f = operator.itemgetter(0)", "f = operator.itemgetter(1)"),
    "method of a constant": ("f = 'a'.join", "f = 'b'.join"),
    "except": (
        "def f(x):\n    try: return x[0]\n    except IndexError: return 0",
        "def f(x):\n    try: return x[0]\n    except KeyError: return 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_can_change_a_result_tells(name):
    one, other = DIFFERENT[name]
    assert of(one) != of(other)
    assert of(one) == of(one)
    assert of(other) == of(other)


# Texts whose functions f do the same.
SAME = {
    "lines": ("def f(x): return x + 1", "\n\n# A comment\ndef f(x):\n\n    return x + 1  # Another"),
    "unused global": ("A = 1\ndef f(x): return x", "A = 2\ndef f(x): return x"),
    "global with the name of an attribute": ("real = 1\ndef f(x): return x.real", "def f(x): return x.real"),
    "annotations": ("def f(x): return x", "def f(x: int) -> int: return x"),
    "what is only added to": (
        "A = []\ndef f(x):\n    A.append(x)\n    return x",
        "A = [1, 2]\ndef f(x):\n    A.append(x)\n    return x",
    ),
    "order in which a set was made": (
        "A = {'a', 'b', 'c'}\ndef f(x): return x in A",
        "A = {'c', 'b', 'a'}\ndef f(x): return x in A",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_what_changes_no_result_does_not_tell(name):
    one, other = SAME[name]
    assert of(one) == of(other)


def test_a_list_that_is_read_as_well_tells():
    text = "A = [{}]\ndef f(x):\n    A.append(x)\n    return len(A)"
    assert of(text.format(1)) != of(text.format("1, 2"))


def test_functions_that_call_each_other_come_to_an_end():
    text = "def f(x): return g(x)\ndef g(x): return f(x) + {}"
    assert of(text.format(1)) == of(text.format(1))
    assert of(text.format(1)) != of(text.format(2))


def test_a_module_of_the_users_counts_by_what_is_used_of_it(monkeypatch):
    def users_text(helper: str, text: str) -> str:
        module = types.ModuleType("users_helper")
        exec(helper, vars(module))
        monkeypatch.setitem(sys.modules, "users_helper", module)
        return of(text)

    uses = [
        "import users_helper\ndef f(x): return users_helper.g(x)",
        "import users_helper as h\ndef f(x): return (lambda: h.g(x))()",
        "from users_helper import g\ndef f(x): return g(x)",
        "def f(x):\n    from users_helper import g\n    return g(x)",
        "def f(x):\n    import users_helper\n    return users_helper.g(x)",
        "import users_helper\ndef make(m): return lambda x: m.g(x)\nf = make(users_helper)",
    ]
    one, unused, other = (
        f"A = {a}\nB = {b}\ndef g(x): return x + A\n" for a, b in ((1, 1), (1, 2), (2, 1))
    )
    for text in uses:
        assert users_text(one, text) == users_text(unused, text)
        assert users_text(one, text) != users_text(other, text)


def test_modules_that_refer_to_each_other_come_to_an_end():
    names = [f"users_{letter}" for letter in "abcdefghijkl"]
    modules = {name: types.ModuleType(name) for name in names}
    for number, module in enumerate(modules.values()):
        vars(module).update(modules, value=number)
    text = f"def f(x): return {', '.join(f'{name}.users_a.value' for name in names)}"
    function = made(text)
    function.__globals__.update(modules)
    before = digest(function)
    assert before == digest(function)
    modules["users_a"].value = "another"
    assert before != digest(function)


UNPROVEN = {
    "RANDOM, a Generator of numpy": "RANDOM = np.random.default_rng(0)\ndef f(x): return RANDOM.random()",
    "file, a TextIOWrapper of _io": "file = open('/dev/null')\ndef f(x): return file.read()",
    r"eval\(\), which can reach anything": "def f(x): return eval('x + 1')",
    "rows, a generator of builtins": "rows = (x for x in 'ab')\ndef f(x): return next(rows)",
    "can't be imported here": "def f(x):\n    import no_such_module\n    return x",
    "model, a vectorize of numpy": "model = np.vectorize(lambda x: x)\ndef f(x): return model(x)",
    "b, a lock of _thread": "import threading\nA = {'b': threading.Lock()}\nb = A['b']\ndef f(x): return b",
}


@pytest.mark.parametrize("message", UNPROVEN)
def test_what_can_not_be_compared_is_named(message):
    function = made(UNPROVEN[message])
    try:
        with pytest.raises(Unproven, match=message):
            digest(function)
    finally:
        getattr(function.__globals__.get("file"), "close", list)()


def test_a_package_that_wraps_the_users_function_does_not_hide_it():
    one, other = (contextlib.contextmanager(made(f"def f(x): yield {sign}x")) for sign in "+-")
    assert digest(one) != digest(other)


# What may reach anything, or comes from elsewhere: no other run can be compared with it.
REACHING = {
    "a module as an argument": "def g(m, x): return m.K * x\ndef f(x): return g(users, x)",
    "getattr": "def f(x): return getattr(users, 'K') * x",
    "vars": "def f(x): return vars(users)['K'] * x",
    "its dict": "def f(x): return users.__dict__['K'] * x",
    "in a function within": "def f(x): return [getattr(users, 'K') for _ in x]",
    "a closure": "def o(m):\n def f(x): return getattr(m, 'K')\n return f\nf = o(users)",
    "sys.modules": "import sys\ndef f(x): return sys.modules['users'].K * x",
    "import_module": "import importlib\ndef f(x): return importlib.import_module('users').K * x",
    "NumPy's own generator": "def f(x): return x + np.random.rand()",
    "the same in a module": "import numpy.random as nr\ndef f(x): return x + nr.normal()",
    "Python's own generator": "import random\ndef f(x): return x + random.random()",
    "within a comprehension": "import random\ndef f(x): return [random.random() for _ in x]",
}


@pytest.mark.parametrize("name", REACHING)
def test_what_may_reach_anything_can_not_be_compared(name, monkeypatch):
    users = types.ModuleType("users")
    users.K = 2
    monkeypatch.setitem(sys.modules, "users", users)
    with pytest.raises(Unproven, match=r"users|\bm\b|reach anything|come from elsewhere"):
        of("import users\n" + REACHING[name])


def test_modules_that_are_used_by_name_can_be_compared(monkeypatch):
    users = types.ModuleType("users")
    users.K = 2
    monkeypatch.setitem(sys.modules, "users", users)
    text = "import users\ndef g(m, x): return m.abs(x)\n"
    text += "def f(x): return g(np, x) + users.K + np.random.default_rng(7).normal()"
    before = of(text)
    assert of(text) == before
    users.K = 3
    assert of(text) != before
