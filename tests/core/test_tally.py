"""Bad rows are counted, the first errors are kept as text, and one too many is raised."""

import threading

import pytest

from penstock.core.tally import SHOWN, Tally
from penstock.errors import DataError


def test_errors_count_the_rows_they_cost_and_the_first_are_kept_as_text():
    tally = Tally()
    for number in range(SHOWN + 5):
        tally.add(ValueError(f"row {number}"), num_rows=number)
    tally.add_rows(ValueError("row 1"), 7)
    assert tally.num_errors == SHOWN + 5
    assert tally.count == sum(range(SHOWN + 5)) + 7
    assert tally.first == [f"row {number}" for number in range(SHOWN)]


def test_the_notes_of_an_error_are_kept_below_it():
    error = ValueError("bad")
    error.add_note("in line 3")
    error.add_note("of f")
    tally = Tally()
    tally.add(error)
    assert tally.first == ["bad\nin line 3\nof f"]
    assert (tally.count, tally.num_errors) == (1, 1)


def test_rows_are_counted_for_the_files_that_they_are_of():
    tally = Tally()
    bad = DataError("damaged", file="a.npz")
    tally.add(bad, num_rows=3)
    tally.add_rows(bad, 2)
    tally.add(DataError("damaged", file="b.npz"))
    tally.add(ValueError("of no file"))
    tally.add_rows(ValueError("of no file"), 1)
    assert tally.files == {"a.npz": 5, "b.npz": 1}
    assert tally.count == 8


@pytest.mark.parametrize("max_errors", [0, 1, 3])
def test_the_error_after_max_errors_is_raised_itself_with_a_note(max_errors: int):
    tally = Tally(max_errors)
    for number in range(max_errors):
        tally.add(ValueError(str(number)), num_rows=100)  # rows are not errors
    last = OSError("one too many")
    with pytest.raises(OSError, match=r"^one too many\n") as caught:
        tally.add(last)
    assert caught.value is last
    assert last.__notes__ == [f"This one is more than max_errors={max_errors} allows."]
    assert tally.num_errors == max_errors + 1
    assert tally.first[-1] == "one too many"


def test_threads_lose_no_error_and_exactly_those_above_the_limit_are_raised():
    tally, raised, together = Tally(max_errors=1500), [], threading.Barrier(4)

    def work() -> None:
        together.wait()
        for _ in range(500):
            try:
                tally.add(ValueError("bad"), num_rows=2)
            except ValueError as error:
                raised.append(error)
            tally.add_rows(ValueError("bad"), 1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (tally.num_errors, tally.count) == (2000, 6000)
    assert len(raised) == 500
    assert len(tally.first) == SHOWN
