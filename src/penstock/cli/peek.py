"""`penstock peek PATH`: the first rows of files, and a few statistics of them."""

import os
import shutil
import sys

import click

from penstock.cli import Command
from penstock.cli.inputs import Source, json_flag, paths_argument, print_json, reads_files


@click.command(
    cls=Command,
    examples="""
        penstock peek train.npz
        penstock peek images/ --rows 3 --html rows.html
        penstock peek "shards/*.tfrecord" --feature image=image --feature label=int64 --json
    """,
)
@paths_argument
@reads_files()
@click.option("--rows", type=click.IntRange(min=1), default=5, show_default=True, help="How many.")
@click.option(
    "--html",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write a page with the images, such as rows.html.",
)
@json_flag
def command(source: Source, rows: int, html: str | None, as_json: bool) -> None:  # noqa: FBT001  # click calls it by names.
    """Show the first rows of files and a few statistics of them: series as small plots, images as pictures.

    PATH is a file, a folder, a glob in quotes or a URL; NAME=PATH several times puts files side by side. Only the rows
    that are shown are read. Pictures are drawn in a terminal with colours, and on the page of --html.
    """
    found = source.open().peek(rows)
    if html is not None:
        found.to_html(html)
    if as_json:
        print_json(found.to_dict())
        return
    click.echo(str(found))
    if sys.stdout is not None and sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        is_true = os.environ.get("COLORTERM", "") in ("truecolor", "24bit")
        for line in found.pictures(shutil.get_terminal_size().columns, is_true=is_true):
            click.echo(line, color=True)
