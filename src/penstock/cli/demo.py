"""`penstock demo`: trains a model on data several times larger than the memory it is given."""

import math
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from penstock.cli import Command
from penstock.cli.inputs import json_flag, parsed_size, print_json
from penstock.core.lazy import lazy
from penstock.core.progress import begin

if TYPE_CHECKING:
    import numpy as np

    from penstock import memory as sizes
    from penstock.cli import limits
    from penstock.feeds.keras import release
    from penstock.io import atomic
else:
    atomic = lazy("penstock.io.atomic")
    limits = lazy("penstock.cli.limits")
    np = lazy("numpy")
    release = lazy("penstock.feeds.keras.release")
    sizes = lazy("penstock.memory")

NUM_FEATURES = 100
NUM_CLASSES = 10
BATCH_SIZE = 512
_BLOCK_ROWS = 50_000
_OTHERS = {"ndarray": "model.fit(ndarray)", "tf.data": "tf.data, shuffled"}


@click.command(
    cls=Command,
    examples="""
        penstock demo
        penstock demo --compare
        penstock demo --data 8GB --memory 512MB --folder /mnt/disk --json
    """,
)
@click.option(
    "--data",
    type=parsed_size,
    metavar="SIZE",
    default="1600MB",
    show_default=True,
    help="The size of the data on disk.",
)
@click.option(
    "--memory",
    type=parsed_size,
    metavar="SIZE",
    default="192MB",
    show_default=True,
    help="The memory budget of penstock.",
)
@click.option(
    "--limit",
    type=parsed_size,
    metavar="SIZE",
    default="1200MB",
    show_default=True,
    help="The limit of the whole process, framework and all.",
)
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False),
    help="Where to put the data; by default the temporary folder.",
)
@click.option(
    "--compare",
    is_flag=True,
    help="Do the same by fit(ndarray) and by tf.data, under the same limit.",
)
@json_flag
def command(
    data: int,
    memory: int,
    limit: int,
    folder: str | None,
    compare: bool,  # noqa: FBT001  # click calls it by names.
    as_json: bool,  # noqa: FBT001
) -> int:
    """Write data, train a Keras model on it within a memory limit, and show what that took.

    Needs Keras and a backend: pip install 'penstock[keras,jax]'. The data is removed at the end.
    """
    release.choose_backend(by_file=False)
    num_rows = max(_BLOCK_ROWS, data // (4 * NUM_FEATURES))
    facts: dict[str, Any] = {"budget_nbytes": memory, "limit_nbytes": limit}
    atomic.check_space(Path(folder or tempfile.gettempdir()), num_rows * 4 * (NUM_FEATURES + 1))
    with tempfile.TemporaryDirectory(prefix="penstock-demo-", dir=folder) as where:
        click.echo(f"writing {num_rows:,} rows of {NUM_FEATURES} float32 ...", err=True)
        facts["data_nbytes"] = _write(Path(where), num_rows)
        runs = {}
        for way in ("penstock", *(_OTHERS if compare else ())):
            click.echo(f"training one epoch by {_OTHERS.get(way, way)} ...", err=True)
            runs[way] = _train(Path(where), num_rows, memory, limit, way)
    mine = runs["penstock"]
    if mine.result is None:
        raise click.ClickException(
            f"the training took more than {sizes.format_nbytes(limit)}: give it a larger --limit."
            if mine.was_killed
            else f"the training failed: {mine.error}"
        )
    facts["limited_by"] = "cgroup" if mine.is_in_cgroup else "watching"
    facts["runs"] = {
        way: {
            "was_killed": one.was_killed,
            "error": one.error,
            "total_seconds": one.seconds,
            "peak_nbytes_seen": one.peak_nbytes,
            **(one.result or {}),
        }
        for way, one in runs.items()
    }
    if as_json:
        print_json(facts)
    else:
        _print(facts)
        if compare:
            _print_comparison(facts)
    return 0


def _write(folder: Path, num_rows: int) -> int:
    """Write rows and their classes; a class depends on its row, so that a model can learn it."""
    rng = np.random.default_rng(0)
    planes = rng.standard_normal((NUM_FEATURES, NUM_CLASSES)).astype(np.float32)
    x = np.lib.format.open_memmap(folder / "x.npy", "w+", np.float32, (num_rows, NUM_FEATURES))
    y = np.empty(num_rows, np.int32)
    with begin("writing", total=num_rows) as step:
        for start in range(0, num_rows, _BLOCK_ROWS):
            size = min(_BLOCK_ROWS, num_rows - start)
            block = rng.standard_normal((size, NUM_FEATURES), np.float32)
            x[start : start + size] = block
            y[start : start + size] = (block @ planes).argmax(axis=1)
            step.advance(size, block.nbytes)
        x.flush()
    np.save(folder / "y.npy", y)
    return int(x.nbytes + y.nbytes)


def _train(folder: Path, num_rows: int, memory: int, limit: int, way: str) -> "limits.Outcome":
    total = math.ceil((num_rows - num_rows // 50) / BATCH_SIZE)
    with begin("training", total=total, unit="batches") as step:
        done = 0

        def heard(words: dict[str, Any]) -> None:
            nonlocal done
            batches = words.get("batches", done)
            step.advance(batches - done, (batches - done) * BATCH_SIZE * 4 * NUM_FEATURES)
            done = batches

        arguments = [str(folder), str(memory), way]
        return limits.run_limited("penstock.feeds.keras.demo", arguments, limit=limit, heard=heard)


def _print(facts: dict[str, Any]) -> None:
    mine, text = facts["runs"]["penstock"], sizes.format_nbytes
    seconds, rows, data = mine["seconds"], mine["num_rows"], facts["data_nbytes"]
    budget, limit = facts["budget_nbytes"], facts["limit_nbytes"]
    share = 100 * mine["waited_seconds"] / seconds
    most = mine["peak_nbytes_seen"]
    lines = [
        ("data on disk", f"{text(data)}, {data / budget:.1f} times the budget"),
        ("memory budget", f"{text(budget)}; the library held {text(mine['peak_nbytes'])}"),
        ("peak of the process", f"{text(mine['peak_rss'])}, {mine['backend']} and Keras included"),
    ]
    if facts["limited_by"] == "cgroup":
        what = f"{text(most)} of a limit of {text(limit)}, page cache included"
        lines.append(("peak of the cgroup", what))
    lines += [
        ("speed", f"{rows / seconds:,.0f} samples/s ({rows:,} in {seconds:.1f} s)"),
        ("waited for data", f"{mine['waited_seconds']:.2f} s ({share:.1f} %)"),
        ("accuracy", f"{100 * mine['accuracy']:.1f} % on rows held out (a guess: 10 %)"),
    ]
    for name, value in lines:
        click.echo(f"  {name:<20} {value}")


def _print_comparison(facts: dict[str, Any]) -> None:
    """Print a line for each way: what became of it under the same limit."""
    text = sizes.format_nbytes
    how = "in a memory cgroup of" if facts["limited_by"] == "cgroup" else "ended above"
    click.echo(f"\nthe same by others, each {how} {text(facts['limit_nbytes'])}:")
    names = {"penstock": "penstock", **_OTHERS}
    for way, run in facts["runs"].items():
        if run["was_killed"]:
            words = f"KILLED after {run['total_seconds']:.1f} s: it took all memory"
        elif run["error"]:
            words = f"failed: {run['error']}"
        else:
            speed = run["num_rows"] / run["seconds"]
            words = f"{speed:,.0f} samples/s, accuracy {100 * run['accuracy']:.1f} %, "
            words += f"peak {text(run['peak_rss'])}"
        click.echo(f"  {names[way]:<20} {words}")
