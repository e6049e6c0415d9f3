"""Exceptions of user code: they arrive with their type, their text and the worker's traceback."""

import threading

import pytest

from penstock.workers import RemoteError, RemoteTraceback


class TwoArgumentsError(Exception):
    """Pickles, and does not unpickle: the classic mistake."""

    def __init__(self, code, detail):
        super().__init__(f"{code}: {detail}")


class LockedError(Exception):
    """Does not pickle at all."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class MuteError(Exception):
    def __str__(self):
        raise RuntimeError("no words")


def test_an_exception_arrives_with_its_type_text_and_traceback(make_pool, wait):
    def divide(inputs, outputs, meta):
        return 1 / meta

    pool = make_pool(divide)
    with pytest.raises(ZeroDivisionError, match="division by zero") as caught:
        wait(pool.submit(0, meta=0))
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert cause.text.startswith("Traceback (most recent call last):\n")
    assert "in divide\n    return 1 / meta" in cause.text
    assert "worker_main" not in cause.text  # our own frames are no news
    assert wait(pool.submit(1, meta=2)).value == 0.5  # and the worker goes on


def test_a_class_of_the_callers_own_arrives_as_that_very_class(make_pool, wait):
    class OwnError(ValueError):
        pass

    def fail(inputs, outputs, meta):
        raise OwnError("mine", meta)

    with pytest.raises(OwnError) as caught:
        wait(make_pool(fail).submit(0, meta=[1, 2]))
    assert caught.value.args == ("mine", [1, 2])


def test_the_chain_of_causes_is_in_the_traceback(make_pool, wait):
    def fail(inputs, outputs, meta):
        try:
            {}["key"]
        except KeyError as error:
            raise ValueError("no such row") from error

    with pytest.raises(ValueError, match="no such row") as caught:
        wait(make_pool(fail).submit(0))
    assert "KeyError: 'key'" in caught.value.__cause__.text
    assert "direct cause" in caught.value.__cause__.text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TwoArgumentsError, "TwoArgumentsError: 7: too far"),
        (LockedError, "LockedError: too far"),
        (MuteError, r"MuteError: \(its text cannot be had"),
    ],
)
def test_an_exception_that_cannot_travel_is_told_in_words(make_pool, wait, error, text):
    def fail(inputs, outputs, meta):
        raise error(*meta)

    arguments = (7, "too far") if error is TwoArgumentsError else ("too far",)
    with pytest.raises((RemoteError, MuteError)) as caught:
        wait(make_pool(fail).submit(0, meta=arguments))
    if error is not MuteError:  # which travels, mute as it is
        assert caught.match(text)
        assert caught.value.type_name.endswith(error.__name__)
    assert "in fail\n    raise error(*meta)" in caught.value.__cause__.text


def test_a_long_text_arrives_whole(make_pool, wait):
    def fail(inputs, outputs, meta):
        raise ValueError("x" * 1_000_000)

    with pytest.raises(ValueError, match=r"x{1000}") as caught:
        wait(make_pool(fail).submit(0))
    assert len(str(caught.value)) == 1_000_000


def test_a_value_that_cannot_be_pickled_is_an_error(make_pool, wait):
    pool = make_pool(lambda inputs, outputs, meta: (i for i in range(3)))
    with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
        wait(pool.submit(0))
    with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
        wait(pool.submit(1))


def test_a_value_that_cannot_be_loaded_here_is_an_error(make_pool, wait):
    def stubborn(inputs, outputs, meta):
        class Stubborn:
            def __reduce__(self):
                return int, ("not a number",)

        return Stubborn()

    pool = make_pool(stubborn)
    with pytest.raises(RemoteError, match="returned could not be loaded here: invalid literal"):
        wait(pool.submit(0))


def test_meta_that_cannot_be_loaded_there_is_an_error_and_the_worker_goes_on(make_pool, wait):
    class Stubborn:
        def __reduce__(self):
            return int, ("not a number",)

    pool = make_pool(lambda inputs, outputs, meta: meta)
    with pytest.raises(ValueError, match="invalid literal"):
        wait(pool.submit(0, meta=Stubborn()))
    assert wait(pool.submit(1, meta=3)).value == 3
    assert pool.num_restarts == 0


def test_meta_that_cannot_be_pickled_fails_at_the_callers_line(make_pool):
    pool = make_pool(lambda inputs, outputs, meta: meta)
    with pytest.raises(TypeError, match="cannot pickle"):
        pool.submit(0, meta=threading.Lock())


def test_classes_of_the_main_module_travel_both_ways(make_pool, wait):
    class Point:
        def __init__(self, x):
            self.x = x

    pool = make_pool(lambda inputs, outputs, meta: [Point(meta.x + 1)])
    value = wait(pool.submit(0, meta=Point(1))).value
    assert isinstance(value[0], Point)
    assert value[0].x == 2
