"""The commands of docs/command_line.md, as they stand there, on the files that it makes."""

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import COMMANDS, _group

PAGE = (Path(__file__).parents[1] / "docs" / "command_line.md").read_text()
RUNNER = Path(__file__).parent / "cli" / "keras_commands.py"


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def commands():
    lines = [line for block in blocks("sh") for line in block.splitlines()]
    return [shlex.split(line)[1:] for line in lines]


@pytest.mark.slow
def test_every_command_of_the_page_runs(tmp_path):
    files, model = blocks("python")
    (tmp_path / "model.py").write_text(model)
    subprocess.run([sys.executable, "-c", files], cwd=tmp_path, check=True)
    run = [one for one in commands() if one[0] != "demo"]  # It has tests of its own.
    assert len(run) >= 9
    done = subprocess.run(
        [sys.executable, str(RUNNER)],
        input=json.dumps(run),
        cwd=tmp_path,
        env=os.environ | {"KERAS_BACKEND": "jax", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for command, (code, out, err) in zip(run, json.loads(done.stdout), strict=True):
        assert (code, err) == (0, ""), (command, err)
        assert out
    assert (tmp_path / "better.keras").is_file()


def test_the_page_has_every_command_and_no_flag_that_is_not_there():
    assert set(re.findall(r"`penstock (\w+)", PAGE)) - {"COMMAND"} == set(COMMANDS)
    assert {one[0] for one in commands()} == set(COMMANDS)
    flags = {"--help", "--version"}
    for name in COMMANDS:
        flags |= {flag for one in _group.get_command(None, name).params for flag in one.opts}
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", PAGE)) <= flags
