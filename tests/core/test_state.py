"""State: one place makes and reads the dict that users save."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.core.state import VERSION, State

GOOD = State("abc", 2, 5, [1, {"a": None}]).to_dict()


def test_a_state_survives_json():
    assert State.from_dict(json.loads(json.dumps(GOOD))) == State("abc", 2, 5, [1, {"a": None}])


def test_after_the_last_element_comes_the_start_of_the_next_epoch():
    assert State("abc", 2, 5, 5).at_end == State("abc", 3)


@given(st.integers(0, 5), st.integers(0, 6), st.integers(0, 40), st.integers(1, 7))
def test_counting_on_goes_through_epochs(epoch: int, element: int, count: int, total: int):
    found = State("abc", epoch, element % total, element % total or None).after(count, total)
    number = epoch * total + element % total + count
    assert (found.epoch, found.element) == divmod(number, total)
    assert found.cursor == (found.element or None)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (None, r"must be a dict made by state\(\), got None"),
        ([], "must be a dict"),
        ({}, "must be a dict"),
        ({"epoch": 1}, "must be a dict"),
        (GOOD | {"version": VERSION - 1}, f"has version {VERSION - 1}, and this penstock reads version {VERSION}"),
        (GOOD | {"epoch": -1}, "was changed since"),
        (GOOD | {"epoch": "1"}, "was changed since"),
        (GOOD | {"element": 1.5}, "was changed since"),
        (GOOD | {"element": True}, "was changed since"),
        (GOOD | {"more": 1}, "was changed since"),
        ({name: value for name, value in GOOD.items() if name != "epoch"}, "was changed since"),
    ],
)  # fmt: skip
def test_what_is_no_state_is_refused(wrong: object, message: str):
    with pytest.raises(ps.StateError, match=message):
        State.from_dict(wrong)


def test_a_state_of_another_chain_is_refused():
    State("abc", 0).check("abc")
    with pytest.raises(ps.StateError, match="fingerprint abc, this dataset xyz"):
        State("abc", 0).check("xyz")


def test_no_other_module_builds_the_dict_by_hand():
    package = Path(ps.__file__).parent
    built = re.compile(r"""["']element["']\s*[:\]]""")
    found = [
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if path.name != "state.py" and built.search(path.read_text())
    ]
    assert not found
