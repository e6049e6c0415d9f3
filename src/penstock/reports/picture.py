"""A pipeline in a notebook: its picture, and what is planned."""

from collections.abc import Sequence
from html import escape

from penstock.reports import style
from penstock.reports.pipeline import Box, draw


def shown(boxes: Sequence[Box], *, plan: str = "", notes: Sequence[str] = ()) -> str:
    """Return a pipeline as a part of a page, with the lines of its plan, and notes."""
    body = draw(boxes)
    if plan:
        body += f'<pre class="plan">{escape(plan)}</pre>'
    if notes:
        body += f"<ul>{''.join(f'<li>{escape(one)}</li>' for one in notes)}</ul>"
    return style.fragment(body)
