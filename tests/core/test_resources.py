"""Resources are made once, and closed together: the newest first, and each until it did close."""

import threading

import pytest

from penstock.core.resources import Resources


class Door:
    def __init__(self, name: str, closed: list[str], *errors: BaseException) -> None:
        self.name = name
        self.closed = closed
        self.errors = list(errors)

    def close(self) -> None:
        if self.errors:
            raise self.errors.pop(0)
        self.closed.append(self.name)


def test_a_key_is_made_once_and_is_then_the_very_same():
    resources, closed = Resources(), []
    first = resources.get(("a", 1), lambda: Door("a", closed))
    assert resources.get(("a", 1), lambda: pytest.fail("made twice")) is first
    assert resources.get(("a", 2), lambda: Door("b", closed)) is not first
    resources.close()
    assert closed == ["b", "a"]


def test_all_are_closed_newest_first_and_only_once():
    resources, closed = Resources(), []
    for name in "abc":
        resources.get(name, lambda name=name: Door(name, closed))
    resources.get("a", lambda: pytest.fail("made twice"))  # asked for again is not newer
    resources.close()
    assert closed == ["c", "b", "a"]
    resources.close()
    assert closed == ["c", "b", "a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError("disk full")])
def test_a_close_that_was_interrupted_is_tried_again_and_the_rest_follows(error: BaseException):
    resources, closed = Resources(), []
    resources.get("a", lambda: Door("a", closed))
    resources.get("b", lambda: Door("b", closed, error))
    resources.get("c", lambda: Door("c", closed))
    with pytest.raises(type(error)) as caught:
        resources.close()
    assert caught.value is error
    assert closed == ["c"]
    resources.close()
    assert closed == ["c", "b", "a"]


def test_what_could_not_be_made_is_made_by_the_next_who_asks():
    resources, closed = Resources(), []

    def refuse() -> Door:
        raise OSError("no such file")

    with pytest.raises(OSError, match=r"^no such file$"):
        resources.get("a", refuse)
    resources.close()
    assert resources.get("a", lambda: Door("a", closed)).name == "a"
    resources.close()
    assert closed == ["a"]


def test_threads_that_ask_at_once_get_the_one_that_was_made():
    resources, closed, made, found = Resources(), [], [], []
    together = threading.Barrier(8)

    def make() -> Door:
        made.append(Door("a", closed))
        return made[-1]

    def ask() -> None:
        together.wait()
        found.append(resources.get("a", make))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert found == made * 8


def test_what_is_watched_is_closed_if_anybody_still_refers_to_it():
    resources, closed = Resources(), []
    kept, gone = Door("kept", closed), Door("gone", closed)
    for one in (kept, gone):
        resources.watch(one)
    resources.get("a", lambda: Door("a", closed))
    del one, gone
    resources.close()
    assert closed == ["kept", "a"]
