"""`penstock bench PATH`: what this disk can do with the user's files, what penstock gets, and what stands between."""

from typing import TYPE_CHECKING

import click

from penstock.cli import Command
from penstock.cli.flags import flag_words
from penstock.cli.inputs import Source, json_flag, paths_argument, print_json, reads_files
from penstock.core.lazy import lazy

if TYPE_CHECKING:
    from penstock.cli import measuring
else:
    measuring = lazy("penstock.cli.measuring")


@click.command(
    cls=Command,
    examples="""
        penstock bench "data/*.npz"
        penstock bench train.npy --batch-size 256 --seconds 10
        penstock bench x=x.npy y=y.npy --memory 512MB --json
    """,
)
@paths_argument
@reads_files()
@click.option(
    "--batch-size",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    metavar="N",
    help="The rows of a batch.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(min=0.1),
    default=3.0,
    show_default=True,
    help="How long each of the six measurements may take.",
)
@json_flag
def command(source: Source, batch_size: int, seconds: float, as_json: bool) -> None:  # noqa: FBT001  # click calls it by names.
    """Measure what this disk can do with files, and what penstock gets.

    PATH is a file, a folder, a glob in quotes or a URL. The files are read one after the other, and then by penstock,
    in their order and shuffled: each cold (from the disk) and warm (from the page cache). The line at the end says what
    stands between. Nothing is written.
    """
    found = measuring.measure(source.open(), batch_size, seconds)
    if as_json:
        print_json(found.to_dict())
    else:
        click.echo(flag_words(str(found)))
