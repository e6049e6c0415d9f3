"""Tuning: it settles, never swings, never changes a row, and says what it did and why."""

import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.chains import Model as Expected
from tests.chains import chains, equal
from tests.conformance import assert_same, run

import penstock as ps
from penstock.core.system import usable_cores
from penstock.engine.plan import make_plan
from penstock.engine.stream import engine as engine_module
from penstock.engine.stream import tuning
from penstock.engine.stream.threads import Threads
from penstock.engine.stream.tuning import Period, Tuner
from penstock.memory import Account, process_ledger
from penstock.reports.figures import Decided

CORES = 4


class Model:
    """Threads in words: what they would measure follows from how many there are."""

    def __init__(self, count: int = CORES) -> None:
        self.count = count
        self.ahead = count + 1
        self.busy_seconds = self.core_seconds = 0.0

    def resize(self, count: int) -> None:
        self.count = count


def tuned(
    rate: Callable[[Model], float],
    *,
    stalled: float = 0.5,
    busy: float = 1.0,
    on_core: float = 0.1,
    periods: int = 30,
) -> tuple[Model, Tuner, list[tuple[int, int]]]:
    model = Model()
    tuner = Tuner(model, CORES)
    path = [(model.count, model.ahead)]
    for number in range(periods):
        seconds = busy * model.count
        tuner.decide(
            Period(1.0, stalled, int(rate(model)), seconds, seconds * on_core), number + 1.0
        )
        path.append((model.count, model.ahead))
    return model, tuner, path


def swings(values: list[int]) -> int:
    """How often a number went down after it had gone up."""
    steps = [b - a for a, b in itertools.pairwise(values) if a != b]
    return sum(1 for a, b in itertools.pairwise(steps) if (a > 0) != (b > 0))


def test_a_consumer_that_hardly_waits_is_left_alone():
    model, tuner, _ = tuned(lambda m: 1e6, stalled=0.04)
    assert (model.count, model.ahead, tuner.decisions) == (CORES, CORES + 1, [])


def test_threads_that_are_on_their_cores_stay_as_many_as_the_cores():
    model, tuner, _ = tuned(lambda m: 1e6, on_core=0.9)
    assert (model.count, tuner.decisions) == (CORES, [])


def test_threads_that_wait_for_something_else_become_more_while_that_pays():
    model, tuner, path = tuned(lambda m: 1e6 * m.count)
    assert model.count == 4 * CORES
    assert model.ahead > model.count
    assert swings([count for count, _ in path]) == 0
    assert path[8:] == [path[-1]] * len(path[8:])  # Settled within a few periods.
    assert str(tuner.decisions[0]) == (
        "threads 4 -> 6 after 1.0 s: the consumer waited 50 % of the time, the threads were busy "
        "100 % of it, and on a core 10 % of that"
    )


@pytest.mark.parametrize("best", range(CORES, 4 * CORES))
def test_a_raise_that_does_not_pay_is_taken_back_once_and_for_all(best: int):
    model, tuner, path = tuned(lambda m: 1e6 * min(m.count, best))
    counts = [count for count, _ in path]
    assert swings(counts) <= 1
    assert path[10:] == [path[-1]] * len(path[10:])
    assert model.count <= max(CORES, best * 3 // 2)
    if swings(counts):
        assert " gave " in tuner.decisions[-1].why
        assert "of the bytes a second" in tuner.decisions[-1].why


def test_threads_that_have_nothing_to_do_while_the_consumer_waits_may_run_further_ahead():
    model, _, path = tuned(lambda m: 1e6 * min(m.ahead, 10), busy=0.3)
    assert model.count == CORES
    assert CORES + 1 < model.ahead <= 15
    assert swings([ahead for _, ahead in path]) <= 1
    assert path[10:] == [path[-1]] * len(path[10:])


@pytest.mark.parametrize("seed", range(20))
def test_it_settles_whatever_is_measured(seed: int):
    random = np.random.default_rng(seed)
    model = Model()
    tuner = Tuner(model, CORES)
    path = [(model.count, model.ahead)]
    for number in range(200):
        stalled, busy, on_core, rate = random.random(4)
        period = Period(
            1.0, stalled, int(1e6 * rate), busy * model.count, busy * on_core * model.count
        )
        tuner.decide(period, number + 1.0)
        path.append((model.count, model.ahead))
    counts, depths = zip(*path, strict=True)
    assert swings(list(counts)) <= 1
    assert swings(list(depths)) <= 2  # Once of its own, and once more for threads that come later.
    assert (min(counts), min(depths)) == path[0]
    assert model.count <= 4 * CORES
    assert model.ahead <= 4 * (CORES + 2)
    assert len(tuner.decisions) < 20


class Restless(Tuner):
    """Changes its mind at every block: the worst that tuning could do."""

    def handed_out(self, nbytes: int, waited_seconds: float) -> None:
        random = np.random.default_rng(len(self.decisions))
        self._threads.resize(int(random.integers(1, 9)))
        self._threads.ahead = int(random.integers(1, 40))
        self.decisions.append(Decided("changed", "for the sake of it"))


def doubled(x: Any) -> Any:
    return x * 2


def test_rows_and_bytes_do_not_depend_on_it(monkeypatch: pytest.MonkeyPatch):
    ds = ps.from_arrays(np.arange(400_000).reshape(40_000, 10)).shuffle(seed=1)
    ds = ds.batch(50).map(doubled).with_options(processes=0, memory="32MB")
    expected = run(ds.with_options(threads=0))
    before = set(threading.enumerate())
    monkeypatch.setattr(engine_module, "Tuner", Restless)
    granted = process_ledger.granted
    with ds.stream() as stream:
        found = []
        for number, batch in enumerate(stream):
            found.append(batch.copy())
            if number == 300:
                state = stream.state()
        report = stream.report()
    assert "changed" in [one.what for one in report.decisions]
    assert report.peak_nbytes <= report.budget_nbytes
    assert_same(found, expected)
    assert_same(run(ds, state=state), expected[301:])
    assert set(threading.enumerate()) <= before
    assert process_ledger.granted == granted


@pytest.mark.parametrize("options", [{"threads": 2}, {"threads": 0}])
def test_what_the_user_sets_is_not_tuned(options: dict[str, int], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(engine_module, "Tuner", Restless)
    ds = ps.from_arrays(np.arange(100_000)).batch(10)
    for fixed in (ds.with_options(**options), ds.prefetch(3)):
        with fixed.stream() as stream:
            for _ in stream:
                pass
            assert stream.report().decisions == ()


def end(threads):
    threads.stop()
    for crew in threads.crews:
        crew.join()
    threads.drop()


def test_a_block_more_than_planned_must_fit_into_what_was_planned():
    account = Account(process_ledger, "a test")
    account.open(budget=1 << 30, need=0, want=1 << 20, why="it is one")
    threads = Threads(2, account, block_nbytes=1000)
    threads.resize(1)
    try:
        for size, most in ((1000, 3), (200, 10)):
            threads.ahead = 50
            started: list[int] = []
            may_end = threading.Event()

            def work(item: int, started: Any = started, may_end: Any = may_end) -> int:
                may_end.wait()
                return item

            def items(started: Any = started) -> Any:
                for item in range(100):
                    started.append(item)
                    yield item

            may_end.clear()
            found = threads.ordered(work, items(), lambda item, size=size: size)
            threading.Timer(0, may_end.set).start()
            assert next(found) == 0
            assert len(started) <= most + 1
            assert list(found) == list(range(1, 100))
    finally:
        end(threads)
        account.close()


def test_threads_come_and_go():
    account = Account(process_ledger, "a test")
    account.open(budget=1 << 30, need=0, want=1 << 20, why="it is one")
    before = set(threading.enumerate())
    threads = Threads(8, account)
    threads.resize(2)
    try:
        meeting = threading.Barrier(5)
        threads.resize(5)  # All five must be there for any to go on.
        assert (
            list(threads.ordered(lambda item: meeting.wait(60) >= 0, range(5), lambda _: 1))
            == [True] * 5
        )
        threads.resize(1)
        assert list(threads.ordered(lambda item: item, range(20), lambda _: 1)) == list(range(20))
    finally:
        end(threads)
        account.close()
    assert set(threading.enumerate()) <= before


def test_a_plan_that_the_budget_made_smaller_is_not_tuned():
    ds = ps.from_arrays(np.zeros((10_000, 1000))).batch(10)
    assert make_plan(ds.node, ds.options).is_tuned
    tight = ds.with_options(memory=4_500_000)
    assert make_plan(tight.node, tight.options).ahead < make_plan(ds.node, ds.options).ahead
    assert not make_plan(tight.node, tight.options).is_tuned


@given(chains(), st.integers(0, 1))
@settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large], max_examples=100
)
def test_no_chain_takes_more_than_its_plan_however_it_is_tuned(
    chain: tuple[ps.Dataset, Expected], epoch: int
) -> None:
    ds, model = chain
    ds = ds.with_options(processes=0)
    plan = make_plan(ds.node, ds.options)
    assume(plan.is_tuned)
    expected = model.rows(epoch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "Tuner", Restless)
        with ds.stream(epoch=epoch) as stream:
            for count, row in enumerate(expected):
                assert equal(next(stream), row), count
            assert next(stream, None) is None
            report = stream.report()
    assert report.peak_nbytes <= plan.total


NUM_CORES = usable_cores()


def slow(x: Any) -> Any:
    time.sleep(0.002 * NUM_CORES)  # As a request to a server: no core is busy.
    return x


def rows_of_a_generator() -> Any:
    return (np.full(10, number) for number in range(2000))


@pytest.mark.parametrize(
    "behind",
    [
        ps.from_generator(rows_of_a_generator, ps.ArraySpec((10,), "int64")),
        ps.from_arrays(np.arange(20_000).reshape(2000, 10)).filter(lambda x: True),
    ],
    ids=["generator", "filter"],
)
def test_a_slow_function_behind_a_flow_gets_more_threads(behind: ps.Dataset):
    ds = behind.map(slow, spec=ps.ArraySpec((10,), "int64")).batch(10).with_options(processes=0)
    with ds.stream() as stream:
        found = [batch[0, 0] for batch in stream]
        report = stream.report()
    assert len(found) == 200
    raised = [one for one in report.decisions if one.what.startswith("threads")]
    assert raised, report.decisions
    assert "the consumer waited" in raised[0].why
    assert 0 < raised[0].seconds < report.seconds


def test_a_failure_of_the_tuner_is_noted_and_the_stream_goes_on(monkeypatch):
    monkeypatch.setattr(tuning, "_PERIOD_SECONDS", 0.0)

    def fails(*_):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(tuning.Tuner, "decide", fails)
    ds = ps.from_arrays(np.zeros((20_000, 1000), "f4")).batch(100)
    with ds.stream() as stream:
        assert sum(len(batch) for batch in stream) == 20_000
        decisions = stream.report().decisions
    assert [one.why for one in decisions if one.what == "tuning has stopped"] == [
        "RuntimeError: can't start new thread"
    ]
