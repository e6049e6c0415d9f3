"""RANK and WORLD_SIZE, right and wrong."""

import pytest

from penstock.ranks.by_environment import place


@pytest.mark.parametrize(
    ("rank", "world", "expected"),
    [
        (None, None, None),
        ("", "", None),
        ("0", "1", (0, 1, 1)),
        ("3", "4", (3, 4, 1)),
        (" 3 ", "1024\n", (3, 1024, 1)),
    ],
)
def test_rank_and_world_size_tell_the_rank(rank, world, expected, monkeypatch):
    set_both(monkeypatch, rank, world)
    assert place() == expected


@pytest.mark.parametrize(
    ("rank", "world", "message"),
    [
        ("0", None, "come together, got RANK='0' and no WORLD_SIZE. Set both as torchrun does"),
        (None, "2", "come together, got WORLD_SIZE='2' and no RANK"),
        ("x", "2", "from 0 to WORLD_SIZE - 1, got RANK='x' and WORLD_SIZE='2'"),
        ("0", "two", "got RANK='0' and WORLD_SIZE='two'"),
        ("2", "2", "got RANK='2' and WORLD_SIZE='2'"),
        ("-1", "2", "got RANK='-1' and WORLD_SIZE='2'"),
        ("0", "0", "got RANK='0' and WORLD_SIZE='0'"),
        ("0.0", "2", r"got RANK='0\.0' and WORLD_SIZE='2'"),
    ],
)
def test_wrong_numbers_are_refused_with_what_came(rank, world, message, monkeypatch):
    set_both(monkeypatch, rank, world)
    with pytest.raises(ValueError, match=message):
        place()


def set_both(monkeypatch, rank, world):
    for name, value in (("RANK", rank), ("WORLD_SIZE", world)):
        if value is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, value)
