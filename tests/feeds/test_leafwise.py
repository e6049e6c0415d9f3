"""A function for each leaf, whatever the nest, and functions one after the other."""

import pytest

from penstock.core.nest import flatten
from penstock.feeds.leafwise import chained, leafwise


def double(leaf):
    return leaf * 2


def negative(leaf):
    return -leaf


NESTS = {
    "leaf": (3, 6),
    "tuple of one": ((3,), (6,)),
    "pair": ((3, 4), (6, 4)),
    "triple": ((3, 4, 5), (6, 4, -5)),
    "dict of two": ({"b": 4, "a": 3}, {"a": 6, "b": 4}),
    "tuple in a tuple": (((3, 4),), ((6, 4),)),
    "dict in a tuple": (({"b": 4, "a": 3}, 5), ({"a": 6, "b": 4}, -5)),
}


@pytest.mark.parametrize("kind", NESTS)
def test_each_leaf_goes_through_its_own_function_and_the_nest_stays(kind):
    batch, expected = NESTS[kind]
    structure = flatten(batch)[1]
    functions = [double, None, negative][: structure.num_leaves]
    found = leafwise(structure, functions)(batch)
    assert found == expected
    assert type(found) is type(batch)


@pytest.mark.parametrize("kind", NESTS)
def test_nothing_to_do_is_no_function_at_all(kind):
    structure = flatten(NESTS[kind][0])[1]
    assert leafwise(structure, [None] * structure.num_leaves) is None


def test_a_bare_leaf_is_given_to_the_function_itself():
    assert leafwise(flatten(0)[1], [double]) is double


def test_chained_functions_are_called_in_order_and_what_is_none_is_left_out():
    assert chained() is None
    assert chained(None, None) is None
    assert chained(None, double) is double
    assert chained(lambda x: x + 1, None, double, negative)(3) == -8
