"""`penstock peek PATH`: the first rows of files, and a few statistics of them."""

import click

from penstock.cli import Command
from penstock.cli.inputs import Source, json_flag, paths_argument, print_json, reads_files


@click.command(
    cls=Command,
    examples="""
        penstock peek train.npz
        penstock peek table.parquet --fields age,income --rows 20
        penstock peek "shards/*.tfrecord" --feature image=image --feature label=int64 --json
    """,
)
@paths_argument
@reads_files()
@click.option("--rows", type=click.IntRange(min=1), default=5, show_default=True, help="How many.")
@json_flag
def command(source: Source, rows: int, as_json: bool) -> None:  # noqa: FBT001  # click calls it by names.
    """Show the first rows of files and a few statistics of them: series as small plots, images by their sizes.

    PATH is a file, a folder, a glob in quotes or a URL; NAME=PATH several times puts files side by side. Only the rows
    that are shown are read.
    """
    found = source.open().peek(rows)
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(str(found))
