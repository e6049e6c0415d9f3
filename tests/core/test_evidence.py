"""Evidence: what is compared, or why nothing can be."""

import pytest

from penstock.core.evidence import Evidence, Unproven, unproven


def test_what_was_found_is_compared():
    assert Evidence("file x", lambda: [1, 2], "file").found() == ([1, 2], "")


def test_what_can_not_be_compared_says_why():
    assert Evidence("gen", unproven("it may do anything"), "code").found() == (
        None,
        "it may do anything",
    )


def test_other_errors_are_not_swallowed():
    def fail():
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        Evidence("file x", fail, "file").found()


def test_the_text_of_unproven_is_its_reason():
    assert str(Unproven("model, a Model of keras", is_named=True)) == "model, a Model of keras"
