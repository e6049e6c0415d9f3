"""The bottleneck, and a cure that is right for the situation."""

from dataclasses import replace

import numpy as np
import pytest
from tests.reports.reports import MAP, SOURCE, report

import penstock as ps
from penstock.reports.figures import DeviceTraffic, StagePadding, StageTime


def test_the_consumer_is_the_bottleneck_if_data_was_always_there_and_else_the_slowest_stage_is():
    assert report(waited_seconds=0.001).bottleneck == "the consumer"
    assert "data was always ready" in report(waited_seconds=0.001).advice
    assert report().bottleneck == "map(f)"
    assert report(num_elements=0, waited_seconds=0.01).advice == "nothing was read"
    # Who still waits for the first batch wants to know for what.
    waiting = report(num_elements=0, waited_seconds=5.0, seconds=5.0, state="open")
    assert waiting.bottleneck == "map(f)"


def function(**values: object) -> str:
    found = {name: value for name, value in values.items() if name in ("threads", "cores")}
    stage = replace(MAP, **{name: value for name, value in values.items() if name not in found})
    return report(stages=(SOURCE, stage), **found).advice


def test_a_function_is_told_of_processes_threads_and_batches_as_far_as_they_would_help():
    assert function(num_processes=2, cores=4) == (
        "map(f) is the bottleneck: 80 % of the time on 2 processes; the consumer waited 50 %; "
        "with_options(processes=4) or call it on batches (.batch(n).map(f))"
    )
    assert function(num_processes=2).endswith(
        "; make it faster or call it on batches (.batch(n).map(f))"
    )
    assert function(num_processes=2, is_batched=True).endswith("; make it faster")
    assert function(threads=1, cores=4).endswith(
        "on 1 thread; the consumer waited 50 %; with_options(threads=4) or "
        "call it on batches (.batch(n).map(f))"
    )
    by_user = function(placement="map(f) on threads: processes=0 by with_options")
    assert "with_options(processes=2) if it holds the interpreter lock" in by_user
    unsent = function(
        placement="map(f) on threads: it can't be sent to another process: a lock in it"
    )
    assert (
        "let it be sent to other processes (map(f) on threads: it can't be sent to another process"
        in unsent
    )
    short = function(
        placement="map(f) at the hand-over: a call takes 3 us only", threads=1, cores=4
    )
    assert "on the thread that iterates" in short
    assert "threads=" not in short


@pytest.mark.parametrize(
    ("kind", "more", "cure"),
    [
        ("generator", {}, "let it yield whole batches and call .unbatch()"),
        ("remote", {}, 'with_options(remote_cache="50GB")'),
        ("remote", {"cache_nbytes": 5}, "a larger with_options(remote_cache=...)"),
        ("files", {}, "penstock bench PATH tells which"),
        ("shuffle", {}, "it waits for storage, or orders rows"),
        ("memory", {}, "as fast as memory gives them"),
        ("", {}, "larger batches cost less each"),
    ],
)
def test_each_kind_of_stage_has_its_cure(kind: str, more: dict[str, int], cure: str):
    assert cure in report(stages=(StageTime("it", 1.0, 5, kind=kind),), **more).advice


def test_a_small_budget_padding_and_no_threads_are_told_besides():
    small = report(full_nbytes=123_456_789).advice
    assert small.endswith(
        'The budget of 10 KB made the plan smaller: with_options(memory="124MB") would not'
    )
    padded = report(padding=(StagePadding("padded_batch(8)", 40, 60), StagePadding("pack", 99, 1)))
    assert (
        "60 % of what padded_batch(8) makes is padding: bucket_by_sequence_length" in padded.advice
    )
    assert "padding" not in report(padding=(StagePadding("padded_batch(8)", 90, 10),)).advice
    assert "Nothing is made ahead, by threads=0 or prefetch(0)" in report(threads=0).advice


def test_the_kinds_are_found_in_real_pipelines(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((1000, 300)))
    numbers = ps.from_generator(lambda: iter(range(10)), ps.ArraySpec((), "int64"))
    ds = (
        ps.from_files(tmp_path / "x.npy")
        .shuffle(window=100_000)
        .map(lambda x: x, spec=ps.ArraySpec((300,), "f8"))
    )

    def kinds(ds: ps.Dataset) -> list[str]:
        with ds.stream() as stream:
            return [stage.kind for stage in stream.report().stages]

    assert kinds(ds.batch(10)) == ["files", "shuffle", "function", ""]
    assert kinds(numbers.batch(2)) == ["generator", ""]
    assert kinds(ps.from_arrays(np.arange(9)).shuffle()) == ["memory", ""]


def test_a_budget_that_made_the_plan_smaller_is_known_with_one_that_would_not():
    ds = ps.from_arrays(np.zeros((2000, 10_000), "f4")).batch(32)
    with ds.with_options(memory="4MB").stream() as stream:
        found = stream.report().full_nbytes
    assert found > 4_000_000
    with ds.with_options(memory=found).stream() as stream:
        assert stream.report().full_nbytes == 0


def test_rows_that_are_copied_to_the_device_first_are_told_as_such():
    found = report(device=DeviceTraffic(1, 1, 1, is_resident=True), waited_seconds=0.5)
    assert found.bottleneck == "copying to the device"
    assert "waited 0.5 s for that" in found.advice
    later = report(device=DeviceTraffic(1, 1, 1, is_resident=True), waited_seconds=0.0)
    assert later.bottleneck == "the consumer"
