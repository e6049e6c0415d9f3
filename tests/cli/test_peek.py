"""penstock peek: the first rows, as a table or as JSON."""

import contextlib
import json
import os
import pty
import subprocess
import sys

import numpy as np

import penstock as ps
from penstock.cli import main


def test_it_shows_the_first_rows_with_statistics(tmp_path, capsys):
    path = tmp_path / "a.npz"
    np.savez(path, x=np.arange(30.0).reshape(10, 3), y=np.arange(10))
    assert main(["peek", str(path), "--rows", "2"]) == 0
    assert capsys.readouterr().out == f"{ps.from_files(path).peek(2)}\n"
    assert main(["peek", str(path), "--fields", "y", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == ps.from_files(path, "y").peek(5).to_dict()


def shown_in_a_terminal(path, **environment):
    """Return what a command writes to a terminal of 60 columns."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "penstock", "peek", str(path)]
    given = {"COLUMNS": "60", "COLORTERM": "truecolor", **environment}
    with subprocess.Popen(command, stdout=theirs, env={**os.environ, **given}) as process:
        os.close(theirs)
        shown = b""
        with contextlib.suppress(OSError):  # The other end is closed.
            while data := os.read(ours, 4096):
                shown += data
        os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def test_images_are_pictures_on_a_page_and_in_a_terminal(tmp_path, capfd):
    path = tmp_path / "a.npz"
    np.savez(path, image=np.zeros((3, 16, 16, 3), "u1"), y=np.arange(3))
    assert main(["peek", str(path), "--html", str(tmp_path / "rows.html")]) == 0
    assert "▀" not in capfd.readouterr().out  # It is no terminal.
    assert (tmp_path / "rows.html").read_text().count("data:image/png;base64,") == 3
    done = {name: shown_in_a_terminal(path, **{name: "1"}) for name in ("COLORED", "NO_COLOR")}
    assert "\x1b[38;2;0;0;0;48;2;0;0;0m▀" in done["COLORED"]
    assert done["COLORED"].splitlines()[-1].split() == ["0", "1"]  # As many as fit.
    assert "▀" not in done["NO_COLOR"]
