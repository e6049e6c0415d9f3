"""How contenders are compared: each in a process of its own, in turns, best of several.

A workload file declares `CASES`; this module runs one and returns an `Outcome` a contender. What a
contender does inside its process is in `worker.py` and `measure.py`; how outcomes become a table is
in `table.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cgroup import MemoryCgroup
from contention import Contention
from measure import Sample

HERE = Path(__file__).resolve().parent

# A contender that has not answered by then hangs. The longest honest round, an exact shuffle of
# 8 GB in a small cgroup, takes a few minutes.
ANSWER_SECONDS = 1200.0

Round = Callable[[], Sample]


@dataclass(frozen=True, slots=True)
class Contender:
    """One way of doing the work.

    `start` is called once in the contender's own process with the directory of the prepared data,
    and returns what one round does. `fresh` asks for a new process every round, `memory` for a
    memory cgroup of that many bytes.
    """

    name: str
    how: str
    start: Callable[[Path], Round]
    environment: Mapping[str, str] = field(default_factory=dict)
    memory: int | None = None
    fresh: bool = False
    # A peer that cannot do the work at all: its failure is the result.
    may_fail: bool = False


@dataclass(slots=True)
class Outcome:
    """What came of a contender: samples, or why there are none."""

    samples: list[Sample] = field(default_factory=list)
    missing: str | None = None
    failed: str | None = None

    @property
    def measured(self) -> bool:
        return bool(self.samples) and self.failed is None

    def fact(self, name: str) -> float:
        """Return the worst of a fact over all rounds: facts are limits, not speeds."""
        return max(sample.facts[name] for sample in self.samples)

    def best_fact(self, name: str) -> float:
        """Return the lowest of a fact over all rounds, for facts that are times."""
        return min(sample.facts[name] for sample in self.samples)


Outcomes = Mapping[str, Outcome]


@dataclass(frozen=True, slots=True)
class Bar:
    """What a case must reach. `value` raises KeyError or ValueError where it was not measured."""

    text: str
    value: Callable[[Case, Outcomes], float]
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "x"

    def met(self, value: float) -> bool:
        if self.at_least is not None and value < self.at_least:
            return False
        return self.at_most is None or value <= self.at_most


@dataclass(frozen=True, slots=True)
class Case:
    """One table: contenders that do the same work, and the bars for ours."""

    name: str
    title: str
    unit: str
    contenders: Sequence[Contender]
    bars: Sequence[Bar] = ()
    higher_is_better: bool = True
    rounds: int = 5
    # Fills a new, empty directory with what the contenders read; runs in a process of its own.
    prepare: Callable[[Path], None] | None = None

    def best(self, outcome: Outcome) -> float:
        values = [sample.value for sample in outcome.samples]
        return max(values) if self.higher_is_better else min(values)

    def median(self, outcome: Outcome) -> float:
        return statistics.median(sample.value for sample in outcome.samples)

    def speedup(self, ours: Outcome, theirs: Outcome) -> float:
        """Return how many times as fast ours is, by the best round of each."""
        if self.higher_is_better:
            return self.best(ours) / self.best(theirs)
        return self.best(theirs) / self.best(ours)


def times_as_fast(times: float, over: str, *, subject: str = "penstock") -> Bar:
    """Return the bar 'at least `times` as fast as `over`'."""
    return Bar(
        text=f"{_named(subject)}at least {times:g}x {over}",
        value=lambda case, outcomes: case.speedup(
            _measured(outcomes, subject), _measured(outcomes, over)
        ),
        at_least=times,
    )


def time_at_most(times: float, of: str, *, subject: str = "penstock") -> Bar:
    """Return the bar 'takes at most `times` the time of `of`'."""
    return Bar(
        text=f"{_named(subject)}at most {times:g}x the time of {of}",
        value=lambda case, outcomes: (
            1 / case.speedup(_measured(outcomes, subject), _measured(outcomes, of))
        ),
        at_most=times,
    )


def value_at_most(limit: float, text: str, *, unit: str, subject: str = "penstock") -> Bar:
    """Return a bar on the best value itself, for cases where lower is better."""
    return Bar(
        text=text,
        value=lambda case, outcomes: case.best(_measured(outcomes, subject)),
        at_most=limit,
        unit=unit,
    )


def fact_within(
    name: str,
    text: str,
    *,
    unit: str,
    at_least: float | None = None,
    at_most: float | None = None,
    subject: str = "penstock",
) -> Bar:
    """Return a bar on a fact that samples carry: the worst round counts."""

    def value(_: Case, outcomes: Outcomes) -> float:
        facts = [sample.facts[name] for sample in _measured(outcomes, subject).samples]
        return min(facts) if at_most is None else max(facts)

    return Bar(text=text, value=value, at_least=at_least, at_most=at_most, unit=unit)


def _named(subject: str) -> str:
    return "" if subject == "penstock" else f"{subject}: "


def _measured(outcomes: Outcomes, name: str) -> Outcome:
    outcome = outcomes[name]
    if not outcome.measured:
        raise ValueError(f"{name} was not measured")
    return outcome


def run_case(case: Case, module: str, directory: Path, *, rounds: int | None) -> Outcomes:
    """Return an outcome a contender, having run them in turns in `directory`."""
    outcomes = {contender.name: Outcome() for contender in case.contenders}
    with contextlib.ExitStack() as stack:
        running: dict[str, _Worker] = {}
        for contender in case.contenders:
            if not contender.fresh:
                worker = _Worker(case, contender, module, directory)
                running[contender.name] = stack.enter_context(worker)
                # One at a time: a contender that is still warming up must not slow another down.
                _note(outcomes[contender.name], worker.answer())
        for number in range(case.rounds if rounds is None else rounds):
            for contender in _rotated(case.contenders, number):
                outcome = outcomes[contender.name]
                if outcome.missing is not None or outcome.failed is not None:
                    continue
                if contender.fresh:
                    with _Worker(case, contender, module, directory) as worker:
                        _note(outcome, worker.answer())
                        if outcome.missing is None and outcome.failed is None:
                            _note(outcome, worker.ask())
                else:
                    _note(outcome, running[contender.name].ask())
    return outcomes


def prepare(case: Case, module: str, directory: Path) -> str | None:
    """Fill `directory` for a case, in a process of its own; return why that failed, or None."""
    if case.prepare is None:
        return None
    nobody = Contender(name="(prepare)", how="", start=lambda _: lambda: Sample(0.0))
    with _Worker(case, nobody, module, directory) as worker:
        return worker.answer().get("failed")


def _rotated(contenders: Sequence[Contender], number: int) -> Iterator[Contender]:
    # Nobody always runs right after the same neighbour, whose caches and clocks it inherits.
    first = number % len(contenders)
    return itertools.chain(contenders[first:], contenders[:first])


def _note(outcome: Outcome, answer: dict) -> None:
    if "missing" in answer:
        outcome.missing = answer["missing"]
    elif "failed" in answer:
        outcome.failed = answer["failed"]
    elif "value" in answer:
        outcome.samples.append(Sample(answer["value"], answer["facts"]))


class _Worker:
    """A contender's process. It answers once when it is ready, then once a round."""

    def __init__(self, case: Case, contender: Contender, module: str, directory: Path) -> None:
        self._contender = contender
        self._cgroup: MemoryCgroup | None = None
        self._refusal: str | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed by __exit__)
        environment = os.environ | {"PYTHONUNBUFFERED": "1"} | QUIET | dict(contender.environment)
        if contender.memory is not None:
            try:
                self._cgroup = MemoryCgroup(contender.memory)
            except OSError as error:
                self._refusal = f"needs a memory cgroup (v1) that can be written to: {error}"
                self._process = None
                return
            environment["PENSTOCK_BENCH_CGROUP"] = str(self._cgroup.path)
        self._process = subprocess.Popen(
            [sys.executable, HERE / "worker.py", module, case.name, contender.name, directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            env=environment,
            cwd=directory,
            # So that what a contender started can be ended with it, and nothing else can.
            process_group=0,
        )

    def __enter__(self) -> Self:
        return self

    def ask(self) -> dict:
        """Run one round and return its answer."""
        if self._process is None:
            return self.answer()
        contention = Contention(self._process.pid)
        # If the process has ended, the answer says how.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(b"round\n")
            self._process.stdin.flush()
        answer = self.answer()
        if "facts" in answer:
            answer["facts"]["other_cores"] = contention.cores()
        return answer

    def answer(self) -> dict:
        """Return the next answer, or an answer made up from how the process ended."""
        if self._process is None:
            return {"missing": self._refusal}
        ready, _, _ = select.select([self._process.stdout], [], [], ANSWER_SECONDS)
        if not ready:
            return {"failed": f"no answer in {ANSWER_SECONDS:g} s"}
        line = self._process.stdout.readline()
        if line:
            return json.loads(line)
        status = self._process.wait()
        self._errors.seek(0)
        tail = self._errors.read().strip().splitlines()[-8:]
        if status == -signal.SIGKILL and self._cgroup is not None:
            return {"failed": f"killed: more than {self._contender.memory >> 20} MB"}
        return {"failed": "\n".join([f"ended with status {status}", *tail])}

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
            # One that does not end by itself is ended below, with all it started.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process.stdout.close()
        if self._cgroup is not None:
            self._cgroup.close()
        self._errors.close()


# Frameworks talk at start, and TensorFlow looks for GPUs it must not use here.
QUIET = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_ENABLE_ONEDNN_OPTS": "1",
    "CUDA_VISIBLE_DEVICES": "-1",
    "JAX_PLATFORMS": "cpu",
    "GRPC_VERBOSITY": "NONE",
}
