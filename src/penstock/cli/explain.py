"""`penstock explain PATH`: what a shuffled pass would do, before anything is read."""

import dataclasses
from typing import Any

import click

from penstock.cli import Command
from penstock.cli.flags import flag_words
from penstock.cli.inputs import Source, json_flag, paths_argument, print_json, reads_files
from penstock.cli.passes import shuffle_options, shuffled_batches


@click.command(
    cls=Command,
    examples="""
        penstock explain "data/*.npz" --memory 512MB
        penstock explain train.npy --exact --batch-size 256
        penstock explain s3://bucket/table.parquet --storage-options '{"anon": true}' --json
    """,
)
@paths_argument
@reads_files()
@shuffle_options
@json_flag
def command(source: Source, as_json: bool, **how: Any) -> None:  # noqa: FBT001  # click calls it by names.
    """Show what a shuffled pass would do: the stages, how rows are mixed, threads, blocks, and memory.

    PATH is a file, a folder, a glob in quotes or a URL; NAME=PATH several times puts files side by side. Only
    headers are read.
    """
    plan = shuffled_batches(source.open(), **how).explain()
    if as_json:
        print_json({**dataclasses.asdict(plan), "fits": plan.fits})
    else:
        for line in str(plan).splitlines():
            # The calls of the pipeline are those of a program; what is said of them is for who types flags.
            is_said = line.startswith("note:") or "with_options(" in line
            click.echo(flag_words(line) if is_said else line)
