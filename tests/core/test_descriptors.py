"""A descriptor is closed once, whatever strikes, and a lock of the parent's does not live on in a forked child."""

import os
import signal
from pathlib import Path

import pytest

from penstock.core.descriptors import Descriptor


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def test_a_second_close_leaves_the_next_owner_of_the_number_alone(tmp_path: Path):
    one = Descriptor(os.open(tmp_path, os.O_RDONLY))
    number = one.number
    one.close()
    assert one.number == -1
    next_owner = os.open(tmp_path, os.O_RDONLY)
    assert next_owner == number
    one.close()
    assert is_open(next_owner)
    os.close(next_owner)


def test_one_that_was_never_opened_has_nothing_to_close():
    Descriptor(-1).close()


def test_after_a_signal_at_any_moment_the_next_close_closes_it_once(tmp_path: Path):
    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    try:
        for wait in range(1, 400):
            one = Descriptor(os.open(tmp_path, os.O_RDONLY))
            number = one.number
            try:
                signal.setitimer(signal.ITIMER_REAL, wait * 1e-7)
                one.close()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                one.close()
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
            assert not is_open(number)
    except KeyboardInterrupt:  # It came late, and not where it was meant to.
        pass
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.filterwarnings("ignore:This process.*fork:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:os.fork:RuntimeWarning")  # JAX, if an earlier test started it
@pytest.mark.parametrize("is_private", [True, False])
def test_a_forked_child_closes_its_copy_of_a_private_one(tmp_path: Path, is_private: bool):
    one = Descriptor(os.open(tmp_path, os.O_RDONLY), is_private=is_private)
    number = one.number
    child = os.fork()
    if not child:
        os._exit(0 if is_open(number) != is_private and (one.number < 0) == is_private else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert is_open(number)
    one.close()
