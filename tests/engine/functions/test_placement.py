"""map in worker processes: the same rows, the same errors, and nothing left behind."""

import os
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import penstock as ps
from penstock.core.system import usable_cores
from penstock.engine.functions import placement as processes

pytestmark = pytest.mark.slow  # Every test starts interpreters.


def source(count=300):
    return ps.from_arrays(
        {"x": np.arange(count * 4, dtype="float32").reshape(count, 4), "y": np.arange(count)}
    )


def double(row):
    return {"x": row["x"] * np.float32(2), "y": row["y"], "name": "n" * int(row["y"] % 3)}


def assert_same(mine, theirs):
    for a, b in zip(mine, theirs, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            assert np.asarray(a[name]).dtype == np.asarray(b[name]).dtype
            assert (np.asarray(a[name]) == np.asarray(b[name])).all()


def test_rows_are_those_that_threads_give_in_the_same_order():
    ds = source().shuffle(seed=3).map(double)
    threads = list(ds.with_options(processes=0).stream(epoch=2))
    assert_same(ds.with_options(processes=2).stream(epoch=2), threads)


def test_batches_cut_short_and_lambdas_with_closures_work():
    factor = np.float32(3)
    ds = source(70).batch(32).map(lambda row: {"x": row["x"] * factor, "size": len(row["y"])})
    assert_same(ds.with_options(processes=1), list(ds.with_options(processes=0)))


def test_random_rows_depend_on_seed_epoch_and_row_alone():
    ds = source(50).map(lambda row, rng: row["x"] + rng.random(4, dtype="float32"), seed=1)
    threads = list(ds.with_options(processes=0).stream(epoch=1))
    for a, b in zip(ds.with_options(processes=2).stream(epoch=1), threads, strict=True):
        assert (a == b).all()


def test_rows_of_a_flow_are_mapped_too():
    ds = source().filter(lambda row: row["y"] % 2 == 0).map(double)
    assert_same(ds.with_options(processes=2), list(ds.with_options(processes=0)))


def test_it_resumes_at_any_batch():
    ds = source(64).map(double).take(64).with_options(processes=2)
    with ds.stream() as stream:
        for _ in range(40):
            next(stream)
        state = stream.state()
    assert_same(ds.stream(state=state), list(ds.with_options(processes=0))[40:])


def fail_at_200(row):
    if int(row["y"]) == 200:
        raise KeyError("no such thing")
    return row["y"]


def test_an_exception_names_function_line_and_row_and_has_the_remote_traceback():
    with pytest.raises(
        ps.FunctionError, match=r"map\(fail_at_200\), test_placement.py:\d+.* row 200: KeyError"
    ) as caught:
        list(source().map(fail_at_200).with_options(processes=2))
    assert isinstance(caught.value.__cause__, KeyError)
    assert "fail_at_200" in str(caught.value.__cause__.__cause__)


def test_a_result_that_is_not_as_declared_is_an_error():
    ds = source().map(lambda row: np.zeros(int(row["y"] // 100) + 1)).with_options(processes=1)
    with pytest.raises(ps.SpecMismatchError, match=r"row 100: returned .* shape \(2,\)"):
        list(ds)


def die_at_150(row):
    if int(row["y"]) == 150:
        os.kill(os.getpid(), signal.SIGKILL)
    return row["y"]


def test_a_killed_worker_is_a_clear_error():
    with pytest.raises(ps.FunctionError, match=r"map\(die_at_150\).*SIGKILL"):
        list(source().map(die_at_150, spec=ps.ArraySpec((), "int64")).with_options(processes=2))


def test_with_retries_a_block_is_tried_again_on_a_new_worker(tmp_path):
    marker = tmp_path / "died"

    def die_once(row):
        if int(row["y"]) == 150 and not marker.exists():
            marker.touch()
            os._exit(3)
        return row["y"]

    ds = source().map(die_once, spec=ps.ArraySpec((), "int64")).with_options(processes=2, retries=1)
    assert [int(y) for y in ds] == list(range(300))
    assert marker.exists()


def burn(row):
    total = 0
    for number in range(4000):
        total += number % 7
    return row["y"] + (total - total)


def test_a_function_that_holds_the_lock_goes_to_processes_by_itself_and_the_report_says_why():
    ds = source(20_000).map(burn).take(200)
    with ds.stream() as stream:
        assert [int(y) for y in stream] == list(range(200))
        decision, *_ = map(str, stream.report().decisions)
    assert "map(burn) on" in decision
    if usable_cores() > 1:
        assert "processes" in decision or "could not" not in decision


def test_a_quick_function_stays_on_threads():
    node = source().map(lambda row: row["y"]).node
    decision = processes.decide(node, None)
    assert decision.num_processes == 0
    assert "only" in decision.reason


def test_what_can_not_be_pickled_stays_on_threads_unless_processes_are_asked_for():
    import threading

    lock = threading.Lock()

    def locked(row):
        with lock:
            return row["y"]

    with pytest.raises(ps.PenstockError, match="lock"):
        list(source().map(locked).with_options(processes=1))


@pytest.mark.parametrize("how", ["file", "stdin"])
def test_it_works_in_a_script_without_a_guard(tmp_path, how):
    script = textwrap.dedent("""
        import numpy as np
        import penstock as ps

        def twice(x):
            return x * 2

        ds = ps.from_arrays(np.arange(100)).map(twice).with_options(processes=2)
        print(sum(int(x) for x in ds))
    """)
    if how == "file":
        path = tmp_path / "script.py"
        path.write_text(script)
        done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    else:
        done = subprocess.run(
            [sys.executable, "-"], input=script, capture_output=True, text=True, check=False
        )
    assert done.stdout == "9900\n", done.stderr


def test_a_budget_too_small_for_the_workers_is_refused_before_the_first_batch():
    ds = source().map(double)
    least = ds.explain().need_nbytes
    with pytest.raises(ps.BudgetError, match="workers of map"):
        ds.with_options(processes=2, memory=least).stream()


def test_a_worker_imports_no_more_of_penstock_than_it_needs_and_a_function_may_use_all_of_it():
    def is_loaded(row):
        return "penstock.dataset" in sys.modules

    def used(row):
        import penstock

        return str(penstock.spec_of(row["y"]))

    assert not any(source(3).map(is_loaded).with_options(processes=1))
    ds = source(3).map(used, spec=ps.ArraySpec((), str)).with_options(processes=1)
    assert list(ds) == ["ArraySpec((), int64)"] * 3


def is_third(row):
    return int(row["y"]) % 3 == 0


def test_a_filter_runs_in_processes_too():
    ds = source().shuffle(seed=3).filter(is_third).batch(7)
    threads = list(ds.with_options(processes=0).stream(epoch=1))
    assert_same(ds.with_options(processes=2).stream(epoch=1), threads)
    with ds.with_options(processes=2).stream() as stream:
        next(stream)
        state = stream.state()
        decision, *_ = map(str, stream.report().decisions)
    assert "filter(is_third) on 2 processes" in decision
    rest = list(ds.with_options(processes=0))[1:]
    assert_same(ds.with_options(processes=2).stream(state=state), rest)


def burn_and_keep(row):
    burn(row)
    return True


def test_a_filter_that_holds_the_lock_is_measured_and_a_quick_one_stays_on_threads():
    quick = processes.decide(source().filter(is_third).node, None)
    assert quick.num_processes == 0
    assert "only" in quick.reason
    decision = processes.decide(source(20_000).filter(burn_and_keep).node, None)
    assert "two threads make" in decision.reason


def fail_or_say(row):
    if int(row["y"]) == 200:
        raise KeyError("no such thing")
    return "yes" if int(row["y"]) == 250 else True


def test_errors_of_a_filter_in_processes_are_those_of_threads():
    with pytest.raises(ps.FunctionError, match=r"filter\(fail_or_say\), .* row 200: KeyError"):
        list(source().filter(fail_or_say).with_options(processes=1))
    with pytest.raises(ps.SpecMismatchError, match="must return one True or False, got str"):
        list(source().skip(201).filter(fail_or_say).with_options(processes=1))
