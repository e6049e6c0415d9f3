"""Runs commands one after the other in one process, since Keras takes seconds to import; prints how each ended.

Standard input is a JSON list of commands. `["same", a, b]` compares the weights of two models.
"""

import contextlib
import io
import json
import sys

from penstock.cli import main


def same(first: str, second: str) -> int:
    import keras
    import numpy as np

    pairs = zip(*(keras.models.load_model(path).weights for path in (first, second)), strict=True)
    return 0 if all(np.array_equal(np.array(a), np.array(b)) for a, b in pairs) else 1


def run(arguments: list[str]) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = same(*arguments[1:]) if arguments[0] == "same" else main(arguments)
    return code, out.getvalue(), err.getvalue()


if __name__ == "__main__":
    found = [run(arguments) for arguments in json.load(sys.stdin)]
    sys.__stdout__.write(json.dumps(found))
