"""`penstock watch [RUN]`: the live page of what runs on this machine, and of what has ended."""

import contextlib

import click

from penstock.cli import Command
from penstock.cli.inputs import json_flag, print_json
from penstock.live.runs import clean_up, is_meant, link_to, run_names
from penstock.live.server import PageServer
from penstock.live.summary import all_runs


@click.command(
    cls=Command,
    examples="""
        penstock watch
        penstock watch 4711 --open
        penstock watch --json
    """,
)
@click.argument("run", metavar="[RUN]", default="")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="Where the page is; by default a free port.",
)
@click.option("--open", "opens", is_flag=True, help="Open it in a browser.")
@json_flag
def command(run: str, port: int, opens: bool, as_json: bool) -> None:  # noqa: FBT001  # click calls it by names.
    """Serve a page of what is read on this machine with watch=True: pipeline, pace, memory, bottleneck, time left.

    RUN is the number of a process, or a run of it as the page names it (4711-2); without it, all runs of the last week
    are shown. The page is for this machine only, and its address has a token. Ctrl-C ends it. --json prints how the
    runs stand, and serves nothing.
    """
    if run and not any(is_meant(name, run) for name in run_names()):
        raise click.ClickException(_no_such(run))
    if as_json:
        print_json({"runs": all_runs(only=run)["runs"]})
        return
    clean_up()
    server = PageServer(port=port, only=run)
    try:
        click.echo(f"live page at {server.url} (Ctrl-C ends it)")
        with link_to(server.url) if opens else contextlib.nullcontext() as page:
            if page is not None:
                click.launch(str(page))
            server.serve()
    except KeyboardInterrupt:
        click.echo("", err=True)  # The shell's prompt stands on a line of its own then.
    finally:
        server.close()


def _no_such(run: str) -> str:
    found = [f"{one['id']} ({one['status']}, {one['command']})" for one in all_runs()["runs"][:5]]
    there = f"there are {'; '.join(found)}" if found else "there is none at all"
    return (
        f"there is no run {run!r}: {there}. A dataset is shown if it has with_options(watch=True)."
    )
