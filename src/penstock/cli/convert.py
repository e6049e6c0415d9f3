"""`penstock convert IN OUT`: files of one format, written as another."""

import time
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import Command
from penstock.cli.inputs import Source, reads_files
from penstock.core.lazy import lazy

if TYPE_CHECKING:
    from penstock import makers, memory
    from penstock.io import paths
    from penstock.writers import endings
else:
    endings = lazy("penstock.writers.endings")
    makers = lazy("penstock.makers")
    memory = lazy("penstock.memory")
    paths = lazy("penstock.io.paths")


@click.command(
    cls=Command,
    format_flag="--source-format",
    examples="""
        penstock convert "data/*.npz" data-shards
        penstock convert table.csv table.parquet --fields age,income
        penstock convert train.tfrecord train.zarr --feature image=image:64,64 --feature label=int64
    """,
)
@click.argument("paths", metavar="IN")
@click.argument("target", metavar="OUT")
@reads_files(format_flag="--source-format")
@click.option(
    "--format",
    "target_format",
    type=click.Choice(["npy", "parquet", "tfrecord", "zarr"]),
    help="What to write, if the ending of OUT does not tell.",
)
@click.option(
    "--shard-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="Rows a file; by default those of 256 MB (of zarr: 16 MB).",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "ray"]),
    default="local",
    help="Who writes: this process, or tasks of Ray, on the cluster that is running here or else locally.",
)
@click.option("--overwrite", is_flag=True, help="Replace OUT if penstock wrote it.")
def command(
    source: Source,
    target: str,
    target_format: Any,
    shard_rows: int | None,
    engine: Any,
    overwrite: bool,  # noqa: FBT001  # click calls it by names.
) -> None:
    """Write the rows of files anew.

    IN is a file, a folder, a glob in quotes or a URL, of any format that penstock reads. OUT is a folder of .npy
    shards (a name without an ending), .parquet, .tfrecord or .zarr. It appears when it is whole; after an
    interruption, the same command goes on from what is finished (.npy shards), or starts over.
    """
    started = time.perf_counter()
    format = _target_format(target, target_format)
    ds = source.open()
    try:
        ds.write(target, format=format, shard_rows=shard_rows, overwrite=overwrite, engine=engine)
    except KeyboardInterrupt as error:
        if not getattr(error, "__notes__", ()):
            error.add_note("Nothing was written.")
        raise
    seconds = time.perf_counter() - started
    # How many rows there were is known by now, of a flow, too; TFRecords do not tell what they were.
    if format != "tfrecord":
        written = makers.from_files(target)
    elif ds.node.num_rows is not None:
        written = ds
    elif paths.remote_target(target):  # To count them, all of it would be fetched.
        click.echo(f"{seconds:.1f} s: {target}")
        return
    else:
        written = makers.from_tfrecord(target, raw=True)
    nbytes = (written.node.num_rows or 0) * written.node.row_nbytes
    rate = memory.format_nbytes(int(nbytes / max(seconds, 1e-9)))
    size = f"{memory.format_nbytes(nbytes)} in {seconds:.1f} s ({rate}/s)"
    click.echo(f"{written.node.num_rows} rows, {size}: {target}")


def _target_format(target: str, format: str | None) -> Any:
    """Return what is written: what was asked for, or what the ending of the target says; they must agree."""
    ending = endings.ending_of(target)
    if format is None:
        if ending.format is None:
            other = "" if ending.is_known else "; or say which with --format"
            raise click.UsageError(
                f"OUT ends in {ending.suffix!r}, which can't be written: write {endings.WRITTEN}{other}."
            )
        return ending.format
    if ending.contradicts(format):
        raise click.UsageError(
            f"OUT ends in {ending.suffix!r}, and --format {format} makes something else: choose another name."
        )
    return format
