"""with_options(watch=True): what a stream does is shown on the live page."""

from typing import TYPE_CHECKING

from penstock.core.lazy import lazy
from penstock.engine.plan import Plan

if TYPE_CHECKING:
    from penstock.live import publisher
    from penstock.live.publisher import Watched
else:
    publisher = lazy("penstock.live.publisher")  # What most programs never use.


def watch(stream: "Watched", plan: Plan) -> None:
    """Show what a stream does on the live page, until `unwatch` is called."""
    share = plan.node.share
    publisher.begin(
        stream,
        plan.node,
        {
            "block_rows": plan.block_rows,
            "block_nbytes": plan.node.block_nbytes(plan.block_rows),
            "ahead": plan.ahead,
            "threads": plan.threads if plan.is_threaded else 0,
            "total_nbytes": plan.total + plan.cached,
            "budget_nbytes": plan.budget,
            "why": plan.why,
        },
        rank=0 if share is None else share.rank,
    )


def unwatch(stream: "Watched") -> None:
    """Take note that a stream that is watched was closed."""
    publisher.end(stream)
