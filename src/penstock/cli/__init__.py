"""The command line: `penstock COMMAND`, one file a command.

Only the command that is run is imported, and what it needs when it needs it: `penstock --help` loads click, no NumPy.
"""

import atexit
import contextlib
import difflib
import errno
import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import click

from penstock.cli.flags import flag_words, one_line
from penstock.core.progress import Bars, can_show, shown_by

COMMANDS = {
    "demo": "train on data larger than its memory budget, and show what it took",
    "fit": "train a Keras model on files; killed and started again, it goes on",
    "peek": "show the first rows of files, and a few statistics",
    "inspect": "show what is in files, and what a shuffled pass over them costs",
    "explain": "show what a shuffled pass would do: stages, threads, memory",
    "bench": "measure what this disk can do with files, and what penstock gets",
    "convert": "write files of one format as another, which is read at full speed",
    "watch": "show what is being read on this machine, on a live page",
}
_EXAMPLES = """
  penstock demo
  penstock inspect "data/*.npz"
  penstock fit model.py:build "data/*.npz" --x data --y labels --epochs 3 --memory 512MB
"""
FAILED, WRONG_USE, INTERRUPTED = 1, 2, 130


def main(arguments: list[str] | None = None) -> int:
    """Run one command; return its exit code: 0 good, 1 failed, 2 wrong use, 130 Ctrl-C."""
    debug = _Debug()
    try:
        with _shown(debug):
            code = _group.main(arguments, prog_name="penstock", standalone_mode=False, obj=debug)
            _flush()
        return int(code or 0)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    except click.UsageError as error:
        path = debug.name if error.ctx is None else error.ctx.command_path
        words = one_line(flag_words(error.format_message(), **debug.flags))
        click.echo(f"{path}: {words} ({path} --help)", err=True)
        return WRONG_USE
    except (click.Abort, KeyboardInterrupt) as error:
        notes = getattr(error.__cause__ or error, "__notes__", ())
        _tell(" ".join(["interrupted.", *notes]), debug)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has left, as `head` does: nothing is wrong, and nobody to tell.
        if sys.stdout is not None:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except Exception as error:  # noqa: BLE001  # Whatever went wrong is one line; --debug shows where.
        _tell(" ".join([_words(error), *_notes(error)]), debug)
        return FAILED


def run() -> None:
    """Run the command of this process, and end it."""
    code = main()
    if code == INTERRUPTED and "jax" in sys.modules:
        # JAX may be compiling on threads of its own: at the end of the interpreter they crash.
        atexit._run_exitfuncs()  # noqa: SLF001  # What is not done by leaving at once.
        _flush()
        os._exit(code)
    sys.exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:  # There is none if it was closed by who started this.
            stream.flush()


class _Debug:
    """Whether tracebacks are shown, and what is run."""

    def __init__(self) -> None:
        self.is_on = False
        self.name = "penstock"
        self.flags: dict[str, str] = {}


def _words(error: Exception) -> str:
    """Return what an exception says; of those that only programmers know, with the name of its kind."""
    text = str(error)
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, OSError) and not hasattr(error, "cure") and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if error.errno == errno.ENOSPC:
            text += ". Make room on the disk, or choose another folder."
        return text
    is_told = isinstance(error, ValueError | TypeError | ImportError | OSError | MemoryError)
    module = type(error).__module__
    if text and (is_told or module.startswith("penstock.")):
        return text
    return f"{type(error).__name__}: {text} (--debug shows where)"


def _notes(error: Exception) -> list[str]:
    """Return what the library added to an exception; others add notes for programmers."""
    is_ours = isinstance(error, OSError) or type(error).__module__.startswith("penstock.")
    return list(getattr(error, "__notes__", ())) if is_ours else []


def _tell(text: str, debug: _Debug) -> None:
    if debug.is_on:
        traceback.print_exc()
    words = one_line(flag_words(text, **debug.flags))
    click.echo(f"{debug.name}: {words}", err=True)


@contextlib.contextmanager
def _shown(debug: _Debug) -> Iterator[None]:
    """Show long steps as bars on a terminal, and warnings as lines."""
    bars = Bars()
    show = bars.begin if sys.stderr.isatty() and can_show() else None

    def show_warning(message: Any, category: type[Warning], *_: Any, **__: Any) -> None:
        if category.__module__.startswith("penstock") or debug.is_on:
            text = one_line(flag_words(str(message), **debug.flags))
            click.echo(f"{debug.name}: note: {text}", err=True)

    with shown_by(show), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show_warning
        try:
            yield
        finally:
            bars.close()  # What was interrupted may not have closed its own.


def _set_debug(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  # As click calls it.
    if value:
        context.find_root().obj.is_on = True


class Command(click.Command):
    """A command that ends its help with examples, and has `--debug`."""

    def __init__(
        self,
        *arguments: Any,
        examples: str,
        format_flag: str = "--format",
        fields_flag: str = "--fields A,B",
        **rest: Any,
    ) -> None:
        super().__init__(*arguments, **rest)
        self.examples = examples
        self.flags = {"format_flag": format_flag, "fields_flag": fields_flag}
        self.params.append(
            click.Option(
                ["--debug"],
                is_flag=True,
                expose_value=False,
                callback=_set_debug,
                help="Show the traceback of an error.",
            )
        )

    def invoke(self, context: click.Context) -> Any:
        """Run it; what goes wrong is told under its name, with its flags."""
        debug = context.find_root().obj
        debug.name, debug.flags = context.command_path, self.flags
        return super().invoke(context)

    def format_epilog(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_examples(self.examples, formatter)


def _write_examples(text: str, formatter: click.HelpFormatter) -> None:
    with formatter.section("Examples"):
        for line in text.strip().splitlines():
            formatter.write(f"  {line.strip()}\n")


class _Group(click.Group):
    """The commands, each imported when it is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return their names."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; its module is imported now."""
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"penstock.cli.{cmd_name}").command
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that is meant, or raise with the one that may be."""
        if args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, 1)
            cure = f"did you mean {near[0]}?" if near else f"choose from {', '.join(COMMANDS)}."
            ctx.fail(f"there is no command {args[0]!r}: {cure}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does, without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        _write_examples(_EXAMPLES, formatter)


def _print_version(context: click.Context, _: click.Parameter, value: bool) -> None:  # noqa: FBT001  # As click calls it.
    if value:
        version = importlib.import_module("penstock").__version__
        click.echo(f"penstock {version}")
        context.exit()


@click.group(
    cls=_Group,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version,
    help="Show the version.",
)  # fmt: skip
@click.option(
    "--debug", is_flag=True, expose_value=False, callback=_set_debug,
    help="Show the traceback of an error.",
)  # fmt: skip
def _group() -> None:
    """Train models on arrays bigger than memory.

    PATH is a file, a folder, a glob in quotes or a URL, in any format that penstock reads; penstock COMMAND --help
    tells more.
    """
