"""Nests come apart into leaves, and together again; lists and None are leaves."""

from collections import OrderedDict, namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.nest import (
    builder,
    field_names,
    flatten,
    plain_keys,
    tuple_of,
    unflatten,
)

Point = namedtuple("Point", ["x", "y"])
LEAVES = st.integers() | st.none() | st.text(max_size=3) | st.lists(st.integers(), max_size=2)
NESTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text("abc", max_size=2), inner, max_size=3)
        | st.builds(Point, inner, inner)
    ),
    max_leaves=8,
)


def leaves_of(nest: Any) -> list[Any]:
    """The leaves by the rule: tuples in order, dicts by sorted keys, all else is a leaf."""
    if isinstance(nest, dict):
        return [leaf for key in sorted(nest) for leaf in leaves_of(nest[key])]
    if isinstance(nest, tuple):
        return [leaf for part in nest for leaf in leaves_of(part)]
    return [nest]


@given(NESTS)
def test_a_nest_comes_apart_by_the_rule_and_together_as_it_was(nest: Any):
    leaves, structure = flatten(nest)
    assert leaves == leaves_of(nest)
    back = unflatten(structure, iter(leaves))
    assert back == nest
    assert type(back) is type(nest)
    assert flatten(back)[1] == structure


@given(NESTS)
def test_a_builder_makes_the_nest_and_is_none_for_a_flat_tuple(nest: Any):
    leaves, structure = flatten(nest)
    build = builder(structure)
    is_flat = type(nest) is tuple and nest and not any(isinstance(p, tuple | dict) for p in nest)
    assert (build is None) == bool(is_flat)
    if build is not None:
        made = build(tuple(leaves))
        assert made == nest
        assert type(made) is type(nest)


@given(st.lists(NESTS, max_size=3))
def test_the_tuple_of_structures_is_the_structure_of_the_tuple(nests: list[Any]):
    assert tuple_of([flatten(nest)[1] for nest in nests]) == flatten(tuple(nests))[1]


@given(NESTS)
def test_every_leaf_has_a_name(nest: Any):
    leaves, structure = flatten(nest)
    assert len(field_names(structure)) == len(leaves)


def test_names_are_paths_joined_by_dots_and_value_for_a_bare_leaf():
    nest = {"meta": {"id": 0, "at": (1, [2])}, "image": None}
    assert field_names(flatten(nest)[1]) == ["image", "meta.at.0", "meta.at.1", "meta.id"]
    assert field_names(flatten([1, 2])[1]) == ["value"]
    assert field_names(flatten(())[1]) == []


def test_plain_keys_are_those_of_a_flat_tuple_or_dict_and_nothing_else():
    assert plain_keys(flatten([1, 2])[1]) is None
    assert plain_keys(flatten(None)[1]) is None
    assert plain_keys(flatten((None,))[1]) == 1
    assert plain_keys(flatten((1, [2], "c"))[1]) == 3
    assert plain_keys(flatten({"b": 1, "a": [2]})[1]) == ("a", "b")
    for nest in [(), {}, (1, (2,)), {"a": {"b": 1}}, (1, ()), Point(1, 2), OrderedDict(a=1)]:
        structure = flatten(nest)[1]
        with pytest.raises(LookupError) as caught:
            plain_keys(structure)
        assert caught.value.args == (str(structure),)
