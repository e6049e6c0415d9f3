"""`penstock fit MODEL PATH`: trains a Keras model on files; killed and started again, it goes on."""

import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import Command
from penstock.cli.inputs import Source, json_flag, print_json, reads_files, split_names
from penstock.cli.passes import batched, kept, shuffle_options, shuffled
from penstock.core.ctrl_c import Interrupts
from penstock.core.lazy import lazy

if TYPE_CHECKING:
    from penstock import memory as sizes
    from penstock.core import nest as nests
    from penstock.dataset import Dataset
    from penstock.feeds.keras import fit_command
    from penstock.reports.report import Report
else:
    fit_command = lazy("penstock.feeds.keras.fit_command")
    nests = lazy("penstock.core.nest")
    sizes = lazy("penstock.memory")

_OWN = ("seconds", "batches", "rows_per_second", "waited_seconds", "peak_nbytes", "epoch")


@click.command(
    cls=Command,
    fields_flag="--x and --y",
    examples="""
        penstock fit model.py:build "data/*.npz" --x data --y labels --epochs 3 --memory 512MB
        penstock fit model.keras x=x.npy y=y.npy --validation 0.1 --resume run/ --out trained.keras
        penstock fit model.py:build train.tfrecord --feature i=image:64,64 --feature c=int64 --x i --y c
    """,
)
@click.argument("model", metavar="MODEL")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--x", metavar="A,B", help="The field that is the input of the model, or several.")
@click.option("--y", metavar="C", help="The field that is the target, or several.")
@click.option("--weight", metavar="W", help="The field that is the weight of a row.")
@click.option(
    "--epochs",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="How often all rows are trained on.",
)
@click.option(
    "--validation",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="The share of rows that is held back, the same in every epoch, such as 0.1.",
)
@click.option(
    "--resume",
    type=click.Path(file_okay=False),
    metavar="FOLDER",
    help="Save the run there, and go on from what is there.",
)
@click.option(
    "--save-every",
    type=click.IntRange(min=1),
    default=500,
    show_default=True,
    metavar="N",
    help="Batches between two saves; the end of each epoch is saved as well.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Where the trained model goes: NAME.keras.",
)
@click.option(
    "--overwrite", is_flag=True, help="Replace the files of --out and --report (as --resume does)."
)
@click.option(
    "--report",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Where the report of the last epoch goes: NAME.html or NAME.json.",
)
@click.option("--watch", is_flag=True, help="Show the training on a live page, as it goes.")
@click.option("--loss", help="Compile the model with this loss, such as mse.")
@click.option("--optimizer", help="With this optimizer; by default adam.")
@click.option(
    "--metric",
    multiple=True,
    help="With this metric, such as accuracy; may be given more than once.",
)
@click.option(
    "--backend",
    type=click.Choice(["jax", "torch", "tensorflow"]),
    help="Of Keras; by default what KERAS_BACKEND or Keras' own file says, or what is installed.",
)
@shuffle_options
@reads_files(has_fields=False)
@json_flag
def command(source: Source, **flags: Any) -> None:
    """Train a Keras model on files, within a memory budget.

    MODEL is FILE.py:FUNCTION, whose function returns a compiled model, or a FILE.keras. PATH is a file, a folder, a
    glob in quotes or a URL; NAME=PATH several times puts files side by side. With --resume, a run that was killed at
    any moment goes on after its last save, and comes to the result of one that was never killed.
    """
    as_json: bool = flags["as_json"]
    _check_files(flags)
    # What a file of the user's prints is not for whoever reads JSON.
    elsewhere = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
    with Interrupts() as interrupts, elsewhere:
        found = _trained(source, flags, interrupts)
    if as_json:
        print_json(found)


def _trained(source: Source, flags: dict[str, Any], interrupts: Interrupts) -> dict[str, Any]:
    """Train, save what is to be saved, and return what came of it."""
    as_json: bool = flags["as_json"]
    pick = _picked(source, flags)
    ds = source.open(_nest(pick, None))
    backend = fit_command.start_keras(flags["backend"])
    model = _model(flags)
    interrupts.check()
    if len(pick["x"]) > 1 and set(pick["x"]) <= set(fit_command.input_names(model)):
        ds = source.open(_nest(pick, dict))  # The model knows its inputs by these names.
    fit_command.check_inputs(model, ds.spec[0], pick["x"])
    train, valid = _parts(ds, flags)
    batch_size = flags["batch_size"]
    feed = train.with_options(watch=flags["watch"]).to_keras()
    held_out = None if valid is None else batched(valid, batch_size).to_keras()
    epochs: list[dict[str, Any]] = []
    if not as_json:
        click.echo(_words_before(train, valid, flags, backend))
    if flags["out"] is None and flags["resume"] is None:
        click.echo("penstock fit: note: the model is not saved: give --out NAME.keras.", err=True)

    def told(figures: dict[str, Any]) -> None:
        epochs.append(figures)
        if not as_json:
            click.echo(_words_of(figures, flags["epochs"]))

    written = []
    run = fit_command.Run(
        flags["epochs"], batch_size, flags["resume"], flags["save_every"], interrupts.check
    )
    try:
        fit_command.train(model, feed, held_out, run, told)
        if flags["out"] is not None:
            fit_command.save_model(model, Path(flags["out"]))
            written.append(flags["out"])
        if flags["report"] is not None and _write_report(feed.report(), flags["report"]):
            written.append(flags["report"])
    except KeyboardInterrupt as error:
        if flags["resume"] is not None:
            error.add_note(f"The same command goes on after the last save in {flags['resume']}.")
        raise
    finally:
        feed.close()
    if written and not as_json:
        click.echo(f"saved {' and '.join(written)}")
    return {"backend": backend, "epochs": epochs, "out": flags["out"]}


def _check_files(flags: dict[str, Any]) -> None:
    """Raise what is known to go wrong before anything is read, or at the end of a long training."""
    try:
        fit_command.check_model_file(flags["model"])
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    for flag, kinds in (("out", (".keras",)), ("report", (".html", ".json"))):
        if (name := flags[flag]) is None:
            continue
        path = Path(name)
        if path.suffix not in kinds:
            raise click.UsageError(
                f"--{flag} must be the name of a {' or '.join(kinds)} file, got {name!r}."
            )
        folder = path.absolute().parent
        if not folder.is_dir():
            raise click.UsageError(f"--{flag}: there is no folder {path.parent}: make it first.")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise click.UsageError(f"--{flag}: no permission to write in {folder}: choose another.")
        if path.exists() and not flags["overwrite"] and flags["resume"] is None:
            raise click.UsageError(
                f"--{flag}: {name} exists already: give --overwrite to replace it."
            )


def _write_report(report: "Report | None", name: str) -> bool:
    """Write the report of the last epoch; return whether there was one."""
    if report is None:
        click.echo("penstock fit: note: no epoch was read: there is no report.", err=True)
    elif name.endswith(".html"):
        report.to_html(name)
    else:
        report.to_json(name)
    return report is not None


def _picked(source: Source, flags: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names of the fields that are x, y and weights."""
    pick = {part: split_names(flags[part] or "") for part in ("x", "y", "weight")}
    if not pick["x"]:
        if set(source.by_name) == {"x", "y"} and not pick["y"]:
            return {"x": ["x"], "y": ["y"], "weight": pick["weight"]}
        names = ", ".join(nests.field_names(source.open().node.structure))
        raise click.UsageError(
            f"say which field is the input, and which the target: --x NAME --y NAME. There are: {names}."
        )
    if pick["weight"] and not pick["y"]:
        raise click.UsageError("--weight needs a --y: it is how much the loss of a row counts.")
    return pick


def _nest(pick: dict[str, list[str]], kind: type[dict[str, str]] | None) -> tuple[Any, ...]:
    """Return what a row is to be: (x,), (x, y) or (x, y, weight), in which several fields are a tuple, or a dict."""
    x: Any = tuple(pick["x"]) if len(pick["x"]) > 1 else pick["x"][0]
    if kind is dict:
        x = {name: name for name in pick["x"]}
    others = (pick[part] for part in ("y", "weight") if pick[part])
    return (x, *(tuple(names) if len(names) > 1 else names[0] for names in others))


def _model(flags: dict[str, Any]) -> Any:
    fit_command.set_seed(flags["seed"])
    model = fit_command.load_model(flags["model"])
    fit_command.compile_model(model, flags["loss"], flags["optimizer"], list(flags["metric"]))
    return model


def _parts(ds: "Dataset", flags: dict[str, Any]) -> "tuple[Dataset, Dataset | None]":
    """Return the batches to train on, and the rows that are held back."""
    valid, share, cache = None, flags["validation"], flags["cache"]
    if share is not None:
        ds, valid = ds.split(1 - share, seed=flags["seed"])
        for part, words in ((ds, "to train on"), (valid, "to validate on")):
            if part.node.num_rows == 0:
                raise click.UsageError(f"--validation {share} leaves no rows {words}.")
        # Each part by itself: rows that can only be read forward are shuffled in full behind a cache of their own.
        if cache is not None:
            valid = valid.cache(Path(cache) / "validation")
            cache = str(Path(cache) / "training")
    ds = kept(ds, scratch=flags["scratch"], cache=cache)
    order = {name: flags[name] for name in ("batch_size", "seed", "no_shuffle", "window", "exact")}
    return shuffled(ds, **order), valid


def _words_before(
    train: "Dataset", valid: "Dataset | None", flags: dict[str, Any], backend: str
) -> str:
    """Return what is going to be done, in a line."""
    count = train.node.num_rows
    batches = "batches" if count is None else f"{count:,} batches"
    text = f"training on {batches} of {flags['batch_size']} rows an epoch, by Keras on {backend}"
    if valid is not None and valid.node.num_rows is not None:
        text += f"; {valid.node.num_rows:,} rows held back"
    plan = train.explain()
    return f"{text}; memory budget {sizes.format_nbytes(plan.budget_nbytes)}"


def _words_of(figures: dict[str, Any], epochs: int) -> str:
    values = [f"{name} {value:.4g}" for name, value in figures.items() if name not in _OWN]
    seconds = figures["seconds"]
    share = 100 * figures["waited_seconds"] / max(seconds, 1e-9)
    return (
        f"epoch {figures['epoch']}/{epochs}  {'  '.join(values)}  "
        f"{figures['rows_per_second']:,.0f} rows/s, {seconds:.1f} s, waited {share:.1f} % for data"
    )
