"""A report as a trace: in the form that Chrome and Perfetto read, and true."""

import numpy as np
import pytest
from tests.reports.reports import report

import penstock as ps
from penstock.reports.figures import Decided, Span
from penstock.reports.trace import to_trace

# What the format asks of each kind of event besides "name", "pid" and "tid".
NEEDED = {"M": {"args"}, "X": {"ts", "dur", "cat"}, "C": {"ts", "args"}, "i": {"ts", "s"}}


def checked(found: ps.Report) -> list[dict]:
    events = to_trace(found)["traceEvents"]
    for event in events:
        assert {"ph", "name", "pid", "tid"} | NEEDED[event["ph"]] <= event.keys()
        assert isinstance(event["pid"], int)
        assert event.get("ts", 0) >= 0
        assert event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int | float) for value in event["args"].values())
    return events


def test_work_waits_decisions_and_counts_are_in_the_trace():
    spans = (Span(1, 0, 0.25, 0.5), Span(-1, 1, 0.3, 0.1))
    decisions = (Decided("threads 2 -> 3", "it waits", 0.5),)
    events = checked(report(spans=spans, thread_names=("worker", "main"), decisions=decisions))
    work = [(one["name"], one["tid"], one["ts"], one["dur"]) for one in events if one["ph"] == "X"]
    assert work == [
        ("map(f)", 1, 250_000, 500_000),
        ("waiting", 2, pytest.approx(300_000), pytest.approx(100_000)),
    ]
    names = {one["tid"]: one["args"]["name"] for one in events if one["name"] == "thread_name"}
    assert names == {1: "worker", 2: "main"}
    (decided,) = [one for one in events if one["ph"] == "i"]
    assert (decided["name"], decided["ts"], decided["args"]) == (
        "threads 2 -> 3",
        500_000,
        {"why": "it waits"},
    )
    rates = [one["args"]["rows"] for one in events if one["name"] == "rows a second"]
    assert rates == pytest.approx([500.0] * 9)


def test_ranks_are_processes_on_one_time_axis():
    ranks = [
        report(
            rank=n,
            world=2,
            opened_at=100.0 + n,
            spans=(Span(0, 0, 0.0, 0.1),),
            thread_names=("main",),
        )
        for n in (0, 1)
    ]
    events = checked(ps.merge_reports(ranks))
    assert [(one["pid"], one["ts"]) for one in events if one["ph"] == "X"] == [(1, 0.0), (2, 1e6)]


def test_the_work_of_a_real_stream_lies_within_its_time_and_adds_up_to_no_more_than_its_threads_had():
    ds = (
        ps.from_arrays(np.zeros((4000, 300)))
        .map(np.sort)
        .batch(20)
        .with_options(processes=0, threads=2)
    )
    with ds.stream() as stream:
        for _ in stream:
            pass
        found = stream.report()
    events = [one for one in checked(found) if one["ph"] == "X"]
    assert {"batch(20)", "map(sort)"} <= {one["name"] for one in events}
    for one in events:
        assert one["ts"] + one["dur"] <= found.seconds * 1e6 + 1
    for thread in {one["tid"] for one in events}:
        outer = [
            one["dur"] for one in events if one["tid"] == thread and one["name"] == "batch(20)"
        ]
        assert sum(outer) <= found.seconds * 1e6
