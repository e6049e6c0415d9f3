"""Work that several threads do together: each piece once, and an error ends it for all who wait."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.stages.shuffle.together import Together


def test_every_piece_is_begun_in_order_and_done_once_and_then_it_is_finished():
    begun, done, finished = [], [], []
    lock = threading.Lock()

    def work(piece):
        with lock:
            done.append(piece)

    together = Together(
        50, lambda piece: begun.append(piece) or piece, work, lambda: finished.append(len(done))
    )
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(together.complete) for _ in range(4)]:
            future.result(timeout=30)
    assert begun == list(range(50))
    assert sorted(done) == list(range(50))
    assert finished == [50]
    assert not together.do_next()


@pytest.mark.parametrize("where", ["begin", "work", "finish"])
def test_an_error_anywhere_reaches_everybody_who_waits(where):
    is_waited_for = threading.Event()

    def fails(name):
        if name == where:
            raise OSError(f"no {name}")

    def begin(piece):
        if piece == 1:
            fails("begin")
        return piece

    def work(piece):
        # The first piece is under way until another thread has nothing left to do but to wait.
        if piece == 0:
            assert is_waited_for.wait(30)
            fails("work")

    together = Together(2, begin, work, lambda: fails("finish"))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(together.do_next)
        second = pool.submit(together.complete)
        is_waited_for.set()
        errors = [future.exception(timeout=30) for future in (first, second)]
    assert any(isinstance(error, OSError) for error in errors)
    with pytest.raises(OSError, match=f"no {where}"):
        together.complete()
    assert not together.do_next()


def test_no_pieces_are_done_at_once():
    Together(0, lambda piece: piece, lambda _: None).complete()


def test_no_more_pieces_are_begun_than_are_allowed_until_all_are():
    done = []
    together = Together(5, lambda piece: piece, done.append, allowed=2)
    assert not together.allows_all
    while together.do_next():
        pass
    assert done == [0, 1]
    together.allow_all()
    assert together.allows_all
    together.complete()
    assert done == [0, 1, 2, 3, 4]
