"""Names and arguments of other libraries: what to write here instead."""

import inspect

import pytest

import penstock as ps
from penstock.core.habits import ARGUMENTS, METHODS, NAMES, attribute_words, teaching
from penstock.dataset import Dataset


@teaching
def example(first: int, second: int = 0, *, seed: int = 0) -> tuple[int, int, int]:
    """Return what came."""
    return first, second, seed


def test_a_function_that_teaches_does_what_it_did() -> None:
    assert example(1, 2, seed=3) == (1, 2, 3)
    assert str(inspect.signature(example)).startswith("(first: int, second: int = 0, *, seed: int")
    assert example.__doc__ == "Return what came."
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'first'"):
        example()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: example(1, sed=2), r"example has no argument 'sed': did you mean seed\?"),
        (lambda: example(1, wholly=2), "no argument 'wholly': it takes first, second, seed."),
        (lambda: example(1, 2, 3), "takes 2 by position, got 3. Others need their names: first, "),
    ],
)
def test_an_argument_that_is_not_there_is_told_with_those_that_are(call, message) -> None:
    with pytest.raises(TypeError, match=message):
        call()


def test_every_cure_is_for_a_function_that_lacks_the_argument() -> None:
    """Else it would never be shown, or be wrong."""
    for name, cures in ARGUMENTS.items():
        function = getattr(ps, name, None) or getattr(Dataset, name)
        assert hasattr(function, "__wrapped__"), f"{name} does not teach"
        parameters = inspect.signature(function).parameters
        for argument in cures:
            missing = argument not in parameters
            required = not missing and parameters[argument].default is inspect.Parameter.empty
            assert missing or required, f"{name} has {argument}"


def test_every_name_that_is_explained_is_not_there() -> None:
    assert not set(METHODS) & set(dir(Dataset))
    assert not set(NAMES) & set(ps.__all__)


def test_a_name_that_is_not_there_is_no_attribute() -> None:
    """So that `hasattr`, pickle and frameworks that probe go on as ever."""
    ds = ps.from_arrays([b"a"])
    assert not hasattr(ds, "cardinality")
    assert not hasattr(ds, "__array__")
    assert not hasattr(ps, "from_tensor_slices")


def test_names_that_are_near_are_named() -> None:
    assert attribute_words("it", "shufle", ["shuffle", "map"], {}) == (
        "it has no 'shufle': did you mean shuffle?"
    )
    assert attribute_words("it", "__array__", ["__array_priority__"], {}) == (
        "it has no '__array__'."
    )
