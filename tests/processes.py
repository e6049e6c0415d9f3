"""Processes that belong together, as the ranks of a training do: started, waited for, and killed at a limit."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from dataclasses import dataclass
from time import monotonic

# What a rank prints for its test begins with this; frameworks print what they like.
MARK = "RESULT "
QUIET = {
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "PYTHONUNBUFFERED": "1",
}


def free_ports(count):
    """Return ports that nobody uses now, all of them different."""
    with contextlib.ExitStack() as taken:
        found = [taken.enter_context(socket.socket()) for _ in range(count)]
        for one in found:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in found]


def free_port():
    return free_ports(1)[0]


def _environment(changes):
    """Return the variables for a process: those here, and what is to be other; None is none."""
    changed = os.environ | QUIET | changes
    return {name: str(value) for name, value in changed.items() if value is not None}


@dataclass(frozen=True)
class Ended:
    returncode: int
    output: str
    errors: str

    def __str__(self):
        return f"exit {self.returncode}\n{self.output[-3000:]}\n{self.errors[-6000:]}"

    @property
    def result(self):
        """What the process handed over with `tell`."""
        lines = [line for line in self.output.splitlines() if line.startswith(MARK)]
        assert lines, str(self)
        return json.loads(lines[-1].removeprefix(MARK))


def tell(value):
    """Hand a value over to the test that started this process."""
    print(MARK + json.dumps(value), flush=True)


class Group:
    """Processes that run at the same time. Whatever becomes of the test, none of them outlives `with`."""

    def __init__(self, commands, environments, folder=None):
        # Closed by `__exit__`.
        self._errors = [tempfile.TemporaryFile("w+") for _ in commands]  # noqa: SIM115
        self._lines = [[] for _ in commands]
        self._came = threading.Condition()
        self.processes = [
            subprocess.Popen(
                command,
                env=_environment(environment),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # So that its children are killed with it.
            )
            for command, environment, errors in zip(
                commands, environments, self._errors, strict=True
            )
        ]
        self._readers = [
            threading.Thread(target=self._read, args=(number,), daemon=True)
            for number in range(len(commands))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, number):
        for line in self.processes[number].stdout:
            with self._came:
                self._lines[number].append(line)
                self._came.notify_all()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        for process, reader in zip(self.processes, self._readers, strict=True):
            process.wait()
            reader.join()
            process.stdout.close()
        for file in self._errors:
            file.close()

    def kill(self):
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def await_line(self, number, text, count=1, limit=120):
        """Wait until a process has printed `text` so often, or has ended."""
        end = monotonic() + limit
        with self._came:
            while sum(text in line for line in self._lines[number]) < count:
                if self.processes[number].poll() is not None:
                    return
                assert monotonic() < end, f"{text!r} did not come\n{self.shown()}"
                self._came.wait(0.2)

    def ended(self, number):
        file = self._errors[number]
        file.flush()
        file.seek(0)
        returncode = self.processes[number].returncode
        return Ended(returncode, "".join(self._lines[number]), file.read())

    def shown(self):
        ranks = range(len(self.processes))
        return "\n".join(f"--- process {number}: {self.ended(number)}" for number in ranks)

    def wait(self, limit):
        """Return how all of them ended; after `limit` seconds the test fails, with what they printed."""
        end = monotonic() + limit
        for process, reader in zip(self.processes, self._readers, strict=True):
            try:
                process.wait(max(0.1, end - monotonic()))
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError(f"not done after {limit} s\n{self.shown()}") from None
            reader.join()
        return [self.ended(number) for number in range(len(self.processes))]


def start_ranks(script, world, *arguments, **environment):
    """Start a script once a rank, with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT as torchrun sets them."""
    shared = {"WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    command = [sys.executable, str(script), *map(str, arguments)]
    ranks = range(world)
    return Group(
        [command for _ in ranks], [shared | {"RANK": rank} | environment for rank in ranks]
    )


def run_ranks(script, world, *arguments, limit=240, **environment):
    """Return what each rank of a script told; fail if one of them did not end well."""
    with start_ranks(script, world, *arguments, **environment) as group:
        ended = group.wait(limit)
        assert all(one.returncode == 0 for one in ended), group.shown()
        return [one.result for one in ended]
