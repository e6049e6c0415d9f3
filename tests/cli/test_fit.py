"""penstock fit: trains on files of any format, and goes on after a kill; mistakes are a line, before the training."""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.cli import main

COMMANDS = Path(__file__).with_name("keras_commands.py")
MODELS = """
import os, signal
import keras

@keras.saving.register_keras_serializable()
class Mortal(keras.Sequential):
    # A process that dies by itself, at a batch that the test says: nobody has to wait for the right moment.
    def fit(self, *arguments, callbacks=(), **named):
        left = int(os.environ.get("DIES_AFTER", "0"))
        def count(batch, logs):
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        counts = keras.callbacks.LambdaCallback(on_train_batch_end=count)
        return super().fit(*arguments, callbacks=[*callbacks, counts], **named)

LOSS = "sparse_categorical_crossentropy"

def build(size=8):
    layers = [keras.Input((size,)), keras.layers.Dropout(0.2), keras.layers.Dense(3, "softmax")]
    model = Mortal(layers)
    model.compile("adam", LOSS, metrics=["accuracy"])
    return model

def two_inputs():
    a, b = keras.Input((), name="a"), keras.Input((), name="b")
    column = keras.layers.Reshape((1,))
    joined = keras.layers.Concatenate()([column(a), column(b)])
    model = keras.Model({"a": a, "b": b}, keras.layers.Dense(3, "softmax")(joined))
    model.compile("adam", LOSS)
    return model

def sequences():
    layers = [keras.layers.Embedding(50, 4), keras.layers.GlobalAveragePooling1D()]
    model = keras.Sequential([keras.Input((None,)), *layers, keras.layers.Dense(3, "softmax")])
    model.compile("adam", LOSS)
    return model

def not_compiled():
    return keras.Sequential([keras.Input((8,)), keras.layers.Dense(3)])

def too_wide():
    return build(9)

def nothing():
    pass

def talks():
    print("layers and layers")
    return build()

def wrong_layer():
    return build().get_layer("nope")

def diverges():
    model = build()
    model.compile("sgd", lambda y, x: x[:, 0] * float("nan"))
    return model

def fails():
    return 1 / 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Models, and the same rows in files of several kinds."""
    where = tmp_path_factory.mktemp("fit")
    (where / "models.py").write_text(MODELS)
    (where / "broken.py").write_text("import keras\nimport nowhere_to_be_found\n")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((640, 8), np.float32)
    y = x[:, :3].argmax(axis=1)
    for number, part in enumerate(np.split(np.arange(640), 4)):
        np.savez(where / f"{number}.npz", data=x[part], labels=y[part])
    np.save(where / "x.npy", x)
    np.save(where / "y.npy", y)
    np.save(where / "empty.npy", x[:0])
    np.save(where / "none.npy", y[:0])
    (where / "damaged.npy").write_bytes(b"not an array")
    (where / "damaged.keras").write_bytes(b"not a model")
    lines = [f"{a},{b},{c}" for a, b, c in zip(x[:, 0], x[:, 1], y, strict=True)]
    (where / "table.csv").write_text("\n".join(["a,b,c", *lines]))
    words = [rng.integers(1, 50, n % 7 + 1) for n in range(640)]
    ps.from_arrays({"words": words, "y": y, "text": ["a"] * 640}).write(where / "shards")
    ps.from_arrays({"x": x, "y": y}).write(where / "a.tfrecord", format="tfrecord")
    return where


def environment(**more):
    one_thread = {"OMP_NUM_THREADS": "1", "KERAS_BACKEND": "jax", "CUDA_VISIBLE_DEVICES": ""}
    return os.environ | one_thread | more


def run_all(folder, commands):
    """Return how each command ended, all in one process: its code, and what it wrote."""
    done = subprocess.run(
        [sys.executable, str(COMMANDS)],
        input=json.dumps(commands),
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "port.cc" not in done.stderr  # No log lines of frameworks.
    return json.loads(done.stdout)


RESUMED = [
    *("fit", "models.py:build", "*.npz", "--x", "data", "--y", "labels", "--batch-size", "16"),
    *("--epochs", "3", "--memory", "64MB", "--validation", "0.1", "--save-every", "7"),
]


def run_killed(folder, *, dies_after, run="run", out="killed.keras"):
    """Run the resumed training in a process that is killed after some batches; return its exit code."""
    command = [*RESUMED, "--resume", run, "--out", out]
    return subprocess.run(
        [sys.executable, "-m", "penstock", *command],
        cwd=folder,
        env=environment(DIES_AFTER=str(dies_after)),
        check=False,
    ).returncode


# Each command with what it prints.
GOOD = {
    "fit models.py:build x=x.npy y=y.npy --out pair.keras --json": '"epoch": 1',
    "fit pair.keras x=x.npy y=y.npy --epochs 2 --no-shuffle": "epoch 2/2  accuracy",
    "fit models.py:two_inputs table.csv --x b,a --y c --validation 0.25": "160 rows held back",
    "fit models.py:sequences shards --x words --y y": "training on 20 batches of 32 rows an epoch",
    "fit models.py:build a.tfrecord --x x --y y --feature x=float32[8] --feature y=int64": "waited",
    "fit models.py:talks x=x.npy y=y.npy --json": '"epoch": 1',
    "fit models.py:diverges x=x.npy y=y.npy --json": '"loss": null',
    "fit models.py:build x=x.npy y=y.npy --watch --report seen.html": "saved seen.html",
    "fit models.py:not_compiled x=x.npy y=y.npy --loss sparse_categorical_crossentropy --metric accuracy": "acc",
}
BAD = {
    "fit models.py:too_wide x=x.npy y=y.npy": "takes rows of shape (9) (its input 'keras_tensor",
    "fit models.py:two_inputs x=x.npy y=y.npy": "--x names (x) must be that of the model's inputs (a, b)",
    "fit models.py:not_compiled x=x.npy y=y.npy": "the model is not compiled: call model.compile",
    "fit models.py:nothing x=x.npy y=y.npy": "must return a Keras model, got NoneType",
    "fit models.py:fails x=x.npy y=y.npy": "fails() failed at models.py:62: ZeroDivisionError",
    "fit models.py:wrong_layer x=x.npy y=y.npy": "wrong_layer() failed at models.py:54: ValueError: No such",
    "fit models.py:build x=x.npy --x x": "the loss of the model needs a --y NAME.",
    "fit models.py:build e=empty.npy y=none.npy --x e --y y": "the files have no rows",
    "fit models.py:missing x=x.npy y=y.npy": "has no function 'missing'; it has Mortal, build",
    "fit broken.py:build x=x.npy y=y.npy": "importing broken.py failed at broken.py:2: ModuleNotF",
    "fit models.py:build shards --x text --y y": "the model takes rows of shape (8)",
    "fit models.py:not_compiled x=x.npy y=y.npy --metric mse": "--optimizer and --metric need a --loss",
    "fit damaged.keras x=x.npy y=y.npy": "damaged.keras can't be loaded as a Keras model",
    # With other batches than the run that was saved.
    f"{' '.join(RESUMED)} --resume run --batch-size 8": "it belongs to a run with other files, fields or flags",
}


@pytest.mark.slow
def test_a_run_that_was_killed_ends_as_one_that_was_not_and_other_runs_in_a_process(folder):
    # 36 batches an epoch: the second dies in the middle of epoch 2, before what it saved last is 4 batches old.
    assert run_killed(folder, dies_after=54) == -signal.SIGKILL
    assert (folder / "run" / "checkpoint.npz").is_file()
    assert not (folder / "killed.keras").exists()
    whole = [*RESUMED, "--resume", "whole", "--out", "whole.keras"]
    again = [*RESUMED, "--resume", "run", "--out", "killed.keras", "--report", "last.html"]
    same = ["same", "whole.keras", "killed.keras"]
    others = [command.split() for command in [*GOOD, *BAD]]
    idle_again = [*RESUMED, "--resume", "run", "--report", "none.html"]
    never, resumed, compared, idle, still, *rest = run_all(
        folder, [whole, again, same, idle_again, same, *others]
    )
    assert never[0] == 0, never
    assert "training on 36 batches of 16 rows an epoch, by Keras on jax; 64 rows held" in never[1]
    assert never[1].count("val_accuracy") == 3
    assert never[1].endswith("saved whole.keras\n")
    assert resumed[0] == 0, resumed
    assert "epoch 1/3" not in resumed[1]
    # The figures of an epoch that was cut short are those of the whole epoch.
    for words in ("epoch 2/3", "epoch 3/3"):
        mine, theirs = (_line(text, words) for text in (never[1], resumed[1]))
        assert (
            mine.split("rows/s")[0].split("  ")[:-1] == theirs.split("rows/s")[0].split("  ")[:-1]
        )
    assert compared[0] == 0
    assert resumed[1].endswith("saved killed.keras and last.html\n")
    assert "nothing is left to train" in idle[2]
    assert "no epoch was read: there is no report" in idle[2]
    assert "none.html" not in idle[1]
    assert not (folder / "none.html").exists()
    assert "give more --epochs" in idle[2]
    assert still[0] == 0
    for command, (code, out, err) in zip([*GOOD, *BAD], rest, strict=True):
        expected = GOOD.get(command) or BAD[command]
        assert expected in (out if command in GOOD else err), (command, out, err)
        assert code == (0 if command in GOOD else 1), (command, out, err)
        assert "Traceback" not in err
    assert len(json.loads(rest[0][1])["epochs"]) == 1
    watched = next(
        err for command, (_, _, err) in zip(GOOD, rest, strict=False) if "--watch" in command
    )
    assert "live page at http://127.0.0.1:" in watched
    for command, (_, out, _) in zip(GOOD, rest, strict=False):
        assert "--json" not in command or json.loads(out)["backend"] == "jax"
    assert "20 of 20 batches" in (folder / "seen.html").read_text()


def _line(text, words):
    return next(line for line in text.splitlines() if words in line)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_was_not(folder):
    draw = random.Random(0)
    codes = []
    while not codes or codes[-1] != 0:
        dies_after = draw.randrange(8, 22)
        codes.append(run_killed(folder, dies_after=dies_after, run="often", out="often.keras"))
        assert codes[-1] in (0, -signal.SIGKILL)
    assert len(codes) > 5
    whole = [*RESUMED, "--resume", "never", "--out", "never.keras"]
    done = run_all(folder, [whole, ["same", "never.keras", "often.keras"]])
    assert [code for code, _, _ in done] == [0, 0], done


# What is refused before Keras is imported.
EARLY = {
    "model.pt x=x.npy y=y.npy": (2, "MODEL must be FILE.py:FUNCTION"),
    "none.py:build x=x.npy y=y.npy": (1, "none.py: there is no such file"),
    "models.py:build none.npz --x data --y labels": (1, "none.npz: there is no such file"),
    "models.py:build z*.npz --x data --y labels": (1, "nothing matches"),
    "models.py:build damaged.npy --x data --y labels": (1, "damaged.npy"),
    "models.py:build 0.npz --x data --y label": (1, "has no field 'label', only 'data', 'labels'"),
    "models.py:build x.npy --x x --y y": (1, "Files side by side: x=x.npy y=y.npy"),
    "models.py:build 0.npz": (2, "--x NAME --y NAME. There are: data, labels"),
    "models.py:build x=x.npy z=y.npy --x x --y y": (2, "there is no y=PATH, only x, z"),
    "models.py:build 0.npz --x data --weight labels": (2, "--weight needs a --y"),
    "models.py:build 0.npz --x data --y labels --validation 1.5": (2, "not in the range 0<x<1"),
    "models.py:build 0.npz --x data --y labels --out a.h5": (
        2,
        "must be the name of a .keras file",
    ),
    "models.py:build 0.npz --x data --y labels --report a.txt": (
        2,
        "name of a .html or .json file",
    ),
    "models.py:build 0.npz --x data --y labels --out no/a.keras": (2, "there is no folder no"),
    "models.py:build 0.npz --x data --y labels --out there.keras": (2, "exists already: give --ov"),
}


@pytest.mark.parametrize("arguments", EARLY)
def test_what_can_be_known_early_is_told_before_keras_is_imported(
    arguments, folder, capsys, monkeypatch
):
    monkeypatch.chdir(folder)
    monkeypatch.setitem(sys.modules, "keras", None)  # Who imports it fails.
    Path("there.keras").touch()
    code, message = EARLY[arguments]
    assert main(["fit", *arguments.split()]) == code
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


NOBODY = """
import os, sys
from penstock.cli import main
files = sys.argv[1:]
main(["fit", *files, "--out", "none/a.keras"])  # Modules are loaded while they can be.
if os.geteuid() == 0:  # Root may write everywhere.
    os.setgid(65534)
    os.setuid(65534)
for flag, name in (("--out", "a.keras"), ("--report", "a.html")):
    print(main(["fit", *files, flag, name]))
"""


def test_a_folder_that_can_not_be_written_is_told_before_the_training():
    with (
        tempfile.TemporaryDirectory() as name
    ):  # One that others may look into, unlike those of pytest.
        folder = Path(name)
        (folder / "model.py").write_text(MODELS)
        np.save(folder / "x.npy", np.zeros((4, 8), "f4"))
        folder.chmod(0o555)
        model, x = f"{folder}/model.py:build", f"{folder}/x.npy"
        command = [sys.executable, "-c", NOBODY, model, f"x={x}", f"y={x}"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        folder.chmod(0o755)
    assert done.stdout == "2\n2\n", done.stderr
    for flag in ("--out", "--report"):
        assert f"penstock fit: {flag}: no permission to write in {folder}: choose" in done.stderr


@pytest.mark.slow
def test_ctrl_c_ends_it_whenever_it_strikes(folder):
    command = ["fit", "models.py:build", "x=x.npy", "y=y.npy", "--epochs", "1000000"]
    for seconds in (0.0, 0.7):  # While the first step is compiled, or later.
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", *command],
            cwd=folder,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert "training on" in process.stdout.readline()
            time.sleep(seconds)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=100)
        finally:
            process.kill()
        assert process.returncode == 130, error
        assert "penstock fit: interrupted." in error
        assert "Traceback" not in error
