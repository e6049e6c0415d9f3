"""What every test runs under: Hypothesis profiles, and a check that nothing outlives a test."""

import ctypes
import gc
import os
import signal
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from penstock.core import idle

# Derandomized: a run that passed on one machine passes on the next. `make soak` looks further each time.
settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "soak",
    max_examples=5000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))

# A shell that starts something in the background has it ignore Ctrl-C, and so would every child that a test strikes.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A forked child that hangs ends with the process that forked it: it has copies of its pipes, and whoever reads those
# would wait for ever.
_PR_SET_PDEATHSIG = 1
_prctl = ctypes.CDLL(None).prctl
os.register_at_fork(after_in_child=lambda: _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL))

TESTS = Path(__file__).parent
# Tests of frameworks take longest, and start processes of their own.
STARTING = {"feeds", "examples", "ranks"}
# Files of long tests that share nothing.
SPREAD = ("feeds/keras/test_feed.py", "feeds/keras/test_checkpoint.py")

# How long a thread that was told to stop may take to do so.
GRACE_SECONDS = 5.0


def pytest_runtest_setup() -> None:
    """Let Ctrl-C interrupt the waits of a test: polars, which other tests load, has taken that away."""
    signal.siginterrupt(signal.SIGINT, True)


@pytest.fixture(scope="session", autouse=True)
def user_cache(tmp_path_factory):
    """Indexes of files go to a folder of the tests, not to the user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        yield


def our_threads():
    return {
        thread for thread in threading.enumerate() if thread.name.lower().startswith("penstock")
    }


def open_files():
    """Descriptors of files and of our shared memory: frameworks keep sockets, pipes and devices of their own."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = str(entry.readlink())
        except OSError:
            continue  # the descriptor of this very listing
        is_ours = target.startswith(("/memfd:penstock", "/dev/shm/"))
        if is_ours or (
            target.startswith("/")
            and not target.startswith(("/memfd:", "/dev/", "/proc/", "/sys/"))
        ):
            found.add((int(entry.name), target))
    return found


def shared_memory():
    """Our names in /dev/shm, which all of the machine shares: what others make there is no leak of this test."""
    return {entry.name for entry in Path("/dev/shm").glob("penstock*")}


def our_processes():
    """Worker processes: children of this one that run penstock."""
    found = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            children = (task / "children").read_text().split()
            found |= {
                pid for pid in children if b"penstock" in Path(f"/proc/{pid}/cmdline").read_bytes()
            }
        except OSError:
            continue  # a thread or child that ended meanwhile, or a kernel without the file
    return found


def snapshot():
    return {
        "threads": our_threads(),
        "open files": open_files(),
        "shared memory": shared_memory(),
        "processes": our_processes(),
    }


def leaked(before, after):
    return {
        kind: sorted(map(str, after[kind] - before[kind]))
        for kind in after
        if after[kind] - before[kind]
    }


def pytest_collection_modifyitems(items):
    """Begin with tests that start processes: they take longest."""
    items.sort(key=lambda item: not STARTING.intersection(item.path.relative_to(TESTS).parts))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With `--dist loadscope`, give each process a file at a time: what a file made for its tests is not made twice."""
    if config.option.dist != "loadscope":
        return None
    from xdist.scheduler.loadscope import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return nodeid if file.endswith(SPREAD) else file

    return ByFile(config, log)


def pytest_collection_finish():
    """Let the garbage collector leave out what the frameworks made when they were imported: it is most there is."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _nothing_outlives_a_test(request):
    """Fail a test that leaves one of our threads, files, shared memories or processes behind."""
    before = snapshot()
    yield
    # Worker processes that wait for the next epoch are no leak, if they end when they are told to. All others are.
    idle.close_all()
    if leaked(before, snapshot()):
        # What is only waiting to be collected is not a leak; neither is a thread on its way out.
        gc.collect()
        for thread in our_threads() - before["threads"]:
            thread.join(GRACE_SECONDS)
        remaining = leaked(before, snapshot())
        if remaining:
            pytest.fail(f"{request.node.name} left behind: {remaining}")
