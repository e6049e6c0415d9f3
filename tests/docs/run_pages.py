"""Run the code of pages, each in a folder and a namespace of its own, and write what came of it.

    python run_pages.py RESULTS PAGE [PAGE ...]

The blocks of a page are run in their order, as a reader does who tries them one by one. What a page says that a block
prints is compared with what it prints; `...` stands for anything.
"""

import contextlib
import doctest
import io
import json
import linecache
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from blocks import ROOT, Block, read_blocks

import penstock as ps

_ALIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def run_page(path: Path) -> None:
    """Run a page; raise what its code raises, or AssertionError if it prints something else than it says."""
    namespace = {"__name__": "__main__"}
    printed = None
    for block in read_blocks(path):
        if block.is_script:
            printed = run_script(block, namespace)
        elif block.is_shell:
            printed = run_shell(block)
        elif block.is_output and printed is not None:
            check_output(block, printed)
            printed = None


def run_script(block: Block, namespace: dict) -> str:
    # Lines of tracebacks are those of the page; for those who look for the source, the page has only this code.
    name, text = str(ROOT / block.page), "\n" * (block.line - 1) + block.text
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    code = compile(text, name, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


def run_shell(block: Block) -> str:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", block.text],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    where = f"{block.page}, line {block.line}"
    assert done.returncode == 0, f"{where}: exit code {done.returncode}:\n{done.stderr[-3000:]}"
    return done.stdout


def check_output(block: Block, printed: str) -> None:
    expected = "".join(line.rstrip() + "\n" for line in block.text.splitlines())
    if not doctest.OutputChecker().check_output(expected, printed, _ALIKE):
        where = f"{block.page}, line {block.line}"
        raise AssertionError(f"{where} says:\n{expected}\nbut this was printed:\n{printed}")


def main(results: Path, pages: list[Path]) -> None:
    """Run all pages, also when one fails; write a line of JSON for each."""
    for page in pages:
        error, started = "", time.monotonic()
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
            try:
                with warnings.catch_warnings():
                    # What a page recommends does not warn.
                    warnings.simplefilter("error", ps.PenstockWarning)
                    run_page(page)
            except Exception:  # noqa: BLE001  # Whatever a page raises is its result.
                error = traceback.format_exc()
        line = {"page": str(page), "error": error, "seconds": round(time.monotonic() - started, 2)}
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(one) for one in sys.argv[2:]])
