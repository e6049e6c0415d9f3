"""Reports for tests: made by hand, so that every figure is known."""

from typing import Any

import penstock as ps
from penstock.reports.figures import Sample, StageTime

SOURCE = StageTime("from_arrays", 0.1, 500, kind="memory")
MAP = StageTime("map(f)", 0.4, 500, is_function=True, kind="function")


def report(**values: Any) -> ps.Report:
    """A second of a stream with a source and a function, for half of which the consumer waited."""
    stages = values.get("stages", (SOURCE, MAP))
    found: dict[str, Any] = {
        "epoch": 0,
        "num_elements": 50,
        "num_rows": 500,
        "is_batched": True,
        "nbytes": 4000,
        "seconds": 1.0,
        "waited_seconds": 0.5,
        "stages": stages,
        "threads": 2,
        "cores": 2,
        "num_blocks": 5,
        "peak_nbytes": 3000,
        "held_nbytes": 1000,
        "budget_nbytes": 10_000,
        "timeline": tuple(sample(0.1 * number, len(stages)) for number in range(1, 11)),
        "state": "ended",
    }
    return ps.Report(**found | values)


def sample(seconds: float, num_stages: int = 2) -> Sample:
    """A sample of a stream that does 50 batches of 10 rows a second."""
    count = round(50 * seconds)
    return Sample(
        seconds=seconds,
        num_elements=count,
        num_rows=10 * count,
        nbytes=80 * count,
        read_nbytes=0,
        waited_seconds=seconds / 2,
        ledger_nbytes=2500,
        held_nbytes=1000,
        queue=2,
        threads=2,
        stage_seconds=(0.2 * seconds,) * num_stages,
        queues=(None,) * (num_stages - 1) + (2,),
    )
