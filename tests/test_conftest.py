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
}


@pytest.fixture
def run(pytester):
    pytester.makeconftest(Path(__file__).with_name("conftest.py").read_text())
    yield lambda source: (pytester.makepyfile(source), pytester.runpytest_subprocess("-q"))[1]
    Path("/dev/shm/penstock-leak-test").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", LEAKS)
def test_a_leak_fails_the_test_that_made_it(run, kind):
    result = run(LEAKS[kind])
    result.stdout.fnmatch_lines([f"*test_leaks left behind: *{kind}*"])
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
