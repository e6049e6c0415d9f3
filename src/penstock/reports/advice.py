"""The bottleneck of a stream, and what to do about it, in words."""

from penstock.memory import format_nbytes
from penstock.reports.figures import StageTime
from penstock.reports.measured import Measured

CONSUMER = "the consumer"
_DEVICE = "copying to the device"
_NO_WAIT = 0.02  # Share of the time: who waits less is the bottleneck itself.
_MUCH_PADDING = 0.3
_SOON = 0.1  # Seconds: who waits longer for the first element wants to know for what.


def bottleneck(report: Measured) -> str:
    """Return the call of the stage that took the most time, or 'the consumer' if data was always there."""
    if not report.num_elements and (report.state == "ended" or report.waited_seconds < _SOON):
        return ""
    if report.seconds and report.waited_share < _NO_WAIT:
        return CONSUMER
    if _is_loading(report):
        return _DEVICE
    stage = _slowest(report)
    return "" if stage is None else stage.call


def advice(report: Measured) -> str:
    """Return the bottleneck and the cure; '' if nothing was read."""
    name = bottleneck(report)
    if not name:
        return "nothing was read" if not report.num_elements else ""
    if name == CONSUMER:
        text = "the consumer is the bottleneck: data was always ready, and only a faster step makes it faster"
    elif name == _DEVICE:
        text = (
            "all rows were copied to the device first, and stay there: the consumer waited "
            f"{report.waited_seconds:.3g} s for that, and waits for nothing in later epochs"
        )
    else:
        stage = _slowest(report)
        assert stage is not None
        text = f"{_what(report, stage)}; {_cure(*_of_one_rank(report, stage))}"
    more = [_ahead(report, name), _budget(report), _padding(report)]
    return ". ".join([text, *(one for one in more if one)])


def _is_loading(report: Measured) -> bool:
    """Return whether the time that was waited is that of copying all rows to the device."""
    return report.device is not None and report.device.is_resident


def _of_one_rank(report: Measured, stage: StageTime) -> tuple[Measured, StageTime]:
    """Return the rank that waited longest, and what it has of a stage: options are those of one process."""
    if not report.ranks:
        return report, stage
    one = _longest_waiting(report)
    return one, one.stages[report.stages.index(stage)]


def _longest_waiting(report: Measured) -> Measured:
    return max(report.ranks, key=lambda rank: rank.waited_share)


def _slowest(report: Measured) -> StageTime | None:
    return max(report.stages, key=lambda stage: stage.seconds, default=None)


def share(report: Measured, stage: StageTime) -> float:
    """Return which share of the time that all stages took is that of one."""
    total = sum(one.seconds for one in report.stages)
    return stage.seconds / total if total else 0.0


def _what(report: Measured, stage: StageTime) -> str:
    where = ""
    if stage.num_processes:
        where = f" on {_count(stage.num_processes, 'process', 'es')}"
    elif "hand-over" in stage.placement:
        where = " on the thread that iterates"
    elif report.threads:
        where = f" on {_count(report.threads, 'thread')}"
    return (
        f"{stage.call} is the bottleneck: {100 * share(report, stage):.0f} % of the time{where}; "
        f"the consumer waited {100 * report.waited_share:.0f} %"
    )


def _cure(report: Measured, stage: StageTime) -> str:
    if stage.kind == "function":
        return _cure_of_function(report, stage)
    if stage.kind == "generator":
        return (
            "a generator runs on one thread: let it yield whole batches and call .unbatch(), keep its rows with "
            ".cache(path), or read several at once with ps.interleave"
        )
    if stage.kind == "remote":
        if report.cache_nbytes:
            return "keep more of it on this machine: a larger with_options(remote_cache=...)"
        return (
            'keep what was fetched on this machine: with_options(remote_cache="50GB"), or .cache(path); '
            "more with_options(threads=...) fetch more at once"
        )
    if stage.kind == "files":
        return (
            "the storage, or decoding what is on it, is the limit: penstock bench PATH tells which; .cache() keeps "
            "the rows in memory if they fit, .cache(path) keeps them decoded"
        )
    if stage.kind == "shuffle":
        return "it waits for storage, or orders rows: .cache() before it keeps them in memory if they fit"
    if stage.kind == "memory":
        return "rows are taken as fast as memory gives them, which a step of training hides; smaller dtypes help"
    return "the work of penstock itself is the limit: larger batches cost less each"


def _cure_of_function(report: Measured, stage: StageTime) -> str:
    """Return what helps a function: more processes or threads while there are cores, then only less work a row."""
    ways = []
    if stage.num_processes:
        if stage.num_processes < report.cores:
            ways.append(f"with_options(processes={report.cores})")
    elif "can't be sent" in stage.placement:
        ways.append(f"let it be sent to other processes ({stage.placement})")
    elif "by with_options" in stage.placement and report.cores > 1:
        ways.append(f"with_options(processes={report.cores}) if it holds the interpreter lock")
    elif "hand-over" not in stage.placement and 0 < report.threads < report.cores:
        ways.append(f"with_options(threads={report.cores})")
    if not stage.is_batched:
        ways.append("call it on batches (.batch(n).map(f))")
    if not ways or report.cores <= max(stage.num_processes, 1):
        ways.insert(0, "make it faster")
    return " or ".join(ways)


def _ahead(report: Measured, name: str) -> str:
    if report.threads or name in (CONSUMER, _DEVICE):
        return ""
    return "Nothing is made ahead, by threads=0 or prefetch(0): without that, threads work while the consumer does"


def _budget(report: Measured) -> str:
    if report.ranks:
        return _budget(_longest_waiting(report))
    if not report.full_nbytes:
        return ""
    return (
        f"The budget of {format_nbytes(report.budget_nbytes)} made the plan smaller: with_options(memory="
        f'"{_mb(report.full_nbytes)}") would not'
    )


def _padding(report: Measured) -> str:
    worst = max(report.padding, key=lambda one: one.share, default=None)
    if worst is None or worst.share < _MUCH_PADDING:
        return ""
    return (
        f"{100 * worst.share:.0f} % of what {worst.call} makes is padding: bucket_by_sequence_length puts rows of "
        "about the same length together, pack leaves no padding"
    )


def _mb(nbytes: int) -> str:
    return f"{-(-nbytes // 1_000_000)}MB"


def _count(number: int, what: str, ending: str = "s") -> str:
    return f"{number} {what}{'' if number == 1 else ending}"
