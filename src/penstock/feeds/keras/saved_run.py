"""The file of a checkpoint: variables and counters of a run, none of which is trusted when it is read."""

import io
import json
import os
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np

from penstock.errors import DataError, NotAFileError, StateError
from penstock.io.atomic import atomic_file
from penstock.io.failures import read_failure, write_errors

VERSION = 1
FILE = "checkpoint.npz"
PREVIOUS = "checkpoint-before.npz"


@dataclass(frozen=True, slots=True)
class Saved:
    """What a checkpoint holds."""

    path: Path
    epoch: int
    steps_done: int
    """Batches trained on in this epoch of Keras."""
    is_stopped: bool
    state: Any
    """Where the data stands: a state of the dataset."""
    random: dict[str, Any]
    iterations: int | None
    """The steps that the optimizer had done."""
    values: list[Any]
    """The variables of the model, of its optimizer, and of its metrics."""

    def refused(self, problem: str) -> StateError:
        """Return the error that says why this can't be gone on from."""
        return _refused(self.path, problem)


def make_folder(path: Path) -> None:
    """Make the folder of a checkpoint: if that can't be done, it is better known before the training."""
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)


def save_run(path: Path, meta: dict[str, Any], values: list[Any], *, keeps: bool) -> None:
    """Save a run in one step; what was saved before is kept beside it, if it is good (`keeps`)."""
    everything = meta | {
        "version": VERSION,
        "backend": keras.backend.backend(),
        "dtypes": [value.dtype.name for value in values],
        "shapes": [list(value.shape) for value in values],
    }
    text = np.frombuffer(json.dumps(everything).encode(), np.uint8)
    with atomic_file(path, replace=True) as file:
        np.savez(file, meta=text, **{f"v{i}": _plain(value) for i, value in enumerate(values)})
        before = path.with_name(PREVIOUS)
        with write_errors(before):
            if keeps:
                _keep(path, before)
            else:
                before.unlink(missing_ok=True)  # It is of another run.


def _keep(path: Path, before: Path) -> None:
    """Give a file a second name; there is one of both names at any time."""
    spare = before.with_name(f".{before.name}.spare")
    spare.unlink(missing_ok=True)
    try:
        os.link(path, spare)
    except FileNotFoundError:
        return  # Somebody removed it meanwhile.
    except OSError:  # No links on this file system.
        shutil.copyfile(path, spare)
    spare.replace(before)


def load_run(path: Path, shapes: list[list[int]], names: list[str]) -> Saved | None:
    """Return what a checkpoint holds, for a model whose variables have these shapes; None if there is none.

    Raises:
        DataError: It is damaged, or no checkpoint at all.
        StateError: It is one of another model, or its counters can't be true.
    """
    if os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises where it may not look.
        cure = "Remove it, or choose another folder."
        raise NotAFileError("the checkpoint is a directory", file=str(path), cure=cure)
    try:
        with path.open("rb") as file, zipfile.ZipFile(file) as members:
            meta = json.loads(_member(members, "meta").tobytes())
            _check_model(path, meta, shapes, names)
            pairs = zip(meta["dtypes"], shapes, strict=True)
            values = [
                _stored(_member(members, f"v{i}"), dtype, shape)
                for i, (dtype, shape) in enumerate(pairs)
            ]
            random = dict(meta["random"])
    except FileNotFoundError:
        return None
    except (StateError, DataError):
        raise
    except PermissionError as error:
        raise read_failure(error, file=str(path)) from error
    except (
        Exception
    ) as error:  # Parsers of zip, npy and JSON raise a dozen kinds for damaged bytes.
        raise damaged(path, f"{type(error).__name__}: {error!s:.100}") from error
    counters = {name: meta.get(name) for name in ("epoch", "steps_done", "iterations")}
    for name, value in counters.items():
        is_missing = name == "iterations" and value is None  # There may be no optimizer.
        if not is_missing and (type(value) is not int or not 0 <= value < 1 << 62):
            raise _refused(path, f"{name} is {value!r:.50}")
    if type(meta.get("is_stopped")) is not bool:
        raise _refused(path, f"is_stopped is {meta.get('is_stopped')!r:.50}")
    state = meta.get("state")
    if isinstance(state, dict) and state.get("epoch") == 0:
        element = state.get("element")
        if type(element) is int and 0 <= element < counters["steps_done"]:
            problem = f"{counters['steps_done']} batches are done, and the data stands at {element}"
            raise _refused(path, problem)
    return Saved(
        path, **counters, is_stopped=meta["is_stopped"], state=state, random=random, values=values
    )


def damaged(path: Path, problem: str) -> DataError:
    """Return the error for a file that can't be read as a checkpoint."""
    return DataError(
        f"the checkpoint is damaged ({problem})", file=str(path), cure=beginning_anew(path)
    )


def _refused(path: Path, problem: str) -> StateError:
    return StateError(f"{path}: these counters can't be true: {problem}. {beginning_anew(path)}")


def beginning_anew(path: Path) -> str:
    """Return what to do about a checkpoint that can't be gone on from."""
    return f"Remove {path}, or choose another folder, to train from the beginning."


def _check_model(
    path: Path, meta: dict[str, Any], shapes: list[list[int]], names: list[str]
) -> None:
    if meta["version"] != VERSION:
        raise StateError(
            f"{path} has version {meta['version']!r:.20}, and this penstock reads {VERSION}. {beginning_anew(path)}"
        )
    backend = keras.backend.backend()
    if meta["backend"] != backend:
        raise StateError(
            f"{path} belongs to another backend: it was saved on {meta['backend']!r:.20}, and this is {backend!r}. "
            f"{beginning_anew(path)}"
        )
    if meta["shapes"] != shapes:
        saved_names = meta.get("names")
        known = saved_names if isinstance(saved_names, list) else []
        problem = _difference(meta["shapes"], known, shapes, names)
        raise StateError(f"{path} belongs to another model: {problem}. {beginning_anew(path)}")


def _difference(
    saved: list[Any], saved_names: list[Any], shapes: list[list[int]], names: list[str]
) -> str:
    """Return what differs between the variables of a checkpoint and those of a model, in words."""
    counts = f"it has {len(saved)} variables (weights, optimizer and metrics), and this model {len(shapes)}"
    pairs = zip(saved, shapes, strict=False)
    first = next((at for at, (one, other) in enumerate(pairs) if one != other), None)
    if first is None:
        more, its = (shapes, names) if len(shapes) > len(saved) else (saved, saved_names)
        whose = "this model" if more is shapes else "it"
        first = min(len(saved), len(shapes))
        return f"{counts}: only {whose} has {_variable(more, its, first)}"
    differ = (
        f"{_variable(saved, saved_names, first)} is {_variable(shapes, names, first)} in this model"
    )
    return differ if len(saved) == len(shapes) else f"{counts}; {differ}"


def _variable(shapes: list[Any], names: list[Any], number: int) -> str:
    name = f"{names[number]!s:.80}" if number < len(names) else f"variable {number}"
    return f"{name} of shape {tuple(shapes[number])!s:.60}"


def _member(members: zipfile.ZipFile, name: str) -> Any:
    """Return one array; its bytes are compared with their checksum before anything in them is believed."""
    return np.load(io.BytesIO(members.read(f"{name}.npy")), allow_pickle=False)


def _plain(value: Any) -> Any:
    """Return an array that `.npy` can hold: bfloat16 and its like as unsigned integers."""
    return value.view(f"u{value.dtype.itemsize}") if value.dtype.kind == "V" else value


def _stored(value: Any, dtype: str, shape: list[int]) -> Any:
    if value.dtype.name != dtype:
        import ml_dtypes  # saved bfloat16 arrays came from this package

        value = value.view(getattr(ml_dtypes, dtype))
    if list(value.shape) != shape:
        raise ValueError(f"a variable has shape {value.shape}, not {shape}")
    return value
