"""Names and arguments of other libraries: what to write here instead."""

import inspect
import re
from pathlib import Path

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
    with pytest.raises(TypeError, match=r"^example needs 'first': it takes first, second, seed\.$"):
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


def test_any_name_may_be_given_to_a_function_that_takes_all() -> None:
    @teaching
    def takes_all(first: int, **more: int) -> int:
        return first + sum(more.values())

    assert takes_all(1, second=2) == 3
    with pytest.raises(TypeError, match="takes_all needs 'first'"):
        takes_all(second=2)


PAGE = (Path(__file__).parents[2] / "docs" / "coming_from.md").read_text()


@pytest.mark.parametrize(
    ("heading", "pattern"),
    [
        ("tf.data.Dataset", "[a-z_]+"),
        ("torch.utils.data", r"\w+Dataset|random_split"),
        ("Grain", "map_with_index|random_map|batch_and_pad|slice|pipe|to_iter_dataset|mp_prefetch"),
    ],
)
def test_what_the_page_says_of_a_name_its_error_says_too(heading: str, pattern: str) -> None:
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    names = {name for cell in cells for name in re.findall(f"`({pattern})`", cell)}
    assert len(names) > 5
    assert names - {*dir(Dataset), *METHODS, *NAMES} == set()


@pytest.mark.parametrize(
    "name", ["with_formats", "decoder", "selects", "to_iter", "nodes", "specs", "optio", "__iter"]
)
def test_neither_properties_nor_what_python_calls_are_proposed(name: str) -> None:
    with pytest.raises(AttributeError, match=f"a Dataset has no '{name}'\\.$"):
        getattr(ps.from_arrays([b"a"]), name)


def test_names_that_are_near_are_named() -> None:
    assert attribute_words("it", "shufle", ["shuffle", "map"], {}) == (
        "it has no 'shufle': did you mean shuffle?"
    )
    assert attribute_words("it", "__array__", ["__array_priority__"], {}) == (
        "it has no '__array__'."
    )
