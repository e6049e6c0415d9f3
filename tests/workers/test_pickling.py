"""Which functions can be sent, and what is said about those that cannot."""

import functools
import pickle
import subprocess
import sys
import threading
from dataclasses import dataclass

import pytest

from penstock.workers import CannotPickle, pickle_function, pool
from penstock.workers.pickling import load_cloudpickle

GLOBAL_LOCK = threading.Lock()


def uses_global(x):
    with GLOBAL_LOCK:
        return x


def double(x):
    return 2 * x


class Holder:
    def __init__(self):
        self.parts = {"lock": threading.Lock()}

    def method(self, x):
        return x

    def __call__(self, x):
        return x


@dataclass(frozen=True, slots=True)
class Rows:
    """As the engine wraps a user's function in one of its own."""

    function: object

    def __call__(self, x):
        return self.function(x)


def test_lambdas_and_closures_can_be_sent():
    factor = 3
    assert pickle.loads(pickle_function(lambda x: factor * x))(2) == 6


def test_functions_of_importable_modules_go_by_name():
    assert len(pickle_function(functools.partial)) < 100
    assert b"functools" in pickle_function(functools.reduce)


def test_a_function_of_a_module_that_cannot_be_imported_elsewhere_goes_by_value():
    # This file is loaded by pytest under a name that a fresh interpreter need not know.
    code = "import pickle, sys; print(pickle.load(sys.stdin.buffer)(21))"
    for function in (double, functools.partial(double), Rows(double), Rows(lambda x: double(x))):
        pickled = pickle_function(function)
        run = subprocess.run(
            [sys.executable, "-c", code], input=pickled, capture_output=True, check=False
        )
        assert (run.stdout, run.stderr) == (b"42\n", b"")


def test_what_the_user_registered_stays_registered():
    cloudpickle = load_cloudpickle()
    module = sys.modules[__name__]
    pickle_function(double)
    assert module.__name__ not in cloudpickle.list_registry_pickle_by_value()
    cloudpickle.register_pickle_by_value(module)
    try:
        pickle_function(double)
        assert module.__name__ in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def culprit(function):
    with pytest.raises(CannotPickle) as caught:
        pickle_function(function)
    return str(caught.value)


def test_a_variable_that_cannot_be_pickled_is_named_with_the_cure():
    lock = threading.Lock()

    def locked(x):
        with lock:
            return x

    message = culprit(locked)
    assert (
        "locked cannot be sent to worker processes: the variable 'lock' is a _thread.lock"
        in message
    )
    assert "Make it inside the function" in message
    assert "with_options(processes=0)" in message


def test_a_global_that_cannot_be_pickled_is_named(monkeypatch):
    monkeypatch.setattr(uses_global, "__module__", "__main__")
    assert "the global 'GLOBAL_LOCK' is a _thread.lock" in culprit(uses_global)


def test_the_innermost_culprit_is_named_with_its_path():
    holder = Holder()
    path = "item 'lock' of the attribute 'parts' of "
    assert path + "the object it is a method of is a _thread.lock" in culprit(holder.method)
    assert path + "argument 0 of the partial is a" in culprit(functools.partial(print, holder))
    assert path + "argument 'x' of the partial is a" in culprit(functools.partial(print, x=holder))
    assert path + "the variable 'holder' is a _thread.lock" in culprit(lambda x: holder)
    assert "item 'lock' of the attribute 'parts' is a _thread.lock" in culprit(holder)


def test_defaults_are_looked_at():
    lock = threading.Lock()
    assert "a default argument is a _thread.lock" in culprit(lambda x, y=lock: x)
    assert "the default of argument 'y' is a _thread.lock" in culprit(lambda x, *, y=lock: x)


def test_a_name_of_the_callers_choice_is_used():
    lock = threading.Lock()
    with pytest.raises(CannotPickle, match=r"^map\(f\), train.py:3 cannot be sent"):
        pickle_function(lambda x: lock, name="map(f), train.py:3")


def test_the_error_is_a_type_error_with_its_cause():
    lock = threading.Lock()
    with pytest.raises(TypeError) as caught:
        pickle_function(lambda x: lock)
    assert "cannot pickle" in str(caught.value.__cause__)


def test_a_missing_cloudpickle_is_named_with_the_cure(monkeypatch):
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(
        ImportError, match=r"needs cloudpickle: pip install 'penstock\[processes\]'"
    ):
        load_cloudpickle()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (
            lambda patch: patch.setattr(pool.sys, "frozen", True, raising=False),
            "frozen application",
        ),
        (lambda patch: patch.setattr(pool.sys, "executable", ""), "embedded in another program"),
        (
            lambda patch: patch.setattr(pool.importlib.util, "find_spec", lambda name: None),
            "needs cloudpickle",
        ),
    ],
)
def test_where_workers_cannot_run_the_reason_is_said(monkeypatch, change, reason):
    assert pool.unavailable_reason() is None
    change(monkeypatch)
    assert reason in pool.unavailable_reason()
    with pytest.raises(RuntimeError, match=rf"map\(f\) cannot run in processes: .*{reason}"):
        pool.WorkerPool(1, b"", name="map(f)")
