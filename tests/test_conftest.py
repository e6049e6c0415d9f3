"""The check that nothing outlives a test notices what it is there for."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow  # each starts a pytest of its own

LEAKS = {
    "threads": """
        import threading
        def test_leaks(monkeypatch):
            monkeypatch.setattr("conftest.GRACE_SECONDS", 0.01)
            threading.Thread(target=threading.Event().wait, name="penstock-7", daemon=True).start()
        """,
    "open files": """
        kept = []
        def test_leaks():
            kept.append(open(__file__))
        """,
    "shared memory": """
        from pathlib import Path
        def test_leaks():
            Path("/dev/shm/penstock-leak-test").touch()
        """,
    "processes": """
        import subprocess, sys
        kept = []
        def test_leaks():
            command = [sys.executable, "-c", "print(flush=True); input()  # penstock"]
            child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            child.stdout.readline()  # before it runs, it has no name
            kept.append(child)
        """,
    "workers of a stream that is open": """
        import numpy as np, penstock as ps
        kept = []
        def test_leaks():
            rows = ps.from_arrays(np.arange(4000)).map(lambda x: x, spec=ps.ArraySpec((), "int64"))
            kept.append(rows.with_options(processes=1).stream())
            next(kept[0])
        """,
}
SEEN_AS = {"workers of a stream that is open": "processes"}


@pytest.fixture
def run(pytester):
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    yield lambda source: (pytester.makepyfile(source), pytester.runpytest_subprocess("-q"))[1]
    Path("/dev/shm/penstock-leak-test").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_fails_the_test_that_made_it(run, kind):
    result = run(LEAKS[kind])
    result.stdout.fnmatch_lines([f"*test_leaks left behind: *'{SEEN_AS.get(kind, kind)}'*"])
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_what_is_closed_or_not_ours_is_no_leak(run):
    result = run(
        """
        import os, threading
        def test_closes():
            with open(__file__): pass
            thread = threading.Thread(target=int, name="penstock-7")
            thread.start()
            threading.Thread(target=threading.Event().wait, name="framework", daemon=True).start()
            open(__file__)
        """
    )
    result.assert_outcomes(passed=1)


def test_workers_that_wait_for_the_next_epoch_are_no_leak_and_end_with_the_test(run):
    result = run(
        """
        import numpy as np, penstock as ps
        import conftest
        kept = []
        def test_reads():
            rows = ps.from_arrays(np.arange(40)).map(lambda x: x, spec=ps.ArraySpec((), "int64"))
            kept.append(rows.with_options(processes=1))
            assert len(list(kept[0])) == 40
            assert conftest.our_processes()
        def test_they_are_gone():
            assert not conftest.our_processes()
        """
    )
    result.assert_outcomes(passed=2)
