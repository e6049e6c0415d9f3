"""Reports of several ranks, as one."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from penstock.reports.figures import (
    DeviceTraffic,
    Sample,
    SkippedFile,
    StagePadding,
    StageTime,
)
from penstock.reports.measured import Measured

_SHOWN = 10  # Errors that are kept as text, as of one stream.
_MOST_SAMPLES = 240
R = TypeVar("R", bound=Measured)


def merged(reports: Sequence[Measured], kind: type[R]) -> R:
    """Return one report: counts are added, and the time is from when the first was opened to when the last ended."""
    found = sorted(reports, key=lambda one: one.rank)
    if not found:
        raise ValueError("merge_reports needs at least one report, got none.")
    first = found[0]
    for one in found:
        if one.ranks:
            raise ValueError(
                "merge_reports takes the reports of single ranks, got one that was merged before: merge its .ranks."
            )
        if (one.epoch, len(one.stages)) != (first.epoch, len(first.stages)):
            raise ValueError(
                f"merge_reports takes reports of one epoch of one pipeline, got epoch {first.epoch} with "
                f"{len(first.stages)} stages and epoch {one.epoch} with {len(one.stages)}."
            )
    ranks = [one.rank for one in found]
    if len(set(ranks)) < len(ranks):
        raise ValueError(
            f"merge_reports takes one report of each rank, got those of ranks {ranks}."
        )
    begin = min(one.opened_at for one in found)
    seconds = max(one.opened_at - begin + one.seconds for one in found)

    def total(of: Callable[[Measured], int]) -> int:
        return sum(map(of, found))

    values = {name: getattr(first, name) for name in Measured.__dataclass_fields__}
    expected = [one.num_expected for one in found]
    files: dict[str, int] = {}
    for one in found:
        for file in one.skipped_files:
            files[file.file] = files.get(file.file, 0) + file.num_rows
    states = [one.state for one in found]
    values |= {
        "num_elements": max(one.num_elements for one in found),
        "num_expected": None
        if None in expected
        else max(one for one in expected if one is not None),
        "num_rows": total(lambda one: one.num_rows),
        "nbytes": total(lambda one: one.nbytes),
        "read_nbytes": total(lambda one: one.read_nbytes),
        "net_nbytes": total(lambda one: one.net_nbytes),
        "cache_nbytes": total(lambda one: one.cache_nbytes),
        "num_blocks": total(lambda one: one.num_blocks),
        "peak_nbytes": total(lambda one: one.peak_nbytes),
        "held_nbytes": total(lambda one: one.held_nbytes),
        "budget_nbytes": total(lambda one: one.budget_nbytes),
        "full_nbytes": max(one.full_nbytes for one in found),
        "seconds": seconds,
        "threads": total(lambda one: one.threads),
        "cores": total(lambda one: one.cores),
        "waited_seconds": sum(one.waited_seconds for one in found) / len(found),
        "stages": _stages(found),
        "decisions": tuple(
            replace(one, what=f"rank {report.rank}: {one.what}")
            for report in found
            for one in report.decisions
        ),
        "num_skipped": total(lambda one: one.num_skipped),
        "skipped": tuple(text for one in found for text in one.skipped)[:_SHOWN],
        "skipped_files": tuple(
            SkippedFile(*one) for one in sorted(files.items(), key=lambda one: -one[1])
        ),
        "padding": _padding(found),
        "device": _device(found),
        "timeline": _timeline(found),
        "spans": (),
        "thread_names": (),
        "opened_at": begin,
        "state": next((one for one in ("failed", "open", "closed") if one in states), "ended"),
        "error": next((f"rank {one.rank}: {one.error}" for one in found if one.error), ""),
        "rank": 0,
        "ranks": tuple(found),
    }
    return kind(**values)


def _stages(found: Sequence[Measured]) -> tuple[StageTime, ...]:
    stages = []
    for same in zip(*(one.stages for one in found), strict=True):
        queues = [one.queue for one in same if one.queue is not None]
        stages.append(
            replace(
                same[0],
                seconds=sum(one.seconds for one in same),
                num_rows=sum(one.num_rows for one in same),
                num_processes=sum(one.num_processes for one in same),
                queue=sum(queues) / len(queues) if queues else None,
            )
        )
    return tuple(stages)


def _padding(found: Sequence[Measured]) -> tuple[StagePadding, ...]:
    sums: dict[str, tuple[int, int]] = {}
    for report in found:
        for one in report.padding:
            values, padding = sums.get(one.call, (0, 0))
            sums[one.call] = values + one.num_values, padding + one.num_padding
    return tuple(StagePadding(call, *counts) for call, counts in sums.items())


def _device(found: Sequence[Measured]) -> DeviceTraffic | None:
    devices = [one.device for one in found if one.device is not None]
    if not devices:
        return None
    return DeviceTraffic(
        nbytes=sum(one.nbytes for one in devices),
        all_nbytes=sum(one.all_nbytes for one in devices),
        data_nbytes=sum(one.data_nbytes for one in devices),
        index_nbytes=sum(one.index_nbytes for one in devices),
        is_resident=all(one.is_resident for one in devices),
        is_shared=all(one.is_shared for one in devices),
    )


def _timeline(found: Sequence[Measured]) -> tuple[Sample, ...]:
    """Return how far all ranks together were; one that was not open yet had done nothing."""
    begin = min(one.opened_at for one in found)
    moments = sorted(
        {one.opened_at - begin + sample.seconds for one in found for sample in one.timeline}
    )
    step = -(-len(moments) // _MOST_SAMPLES) or 1
    kept = moments[::-step][::-1]  # The last one is always among them.
    lines = [(one.opened_at - begin, one.timeline) for one in found if one.timeline]
    return tuple(_together([_at(at - since, line) for since, line in lines], at) for at in kept)


def _at(seconds: float, line: Sequence[Sample]) -> Sample:
    """Return how far a rank was at a moment: between two samples, in proportion."""
    if seconds <= 0:
        return line[0]._replace(
            num_elements=0,
            num_rows=0,
            nbytes=0,
            read_nbytes=0,
            waited_seconds=0.0,
            ledger_nbytes=0,
            held_nbytes=0,
            queue=0,
            threads=0,
            stage_seconds=(0.0,) * len(line[0].stage_seconds),
        )
    if seconds >= line[-1].seconds:
        last = line[-1]
        return last._replace(ledger_nbytes=0, queue=0, threads=0)  # It is closed.
    before = _at(0.0, line)._replace(seconds=0.0)
    for after in line:
        if seconds <= after.seconds:
            break
        before = after
    part = (seconds - before.seconds) / max(after.seconds - before.seconds, 1e-12)
    part = min(1.0, max(0.0, part))

    def between(one: float, other: float) -> float:
        return one + part * (other - one)

    return after._replace(
        num_elements=round(between(before.num_elements, after.num_elements)),
        num_rows=round(between(before.num_rows, after.num_rows)),
        nbytes=round(between(before.nbytes, after.nbytes)),
        read_nbytes=round(between(before.read_nbytes, after.read_nbytes)),
        waited_seconds=between(before.waited_seconds, after.waited_seconds),
        stage_seconds=tuple(map(between, before.stage_seconds, after.stage_seconds)),
    )


def _together(ranks: Sequence[Sample], at: float) -> Sample:
    count = len(ranks)
    queues = zip(*(one.queues for one in ranks), strict=True)
    return Sample(
        seconds=at,
        num_elements=max(one.num_elements for one in ranks),
        num_rows=sum(one.num_rows for one in ranks),
        nbytes=sum(one.nbytes for one in ranks),
        read_nbytes=sum(one.read_nbytes for one in ranks),
        waited_seconds=sum(one.waited_seconds for one in ranks) / count,
        ledger_nbytes=sum(one.ledger_nbytes for one in ranks),
        held_nbytes=sum(one.held_nbytes for one in ranks),
        queue=min(one.queue for one in ranks),
        threads=sum(one.threads for one in ranks),
        stage_seconds=tuple(map(sum, zip(*(one.stage_seconds for one in ranks), strict=True))),
        queues=tuple(
            sum(one for one in same if one is not None)
            if any(one is not None for one in same)
            else None
            for same in queues
        ),
    )
