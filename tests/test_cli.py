"""The command line as a whole: versions, help, exit codes, errors in one line, Ctrl-C, and progress on a terminal."""

import json
import os
import pty
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

import penstock as ps
from penstock import cli
from penstock.cli import COMMANDS, main

PENSTOCK = [sys.executable, "-m", "penstock"]


@pytest.fixture
def array(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(12.0).reshape(4, 3))
    return tmp_path / "a.npy"


def test_it_runs_as_a_module_and_as_a_program():
    for command in (PENSTOCK, [os.path.join(os.path.dirname(sys.executable), "penstock")]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True)
        assert (done.stdout, done.stderr) == (f"penstock {ps.__version__}\n", "")


def test_help_lists_every_command_and_ends_with_examples(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    for name, what in COMMANDS.items():
        assert re.search(rf"^  {name} +{what.split()[0]}", text, re.MULTILINE)
    assert re.search(r"Examples:\n(  penstock .*\n){3}$", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_ends_with_real_command_lines(name, capsys):
    assert main([name, "-h"]) == 0
    text = capsys.readouterr().out
    examples = text.partition("Examples:\n")[2].splitlines()
    assert len(examples) == 3
    command = cli._group.get_command(None, name)
    flags = {option for one in command.params for option in one.opts}
    for line in examples:
        assert line.startswith(f"  penstock {name}")
        assert set(re.findall(r" (--[\w-]+)", line)) <= flags
    for one in command.params:
        if one.param_type_name == "option":
            assert one.help, one.name
            assert one.help.endswith("."), one.help


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], ""),
        (["inspct", "x"], "there is no command 'inspct': did you mean inspect? (penstock --help)"),
        (["nonsense"], "there is no command 'nonsense': choose from demo, fit,"),
        (["inspect"], "penstock inspect: Missing argument 'PATH...'"),
        (["inspect", "a", "--sise", "3"], "No such option"),
        (["peek", "a", "--rows", "0"], "'--rows': 0 is not in the range x>=1"),
        (["bench", "a", "--threads", "no"], "'--threads': 'no' is not a valid integer range"),
    ],
)
def test_wrong_use_is_a_line_and_code_2(arguments, message, capsys):
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert not message or error.count("\n") == 1


def test_what_goes_wrong_is_a_line_and_code_1_and_debug_shows_where(array, capsys):
    missing = str(array.with_name("b.npy"))
    assert main(["inspect", missing]) == 1
    error = capsys.readouterr().err
    assert (
        error
        == f"penstock inspect: {missing}: there is no such file. {array.parent} holds a.npy.\n"
    )
    for arguments in (["--debug", "inspect", missing], ["inspect", missing, "--debug"]):
        assert main(arguments) == 1
        shown = capsys.readouterr().err
        assert shown.startswith("Traceback")
        assert shown.endswith(error)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (KeyError("x"), "penstock inspect: KeyError: 'x' (--debug shows where)"),
        (MemoryError(), "penstock inspect: MemoryError: (--debug shows where)"),
        (OSError(28, "No space left on device", "f"), "f: No space left on device. Make room on"),
        (
            ps.BudgetError("Write with_options(memory=9000), or more."),
            "Give --memory 9000, or more",
        ),
        (ValueError("wrong.\n  wrong: ps.zip()\n  right: ds"), "penstock inspect: wrong.\n"),
    ],
)
def test_any_exception_is_one_line(error, words, array, capsys, monkeypatch):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(ps.Dataset, "shuffle", fail)
    assert main(["inspect", str(array)]) == 1
    found = capsys.readouterr().err
    assert words in found
    assert found.count("\n") == 1


def test_warnings_are_notes_in_one_line(array, capsys):
    (array.parent / "notes.txt").write_text("a note")
    np.save(array.parent / "b.npy", np.zeros((4, 3)))
    assert main(["inspect", str(array.parent)]) == 0
    error = capsys.readouterr().err
    assert error.startswith("penstock inspect: note: ")
    assert "notes.txt" in error
    assert error.count("\n") == 1


def test_whoever_reads_no_further_is_not_told_of_it(array):
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "wb") as pipe:
        done = subprocess.run(
            [*PENSTOCK, "explain", str(array)], stdout=pipe, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr) == (1, b"")


STRUCK = """
import os, signal, sys
import penstock.makers
from penstock.cli import main
real = penstock.makers.from_files
def struck(*arguments, **named):
    os.kill(os.getpid(), signal.SIGINT)
    return real(*arguments, **named)
penstock.makers.from_files = struck
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_is_a_line_and_code_130(array):
    done = subprocess.run(
        [sys.executable, "-c", STRUCK, "inspect", str(array)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 130
    assert done.stderr.strip() == "penstock inspect: interrupted."


CONVERTING = """
import os, signal, sys
import penstock.shards.sequence as sequence
from penstock.cli import main
real = sequence.ShardSequence.add
count = 0
def add(self, parcel):
    global count
    count += 1
    if count == 9:
        os.kill(os.getpid(), signal.SIGINT)
    return real(self, parcel)
sequence.ShardSequence.add = add
sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_of_a_conversion_says_what_is_left_and_the_same_command_goes_on(tmp_path, capsys):
    np.save(tmp_path / "a.npy", np.zeros((400_000, 10)))
    command = ["convert", str(tmp_path / "a.npy"), str(tmp_path / "out"), "--shard-rows", "10000"]
    done = subprocess.run(
        [sys.executable, "-c", CONVERTING, *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130
    assert done.stderr.strip().startswith("penstock convert: interrupted. ")
    assert "the same command goes on from there" in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert main(command) == 0
    assert "400000 rows" in capsys.readouterr().out


def test_long_steps_are_bars_on_a_terminal_and_only_there(tmp_path):
    np.save(tmp_path / "a.npy", np.zeros((400_000, 10)))
    slow = "import penstock.core.progress as p; p.Bars.__init__.__kwdefaults__['delay'] = 0"
    script = f"{slow}; import sys; from penstock.cli import main; sys.exit(main())"
    command = [sys.executable, "-c", script, "convert", str(tmp_path / "a.npy")]
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*command, str(tmp_path / "out")], stdout=subprocess.PIPE, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        try:
            while data := os.read(ours, 4096):
                shown += data
        except OSError:  # The other end is closed.
            pass
        os.close(ours)
        assert b"400000 rows" in process.stdout.read()
    assert process.returncode == 0
    assert "of 400,000 rows" in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    done = subprocess.run([*command, str(tmp_path / "other")], capture_output=True, check=True)
    assert done.stderr == b""


def test_json_is_what_scripts_can_read(array, capsys):
    for command in ("inspect", "peek", "explain", "bench"):
        seconds = ["--seconds", "0.1"] if command == "bench" else []
        assert main([command, str(array), "--json", *seconds]) == 0
        found = capsys.readouterr()
        assert found.err == ""
        assert json.loads(found.out)


def test_ctrl_c_in_python_is_still_ctrl_c():
    # Tests that follow strike their own processes: a command must leave the handler as it was.
    before = signal.getsignal(signal.SIGINT)
    assert main(["--version"]) == 0
    assert signal.getsignal(signal.SIGINT) is before


def test_without_a_command_it_shows_its_help(capsys):
    assert main([]) == 2
    error = capsys.readouterr().err
    assert error.startswith("Usage: penstock")
    assert re.search(r"Examples:\n(  penstock .*\n){3}$", error)


def test_a_closed_stdout_is_no_error_of_ours(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros(3))
    command = f"{sys.executable} -m penstock peek {tmp_path / 'x.npy'} >&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert "AttributeError" not in done.stderr
