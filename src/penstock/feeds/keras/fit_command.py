"""The training half of `penstock fit`: a model from a file, trained on a feed; what it does is told as it happens."""

import contextlib
import importlib
import importlib.util
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.nest import flatten
from penstock.core.progress import Step, begin
from penstock.core.spec import ArraySpec
from penstock.feeds.keras.release import choose_backend, missing_keras
from penstock.io.failures import write_errors

_SHOWN = 8  # Names in a list of what there is.


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Let nothing reach stderr: what frameworks log while they are imported, past Python's own stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "wb") as nowhere:  # noqa: PTH123  # A device.
        os.dup2(nowhere.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def start_keras(backend: str | None) -> str:
    """Import Keras with a backend, without its log lines; return the backend."""
    chosen = choose_backend(backend)
    try:
        with _quiet():
            importlib.import_module("keras")
    except ImportError as error:
        raise missing_keras(error) from error
    return chosen


def set_seed(seed: int) -> None:
    """Let models begin with the same weights in every run."""
    import keras

    with _quiet():  # It seeds TensorFlow, too, if that is installed, and so imports it.
        keras.utils.set_random_seed(seed)


# -- the model ------------------------------------------------------------------------------------


def load_model(text: str) -> Any:
    """Return the model that `FILE.keras` holds, or that the function of `FILE.py:FUNCTION` returns."""
    import keras

    path, _, function = text.rpartition(":")
    if path.endswith(".py"):
        model = _built(Path(path), function)
    else:
        try:
            model = keras.models.load_model(text)
        except Exception as error:
            problem = f"{text} can't be loaded as a Keras model: {error!s:.500}"
            raise ValueError(
                f"{problem} A model with layers of your own is built by a function: FILE.py:FUNCTION."
            ) from error
    if not isinstance(model, keras.Model):
        raise TypeError(f"{text} must return a Keras model, got {type(model).__name__}.")
    return model


def check_model_file(text: str) -> None:
    """Raise if there can be no model: before the seconds that it takes to import Keras."""
    path, _, function = text.rpartition(":")
    if not (path.endswith(".py") and function.isidentifier()):
        path = text
        if not text.endswith(".keras"):
            raise ValueError(
                f"MODEL must be FILE.py:FUNCTION, whose function returns a compiled model, or FILE.keras, got {text!r}."
            )
    if not Path(path).is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")


def _built(path: Path, function: str) -> Any:
    """Return what a function of a file returns; what goes wrong in it names its line."""
    sys.path.insert(0, str(path.resolve().parent))  # As Python does for a script.
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # So that its classes can be found by name.
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(path, f"importing {path.name}", error) from error
    build = getattr(module, function, None)
    if not callable(build):
        own = [
            name
            for name, value in vars(module).items()
            if callable(value) and getattr(value, "__module__", None) == path.stem
        ]
        has = ", ".join(own[:_SHOWN]) or "none"
        raise ValueError(f"{path} has no function {function!r}; it has {has}.")  # noqa: TRY004  # It is not there.
    try:
        return build()
    except Exception as error:
        raise _failed(path, f"{function}()", error) from error


def _failed(path: Path, what: str, error: Exception) -> ValueError:
    """Return the error of a user's code, with the last line of their file that it came from."""
    where = str(path)
    if isinstance(error, SyntaxError):
        where = f"{path}:{error.lineno}"
    for frame in traceback.extract_tb(error.__traceback__):
        if Path(frame.filename).resolve() == path.resolve():
            where = f"{path}:{frame.lineno}"
    return ValueError(f"{what} failed at {where}: {type(error).__name__}: {error!s:.500}")


def compile_model(model: Any, loss: str | None, optimizer: str | None, metrics: list[str]) -> None:
    """Compile a model as flags ask for, or raise if nobody has."""
    if loss is not None:
        model.compile(optimizer=optimizer or "adam", loss=loss, metrics=metrics or None)
    elif optimizer is not None or metrics:
        raise ValueError(
            "--optimizer and --metric need a --loss as well: they compile the model anew."
        )
    elif not model.compiled:
        raise ValueError(
            "the model is not compiled: call model.compile(...) before it is returned or saved, or give --loss (with "
            "--optimizer and --metric), such as --loss sparse_categorical_crossentropy."
        )


def input_names(model: Any) -> list[str]:
    """Return the names of a model's inputs; none if it does not know them before it sees data."""
    return [str(one.name) for one in _inputs(model)]


def _inputs(model: Any) -> list[Any]:
    try:
        return list(getattr(model, "inputs", None) or [])
    except Exception:  # noqa: BLE001  # A model that is not built raises one error or another.
        return []


def check_inputs(model: Any, spec: Any, fields: list[str]) -> None:
    """Raise unless rows, whose `spec` is that of x, fit the inputs of a model, where it knows them."""
    wanted = _inputs(model)
    leaves: list[ArraySpec] = flatten(spec)[0]
    if not wanted:
        return
    if len(wanted) != len(leaves):
        names = ", ".join(one.name for one in wanted)
        raise ValueError(
            f"the number of fields that --x names ({', '.join(fields)}) must be that of the model's inputs ({names})."
        )
    order = {one.name: one for one in wanted}
    if isinstance(spec, dict):
        wanted = [order[name] for name in sorted(spec)]
        fields = sorted(spec)
    for one, leaf, field in zip(wanted, leaves, fields, strict=True):
        shape = tuple(one.shape[1:])
        if not _fits(tuple(leaf.shape), shape):
            raise ValueError(
                f"the model takes rows of shape {_words(shape)} (its input {one.name!r}), and those of {field!r} have "
                f"{_words(tuple(leaf.shape))}."
            )


def _fits(found: tuple[Any, ...], wanted: tuple[Any, ...]) -> bool:
    """Return whether Keras takes rows of a shape: it adds or takes away a last axis of 1 by itself."""
    if len(found) + 1 == len(wanted) and wanted[-1] == 1:
        found = (*found, 1)
    elif len(found) == len(wanted) + 1 and found[-1] == 1:
        found = found[:-1]
    return len(found) == len(wanted) and all(
        one is None or other is None or one == other
        for one, other in zip(found, wanted, strict=True)
    )


def _words(shape: tuple[Any, ...]) -> str:
    return f"({', '.join('?' if size is None else str(size) for size in shape)})"


# -- the training ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Run:
    """One training: how long, and where it is saved; `check` raises a Ctrl-C that was lost."""

    epochs: int
    batch_size: int
    folder: str | None
    every_batches: int
    check: Callable[[], None]


def train(
    model: Any, feed: Any, validation: Any, run: Run, told: Callable[[dict[str, Any]], None]
) -> None:
    """Train a model; `told` is called with the figures of each epoch."""
    callbacks = []
    if run.folder is not None:
        callbacks.append(feed.checkpoint(run.folder, every_batches=run.every_batches))
    callbacks.append(_shown(feed, run, callbacks[0] if callbacks else None, told))
    # Log lines of frameworks that come with the first step are let through: so are those that matter.
    model.fit(feed, epochs=run.epochs, validation_data=validation, callbacks=callbacks, verbose=0)


def save_model(model: Any, path: Path) -> None:
    """Save a model in one step: there is the old file or the new one, never a part of it."""
    part = path.with_name(f".{path.stem}.part.keras")
    try:
        with write_errors(path):
            model.save(part)
            part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _shown(feed: Any, run: Run, checkpoint: Any, told: Callable[[dict[str, Any]], None]) -> Any:
    """Return the callback that shows a bar for each epoch, and tells what it came to."""
    import keras

    class Shown(keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
        """How far the training is."""

        step = Step()
        began = 0.0
        batches = 0

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            done = 0 if checkpoint is None else checkpoint.steps_done
            self.began, self.batches = time.monotonic(), 0
            what = f"epoch {epoch + 1} of {run.epochs}"
            self.step = begin(what, total=feed.num_batches, done=done, unit="batches")

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            run.check()
            self.batches += 1
            self.step.advance(1)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            self.step.close()
            seconds = time.monotonic() - self.began
            report = feed.report()
            waited = 0.0 if report is None else report.waited_seconds
            told(
                {
                    "epoch": epoch + 1,
                    **{name: float(value) for name, value in (logs or {}).items()},
                    "seconds": seconds,
                    "batches": self.batches,
                    "rows_per_second": self.batches * run.batch_size / max(seconds, 1e-9),
                    "waited_seconds": waited,
                    "peak_nbytes": 0 if report is None else report.peak_nbytes,
                }
            )

        def on_train_end(self, logs: Any = None) -> None:
            self.step.close()

    return Shown()
