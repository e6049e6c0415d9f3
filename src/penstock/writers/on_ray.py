"""engine="ray": tasks of Ray write shards, each to a folder of its own, and this process takes over what is finished.

The folders of the tasks are in one folder that this process has locked: after a kill, the next call removes it, and a
task that is still at work for a dead process writes to nothing that anybody reads. Only this process writes the journal
and the manifest. What travels is the dataset, once, and for each shard the numbers of its rows, and what a manifest
says of it.
"""

import contextlib
import itertools
import os
import pickle
import secrets
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from penstock.core.fingerprint import walk
from penstock.core.optional import require
from penstock.core.rows import Node
from penstock.engine.plan import Options
from penstock.errors import PenstockWarning, WriteError, warn_user
from penstock.io.atomic import temporary_folder
from penstock.io.failures import write_failure
from penstock.io.leftovers import remove
from penstock.memory import format_nbytes
from penstock.sources.arrays import Arrays
from penstock.sources.reading.leaves import ArrayList, InMemory, TextList
from penstock.workers.errors import Raised
from penstock.workers.pickling import load_cloudpickle, pickle_function
from penstock.writers.job import Job
from penstock.writers.random_access import check_random_access, with_random_access
from penstock.writers.shard_tasks import Sent, Work

MAX_SENT_NBYTES = 100_000_000
"""The most bytes that a dataset may travel with: each worker process holds a copy of them."""
_MAX_ATTEMPTS = 4
_AHEAD = 2  # Tasks that are handed to Ray for each that can run: none waits for this process.
_COUNT_SECONDS = 2.0  # Between two looks at how many tasks can run: clusters grow and shrink.
_END_SECONDS = 30.0
_MAX_CAUSES = 10

W = TypeVar("W", bound=Work)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What comes back from a task: its result or its error, and its warnings."""

    result: Any
    raised: tuple[Raised, ...]
    """The error, then the error that caused it, and so on; empty if there was none."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Done:
    """A task that was done: its result, and the folder with its files, which is removed afterwards."""

    result: Any
    folder: Path


@dataclass(frozen=True, slots=True)
class _Attempt:
    work: Any
    count: int
    """How many attempts there were, with this one."""
    folder: Path


def check(job: Job) -> None:
    """Raise if Ray is missing, or can't write these rows; starts nothing."""
    check_random_access(job.node)
    _refuse_large(_in_memory_nbytes(job.node))
    require("ray", 'engine="ray"', "ray")


@contextlib.contextmanager
def tasks(job: Job, folder: Path) -> Iterator["Tasks"]:
    """Give what runs tasks, on the Ray that is there or on a local one, until the block ends.

    `folder` is where their files go in the end; it must be on a path that all nodes see. When the block ends, for
    whichever reason, no task runs any more.
    """
    ray = require("ray", 'engine="ray"', "ray")
    sent = Sent(with_random_access(job.node, job.options), _options(job.options))
    with contextlib.ExitStack() as stack:
        payload = _pickled(sent)
        if not ray.is_initialized():
            stack.callback(ray.shutdown)
            ray.init(include_dashboard=False)
        place = stack.enter_context(temporary_folder(folder / "tasks"))
        found = Tasks(ray, sent, payload, place)
        stack.callback(found.cancel)
        yield found


class Tasks:
    """Runs work as tasks of Ray: again, if the process that does it dies."""

    def __init__(self, ray: Any, sent: Sent, payload: bytes, place: Path) -> None:
        self.sent = sent
        self._ray = ray
        self._place = place
        self._numbers = itertools.count()
        self._pending: dict[Any, _Attempt] = {}
        self._told: set[str] = set()
        cpus = [int(node["Resources"].get("CPU", 0)) for node in ray.nodes() if node["Alive"]]
        if max(cpus, default=0) < 1:
            raise ValueError(
                'engine="ray" needs a node of Ray with at least one CPU, and there is none: '
                "start Ray with num_cpus of 1 or more."
            )
        threads, processes = sent.options.threads or 0, sent.options.processes or 0
        self._cpus = min(max(1, threads, processes), max(cpus))
        self._limit = 0
        self._counted = 0.0
        # Attempts are counted here, not by Ray: each must have a folder of its own.
        self._perform = ray.remote(
            num_cpus=self._cpus, max_retries=0, scheduling_strategy="SPREAD"
        )(_perform)
        self._payload = ray.put(payload)
        self._token = secrets.token_hex(8)

    @property
    def limit(self) -> int:
        """How many tasks are handed to Ray at a time."""
        if time.monotonic() - self._counted > _COUNT_SECONDS:
            nodes = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
            slots = sum(int(node.get("CPU", 0)) // self._cpus for node in nodes)
            self._limit = _AHEAD * max(1, slots)
            self._counted = time.monotonic()
        return self._limit

    def run(self, works: Iterable[W]) -> Iterator[tuple[W, Done]]:
        """Yield each piece of work when it is done, in any order; raise the first error."""
        waiting = iter(works)
        try:
            while True:
                for work in itertools.islice(waiting, max(0, self.limit - len(self._pending))):
                    self._submit(work, 1)
                if not self._pending:
                    return
                refs = list(self._pending)
                ready, _ = self._ray.wait(refs, num_returns=1, timeout=_COUNT_SECONDS)
                for ref in ready:
                    attempt = self._pending.pop(ref)
                    outcome = self._outcome(ref, attempt)
                    if outcome is not None:
                        yield attempt.work, Done(outcome.result, attempt.folder)
                        remove(attempt.folder)
        finally:
            self.cancel()

    def _submit(self, work: Any, count: int) -> None:
        folder = self._place / str(next(self._numbers))
        where = str(Path.cwd())
        ref = self._perform.remote(self._payload, self._token, work, str(folder), where)
        self._pending[ref] = _Attempt(work, count, folder)

    def _outcome(self, ref: Any, attempt: _Attempt) -> Outcome | None:
        """Return the outcome of a task; None if its process died, and it is tried again."""
        errors = self._ray.exceptions
        died = (
            errors.WorkerCrashedError,
            errors.NodeDiedError,
            errors.LocalRayletDiedError,
            errors.OutOfMemoryError,
            errors.ObjectLostError,
        )
        try:
            outcome: Outcome = self._ray.get(ref)
        except died as error:
            if attempt.count >= _MAX_ATTEMPTS:
                work = attempt.work
                problem = (
                    f"the process of Ray that had rows {work.start} to {work.stop} died "
                    f"{attempt.count} times, the last time with {type(error).__name__}"
                )
                cure = (
                    "If nobody killed it, it had too little memory (with_options(memory=...) limits a task), or "
                    "native code in a function crashed; the logs of Ray tell."
                )
                raise WriteError(problem, file=str(self._place.parent), cure=cure) from error
            remove(attempt.folder)
            self._submit(attempt.work, attempt.count + 1)
            return None
        except errors.RayTaskError as error:
            error.add_note("The same penstock must be installed on every node of Ray.")
            raise
        for text in outcome.warnings:
            if text not in self._told:
                self._told.add(text)
                warn_user(text)
        if outcome.raised:
            raise _rebuilt(outcome.raised)
        return outcome

    def cancel(self) -> None:
        """End all tasks, and wait until they have ended."""
        refs = list(self._pending)
        self._pending.clear()
        if not refs or not self._ray.is_initialized():
            return
        for ref in refs:
            # By force: a function of the user's that does not return would go on for ever.
            self._ray.cancel(ref, force=True)
        self._ray.wait(refs, num_returns=len(refs), timeout=_END_SECONDS)


def _options(options: Options) -> Options:
    """Return how each task runs: as asked for, else on one thread, since there is a task for each core."""
    return replace(
        options,
        threads=1 if options.threads is None else options.threads,
        processes=options.processes or 0,
    )


def _pickled(sent: Sent) -> bytes:
    # Functions come last: that is where the search for modules that go by value begins.
    functions = [
        getattr(getattr(getattr(node, "stage", None), "function", None), "function", None)
        for node in walk(sent.node)
    ]
    cure = 'name its files with from_files, or write without engine="ray"'
    payload = pickle_function((sent, functions), name="this dataset", cure=cure)
    _refuse_large(len(payload))
    return payload


def _in_memory_nbytes(node: Node) -> int:
    """Return about how many bytes of arrays and lists in memory a dataset is made from."""
    return sum(
        leaf.num_rows * leaf.field.nbytes
        for one in walk(node)
        if isinstance(one, Arrays)
        for leaf in one.leaves
        if isinstance(leaf, InMemory | TextList | ArrayList)
    )


def _refuse_large(nbytes: int) -> None:
    if nbytes > MAX_SENT_NBYTES:
        raise ValueError(
            f'engine="ray" sends arrays in memory to each of its processes, and these are {format_nbytes(nbytes)}, '
            f"more than {format_nbytes(MAX_SENT_NBYTES)}: put them in files first.\n"
            '  wrong: ps.from_arrays(x).map(f).write(path, engine="ray")\n'
            "  right: ps.from_arrays(x).write(folder)\n"
            '         ps.from_files(folder).map(f).write(path, engine="ray")'
        )


_loaded: dict[str, Sent] = {}
"""In a worker: the dataset of the call whose task it ran last, by the token of that call."""


def _perform(payload: bytes, token: str, work: Work, folder: str, where: str) -> Outcome:
    """Do one piece of work; this is what runs in a task."""
    result, error = None, None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", PenstockWarning)
        try:
            with _working_in(where):
                if token not in _loaded:
                    _loaded.clear()
                    _loaded[token] = pickle.loads(payload)[0]
                _make_folder(Path(folder))
                result = work.perform(_loaded[token], Path(folder))
        except BaseException as failure:  # noqa: BLE001  # It is raised again in the process that waits for it.
            error = failure
    texts = [str(one.message) for one in caught if issubclass(one.category, PenstockWarning)]
    for one in caught:
        if not issubclass(one.category, PenstockWarning):
            warnings.warn_explicit(one.message, one.category, one.filename, one.lineno)
    return Outcome(result, _raised(error), tuple(dict.fromkeys(texts)))


@contextlib.contextmanager
def _working_in(folder: str) -> Iterator[None]:
    """Be in the folder of the process that called write: relative paths mean there what they mean here."""
    before = Path.cwd()
    with contextlib.suppress(
        OSError
    ):  # Another machine need not have it: then all paths are absolute.
        os.chdir(folder)
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            os.chdir(before)


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir()
    except FileNotFoundError as error:
        problem = f"node {os.uname().nodename} does not see this folder"
        cure = 'engine="ray" needs a path that all nodes of Ray share.'
        raise WriteError(problem, file=str(folder.parent.parent), cure=cure) from error
    except OSError as error:
        raise write_failure(error, file=str(folder)) from error


def _raised(error: BaseException | None) -> tuple[Raised, ...]:
    found: list[Raised] = []
    while error is not None and len(found) < _MAX_CAUSES:
        kind = type(error)
        try:
            pickled = bytes(load_cloudpickle().dumps(error))
        except Exception:  # noqa: BLE001  # Its class may raise anything.
            pickled = None
        lines = traceback.format_exception(kind, error, error.__traceback__, chain=False)
        name = (
            kind.__qualname__
            if kind.__module__ == "builtins"
            else f"{kind.__module__}.{kind.__qualname__}"
        )
        found.append(Raised(pickled, name, str(error), "".join(lines)))
        hidden = None if error.__suppress_context__ else error.__context__
        error = error.__cause__ or hidden
    return tuple(found)


def _rebuilt(raised: tuple[Raised, ...]) -> BaseException:
    errors = [one.rebuild() for one in raised]
    for error, cause in pairwise(errors):
        error.__cause__ = cause
    return errors[0]
