"""`penstock inspect PATH`: what is in files, and what a shuffled pass over them would cost."""

from typing import TYPE_CHECKING

import click

from penstock.cli import FAILED, Command
from penstock.cli.flags import flag_words
from penstock.cli.inputs import (
    Source,
    json_flag,
    parsed_size,
    paths_argument,
    print_json,
    reads_files,
)
from penstock.core.lazy import lazy

if TYPE_CHECKING:
    from penstock.cli import facts as content
else:
    content = lazy("penstock.cli.facts")


@click.command(
    cls=Command,
    examples="""
        penstock inspect "data/*.npz"
        penstock inspect train.h5 --fields images,labels --window 1GB
        penstock inspect pixels.bin --dtype uint8 --shape 28,28 --json
    """,
)
@paths_argument
@reads_files()
@click.option("--window", type=parsed_size, metavar="SIZE", help="Of the shuffle, such as 1GB.")
@json_flag
def command(source: Source, window: int | None, as_json: bool) -> int:  # noqa: FBT001  # click calls it by names.
    """Show what is in files, and what a shuffled pass over them costs.

    PATH is a file, a folder, a glob in quotes or a URL; NAME=PATH several times puts files side by side. Of TFRecords,
    the features that their first records have are shown; damaged ones are told, and the command fails.
    """
    facts, lines = {}, []
    if source.is_tfrecord and not source.by_name:
        records = content.facts_of_records(source.records())
        facts["records"], lines = records, list(content.lines_of_records(records))
    if not facts or not (facts["records"]["damage"] or facts["records"]["no_features"]):
        rows = content.facts_of(source.open(), window)
        facts |= rows
        lines += content.lines_of(rows)
    if as_json:
        print_json(facts)
    else:
        for line in lines:
            click.echo(flag_words(line))
    return FAILED if facts.get("records", {}).get("damage") else 0
