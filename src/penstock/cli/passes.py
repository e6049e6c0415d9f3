"""The flags of a pass over rows, for commands that make one: batches, and the order of their rows."""

from typing import TYPE_CHECKING, Any

import click

from penstock.cli.inputs import Function, parsed_size

if TYPE_CHECKING:
    from penstock.dataset import Dataset


def shuffle_options(function: Function) -> Function:
    """Give a command the flags that say how rows are shuffled and put into batches."""
    options = [
        click.option(
            "--batch-size",
            type=click.IntRange(min=1),
            default=32,
            show_default=True,
            metavar="N",
            help="The rows of a batch.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="The order that a shuffle has.",
        ),
        click.option("--no-shuffle", is_flag=True, help="Take the rows in the order of the files."),
        click.option(
            "--window",
            type=parsed_size,
            metavar="SIZE",
            help="How far small rows on disk are mixed, such as 1GB; by default 64 MB.",
        ),
        click.option(
            "--exact",
            is_flag=True,
            help="Shuffle as if all rows were in memory, by way of scratch files.",
        ),
        click.option(
            "--scratch",
            type=click.Path(),
            metavar="FOLDER",
            help="Where scratch files go; by default the temporary folder.",
        ),
        click.option(
            "--cache",
            type=click.Path(),
            metavar="FOLDER",
            help="Keep the rows as they are first read: for CSV, packed files and URLs.",
        ),
    ]
    for option in reversed(options):
        function = option(function)
    return function


def shuffled_batches(
    ds: "Dataset", *, scratch: str | None, cache: str | None, **order: Any
) -> "Dataset":
    """Return the batches that the flags of `shuffle_options` ask for."""
    return shuffled(kept(ds, scratch=scratch, cache=cache), **order)


def kept(ds: "Dataset", *, scratch: str | None, cache: str | None) -> "Dataset":
    """Return the rows, kept in the folder of --cache as they are first read."""
    if scratch is not None:
        ds = ds.with_options(scratch=scratch)
    return ds if cache is None else ds.cache(cache)


def shuffled(
    ds: "Dataset",
    *,
    batch_size: int,
    seed: int,
    no_shuffle: bool,
    window: int | None,
    exact: bool,
) -> "Dataset":
    """Return batches of rows in the order that the flags ask for."""
    if no_shuffle and (window is not None or exact):
        raise click.UsageError("--no-shuffle goes with neither --window nor --exact.")
    if not no_shuffle:
        ds = ds.shuffle(seed=seed, exact=exact, window=window)
    return batched(ds, batch_size)


def batched(ds: "Dataset", batch_size: int) -> "Dataset":
    """Return batches of rows; where their shapes differ, padded ones."""
    differ = any(None in field.spec.shape for field in ds.node.fields)
    return ds.padded_batch(batch_size) if differ else ds.batch(batch_size)
