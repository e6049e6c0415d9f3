"""A bar on the terminal while rows are written."""

import contextlib
import sys
from collections.abc import Callable, Iterator

Advance = Callable[[int, int], None]
"""Takes the rows and the bytes that were written since the last call."""


@contextlib.contextmanager
def progress_bar(
    what: str, *, num_rows: int | None, done: int, wanted: bool | None
) -> Iterator[Advance]:
    """Yield a function that advances the bar, or that does nothing where there is no bar.

    `wanted=None` shows a bar if rich is installed and stderr is a terminal.
    """
    if wanted is False or (wanted is None and not sys.stderr.isatty()):
        yield _nothing
        return
    try:
        import rich.console
        import rich.progress
    except ImportError as error:
        if wanted:
            message = "progress=True needs rich: pip install 'penstock[progress]'"
            raise ImportError(message, name="rich") from error
        yield _nothing
        return
    columns = (
        rich.progress.TextColumn("{task.description}"),
        rich.progress.BarColumn(),
        rich.progress.TextColumn("{task.completed:,} rows"),
        rich.progress.TextColumn("{task.fields[speed]}"),
        rich.progress.TimeRemainingColumn(),
    )
    console = rich.console.Console(stderr=True)
    with rich.progress.Progress(*columns, console=console) as bar:
        task = bar.add_task(what, total=num_rows, completed=done, speed="")
        nbytes = 0

        def advance(rows: int, more: int) -> None:
            nonlocal nbytes
            nbytes += more
            elapsed = bar.tasks[0].elapsed or 0.0
            speed = f"{nbytes / elapsed / 1e6:.0f} MB/s" if elapsed > 0 else ""
            bar.update(task, advance=rows, speed=speed)

        yield advance


def _nothing(rows: int, nbytes: int) -> None:
    pass
