"""Where all threads are, also while there is garbage that the interpreter can't collect at that moment."""

import gc
import subprocess
import sys
import threading

import pytest

from penstock.core.frames import frames_of_threads


def test_each_thread_has_its_innermost_frame():
    is_there, is_over = threading.Event(), threading.Event()

    def wait_for_the_end():
        is_there.set()
        is_over.wait(60)

    thread = threading.Thread(target=wait_for_the_end)
    thread.start()
    assert is_there.wait(60)
    frame = frames_of_threads()[thread.ident]
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    is_over.set()
    thread.join()
    assert "wait_for_the_end" in names
    assert threading.get_ident() in frames_of_threads()


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_collector_is_as_it_was(is_enabled):
    assert gc.isenabled()
    try:
        if not is_enabled:
            gc.disable()
        frames_of_threads()
        assert gc.isenabled() == is_enabled
    finally:
        gc.enable()


# The collector is made to run while frames are asked for, and finds locals of threads among the garbage. Without care
# this stops for ever on Python 3.11, and nothing of Python's could end it: so it is a process of its own.
LITTERING = """
import gc, threading
from penstock.core.frames import frames_of_threads

class Knot:
    def __init__(self):
        self.itself, self.local = self, threading.local()
        self.local.value = 1

def wait():
    while not is_over.wait(0.0005):
        pass

is_over = threading.Event()
threads = [threading.Thread(target=wait) for _ in range(20)]
for one in threads:
    one.start()
for number in range(500):
    gc.set_threshold(100_000)
    Knot(), Knot(), Knot()
    gc.set_threshold(gc.get_count()[0] + 4 + number % 12)
    frames_of_threads()
is_over.set()
for one in threads:
    one.join()
print("done")
"""


def test_locals_of_threads_among_the_garbage_stop_nothing():
    done = subprocess.run(
        [sys.executable, "-c", LITTERING], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.stdout == "done\n", done.stderr
