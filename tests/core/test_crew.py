"""Threads that start together, are counted, and are all waited for."""

import dis
import signal
import sys
import threading
import time
from types import FrameType

import pytest

from penstock.core.crew import Crew


def test_every_name_is_a_running_daemon_when_start_returns_and_join_ends_with_the_last():
    crew, told, seen = Crew(), threading.Event(), []

    def target() -> None:
        told.wait()
        thread = threading.current_thread()
        seen.append((thread.name, thread.daemon, crew.is_own))

    crew.start(["crew-a", "crew-b"], target)
    crew.start(["crew-c"], target)
    names = {"crew-a", "crew-b", "crew-c"}
    try:
        assert len(crew) == 3
        assert {one.name for one in threading.enumerate()} >= names
        assert not crew.is_own
    finally:
        told.set()
        crew.join()
    assert sorted(seen) == [(name, True, True) for name in sorted(names)]
    assert not {one.name for one in threading.enumerate()} & names
    assert len(crew) == 3  # how many were ever started


def test_a_thread_of_the_crew_may_join_it_and_does_not_wait_for_itself():
    crew, is_started, joined = Crew(), threading.Event(), []

    def target() -> None:
        is_started.wait()
        crew.join()
        joined.append(threading.current_thread().name)

    crew.start(["crew-a"], target)
    is_started.set()
    crew.join()
    assert joined == ["crew-a"]


def test_a_crew_of_nobody_has_nothing_to_wait_for():
    crew = Crew()
    crew.join()
    crew.start([], lambda: None)
    crew.settle()
    crew.join()
    assert len(crew) == 0
    assert not crew.is_own


def test_a_thread_of_one_crew_is_no_thread_of_another():
    first, second, told, found = Crew(), Crew(), threading.Event(), []

    def target() -> None:
        told.wait()
        found.append((first.is_own, second.is_own))

    first.start(["crew-a"], target)
    told.set()
    first.join()
    assert found == [(True, False)]


def test_when_the_system_refuses_a_thread_start_says_so_and_join_still_returns():
    crew = Crew()
    before = threading.stack_size(1 << 50)  # more than there are addresses
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            crew.start(["crew-a", "crew-b"], lambda: None)
    finally:
        threading.stack_size(before)
    crew.join()
    assert len(crew) == 0
    crew.start(["crew-a"], lambda: None)
    crew.join()
    assert len(crew) == 1


@pytest.mark.parametrize("pause", [0, 0.01])
def test_ctrl_c_at_any_moment_of_start_loses_no_thread(
    monkeypatch: pytest.MonkeyPatch, pause: float
):
    """It strikes after the first call in `start`, then after the second, and so on: only there does Python let it."""
    start, joined, late = threading.Thread.start, [], []

    def slow_start(self: threading.Thread) -> None:
        """Threads come up while `join` is under way, if it does not wait for them."""
        time.sleep(0.02)
        late.extend([self.name] if self.name in joined else [])
        start(self)

    monkeypatch.setattr(threading.Thread, "start", slow_start)
    num_strikes, struck = 0, True
    while struck:
        crew, told, ended, calls = Crew(), threading.Event(), [], iter(range(num_strikes, -1, -1))
        names = [f"crew-{num_strikes}-a", f"crew-{num_strikes}-b"]
        struck, last = False, ""

        def strike(frame: FrameType, event: str, _: object, *, calls=calls):
            nonlocal struck, last
            if frame.f_code is not Crew.start.__code__:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode":
                before, last = last, dis.opname[frame.f_code.co_code[frame.f_lasti]]
                if before.startswith("CALL") and next(calls, None) == 0:
                    struck = True
                    raise KeyboardInterrupt
            return strike

        def target(*, told=told, ended=ended) -> None:
            told.wait()
            ended.append(threading.current_thread().name)

        before = sys.gettrace()
        sys.settrace(strike)
        try:
            crew.start(names, target)
        except KeyboardInterrupt:
            num_strikes += 1
        finally:
            sys.settrace(before)
        told.set()
        time.sleep(pause)
        crew.join()
        joined += names
        assert sorted(ended) in ([], names)
        assert not [one.name for one in threading.enumerate() if one.name in names]
    assert num_strikes >= 5
    assert sorted(ended) == names  # Nothing struck the last time.
    assert not late


def test_ctrl_c_while_threads_are_waited_for_takes_none_of_them_for_ended():
    crew, told = Crew(), threading.Event()

    def strike(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, strike)
    crew.start(["crew-a", "crew-b"], told.wait)
    try:
        for _ in range(20):
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.005)
                crew.join()
            assert len(crew.join(0)) == 2
            assert not crew.is_ended
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        told.set()
        crew.join()
    assert not [one.name for one in threading.enumerate() if one.name.startswith("crew-")]
