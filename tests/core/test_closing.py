"""The end of a `with` closes, however it ends."""

import pytest

from penstock.core.closing import Closing


class Door(Closing):
    def __init__(self) -> None:
        self.num_closed = 0

    def close(self) -> None:
        self.num_closed += 1


def test_with_gives_the_very_object_and_closes_it_at_the_end():
    door = Door()
    with door as same:
        assert same is door
        assert door.num_closed == 0
    assert door.num_closed == 1


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt(), SystemExit(3)])
def test_an_error_closes_it_and_goes_on(error: BaseException):
    door = Door()
    with pytest.raises(type(error)) as caught, door:
        raise error
    assert caught.value is error
    assert door.num_closed == 1


def test_an_error_of_close_is_raised_after_the_error_before_it():
    class Stuck(Closing):
        def close(self) -> None:
            raise OSError("stuck")

    with pytest.raises(OSError, match=r"^stuck$") as caught, Stuck():
        raise ValueError("first")
    assert isinstance(caught.value.__context__, ValueError)


def test_a_class_without_close_cannot_be_made():
    class Wall(Closing):
        pass

    with pytest.raises(TypeError, match=r"abstract method '?close"):
        Wall()


def test_the_base_adds_no_dict_to_a_class_with_slots():
    class Small(Closing):
        __slots__ = ()

        def close(self) -> None:
            pass

    assert not hasattr(Small(), "__dict__")
