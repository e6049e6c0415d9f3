"""Arguments are checked with messages that say the rule and the value that came."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.arguments import local_path, one_of, whole_number


@given(
    value=st.integers(-(2**70), 2**70) | st.integers(-(2**31), 2**31 - 1).map(np.int32),
    least=st.integers(-3, 3),
)
def test_a_whole_number_is_an_int_of_at_least_the_least(value: Any, least: int):
    if value >= least:
        found = whole_number("size", value, least=least)
        assert found == value
        assert type(found) is int
    else:
        with pytest.raises(ValueError, match=f"^size must be at least {least}, got {value}\\.$"):
            whole_number("size", value, least=least)


@pytest.mark.parametrize("value", [True, False, 2.0, "2", None, np.float64(2), [2]])
def test_what_only_looks_like_a_whole_number_is_refused(value: Any):
    message = re.escape(f"size must be a whole number, got {value!r}.")
    with pytest.raises(TypeError, match=f"^{message}$"):
        whole_number("size", value, least=0)


def test_an_array_of_one_number_is_taken_only_without_axes():
    assert whole_number("size", np.array(3), least=0) == 3
    with pytest.raises(TypeError, match="integer scalar"):
        whole_number("size", np.array([3]), least=0)


@pytest.mark.parametrize(
    ("choices", "rule"),
    [
        (["raise"], '"raise"'),
        (["raise", "skip"], '"raise" or "skip"'),
        (["a", "b", "c"], "one of a, b, c"),
    ],
)
@pytest.mark.parametrize("value", ["Raise", "", None, 1, ["raise"]])
def test_what_is_none_of_the_choices_is_told_the_choices(choices: list[str], rule: str, value: Any):
    for one in choices:
        one_of("mode", one, choices)
    with pytest.raises(ValueError, match=f"^{re.escape(f'mode must be {rule}, got {value!r}.')}$"):
        one_of("mode", value, choices)


def test_choices_may_be_an_iterator_or_the_keys_of_a_dict():
    one_of("mode", "b", iter("ab"))
    with pytest.raises(ValueError, match=r"^mode must be \"x\" or \"y\", got 'z'\.$"):
        one_of("mode", "z", {"x": 1, "y": 2}.keys())


def test_a_number_may_have_an_upper_end():
    assert whole_number("n", 7, least=0, most=7) == 7
    with pytest.raises(ValueError, match="n must be at most 7, got 8"):
        whole_number("n", 8, least=0, most=7)


def test_a_path_is_absolute_and_one_that_no_file_can_have_is_refused(tmp_path: Path):
    assert local_path("path", tmp_path) == tmp_path
    assert local_path("path", "x") == Path.cwd() / "x"
    with pytest.raises(
        ValueError, match=r"path must not have a NUL character in it, got 'a\\x00b'"
    ):
        local_path("path", "a\0b")
    with pytest.raises(TypeError, match="path must be a str or a path"):
        local_path("path", b"x")  # type: ignore[arg-type]  # That is what is tested.
    for url in (
        "s3://key:secret@bucket/x",
        "gs:/bucket",
    ):  # The second is what a Path makes of one.
        with pytest.raises(
            ValueError, match=r"must be a folder on this machine, got a URL, \w\w://\.\.\.$"
        ):
            local_path("path", url)
