"""Run in a memory cgroup by test_mutations.py: reads damaged files, one after the other, and prints what failed."""

import faulthandler
import gc
import json
import os
import shutil
import sys
import tempfile
import threading
import traceback
import warnings
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
from tests.sources.mutations.damage import ALL, IN_PLACE
from tests.sources.mutations.kind import Kind
from tests.sources.mutations.kinds import KINDS

import penstock as ps

MEMORY = "64MB"
HANG_SECONDS = 120
WARM_UP = 40  # Cases after which nothing more may stay open.
MOST_ROWS = 5000  # What is damaged may claim more rows than there were; that many are looked at.


def damaged(kind: Kind, path: Path, generator: np.random.Generator) -> bool:
    """Damage the file, or one of a folder; return whether a checksum must tell."""
    files = [one for one in sorted(path.rglob("*")) if one.is_file()] if path.is_dir() else [path]
    if kind.victims is not None:
        files = kind.victims(path)
    cover = kind.covered(path) if kind.covered is not None else {}
    is_covered = bool(cover) and generator.random() < 0.5
    if is_covered:
        name = sorted(cover)[int(generator.integers(0, len(cover)))]
        start, stop = cover[name][int(generator.integers(0, len(cover[name])))]
        file = path / name if name else path
    else:
        file = files[int(generator.integers(0, len(files)))]
        start, stop = 0, file.stat().st_size
    content = file.read_bytes()
    part = bytearray(content[start:stop])
    ways = IN_PLACE if is_covered else ALL
    for _ in range(int(generator.choice([1, 1, 1, 2, 4]))):
        if part:
            ways[int(generator.integers(0, len(ways)))](part, generator)
    data = content[:start] + bytes(part) + content[stop:]
    file.write_bytes(data if kind.seal is None else kind.seal(data))
    return is_covered and part != content[start:stop]


@dataclass(frozen=True)
class Reading:
    """One way to read rows."""

    ds: ps.Dataset
    is_in_order: bool
    may_skip: bool


def chained(ds: ps.Dataset, generator: np.random.Generator) -> Reading:
    """Return the rows by one of several ways."""
    on_error = "skip" if generator.random() < 0.4 else "raise"
    ds = ds.with_options(memory=MEMORY, threads=int(generator.choice([0, 2])), on_error=on_error)
    way = int(generator.integers(0, 4))
    if way == 0:
        ds = ds.shuffle(seed=int(generator.integers(0, 9)), window="20KB")
    elif way == 1:
        ds = ds.cache()
    return Reading(ds, is_in_order=way != 0, may_skip=on_error == "skip")


def read(name: str, path: Path, rows: list[Any], number: int) -> str:
    """Return what went wrong in one case, '' if nothing did."""
    kind = KINDS[name]
    generator = np.random.default_rng([zlib.crc32(name.encode()), number])
    must_be_found = damaged(kind, path, generator)
    try:
        reading = chained(kind.open(path), generator)
        found = []
        with reading.ds.stream() as stream:
            for row in stream:
                found.append(row)
                if len(found) >= MOST_ROWS:
                    break
    except ps.PenstockError as error:
        text = str(error)
        is_named = path.name in text or "memory" in text
        return "" if is_named else f"does not name the file: {text}"
    except Exception:  # noqa: BLE001  # Any other error is what is looked for.
        return traceback.format_exc()
    return different(found, rows, reading) if must_be_found else ""


def different(found: list[Any], rows: list[Any], reading: Reading) -> str:
    """Return how rows differ from those that were written, of which some may have been skipped."""
    left = [same(row) for row in rows]
    for number, row in enumerate(found):
        try:
            at = left.index(same(row))
        except ValueError:
            return f"row {number} was changed in silence: {row!r}"
        if at and not reading.may_skip and reading.is_in_order:
            return f"row {number} is out of place: {row!r}"
        del left[0 if reading.is_in_order else at : at + 1]
    return f"{len(left)} rows were lost in silence" if left and not reading.may_skip else ""


def same(value: Any) -> Any:
    """Return what is equal for rows that are the same, to the bit."""
    if isinstance(value, dict):
        return {name: same(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        is_object = value.dtype.hasobject
        return value.dtype.str, value.shape, value.tolist() if is_object else value.tobytes()
    return value


def main() -> None:
    """Read cases of each kind, from `first` on: `count` of them or, if that is 0, for so many seconds."""
    first, count, seconds = map(int, sys.argv[1:4])
    group, *names = sys.argv[4:]
    if group:
        (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
    warnings.simplefilter("ignore", UserWarning)  # Ours, and those of Zarr.
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for name in names:
            shutil.rmtree(folder)
            Path(folder).mkdir()
            read_cases(name, Path(folder), numbers(first, count, seconds))


def numbers(first: int, count: int, seconds: int) -> Iterator[int]:
    """Yield the numbers of cases, until there are enough or time is up."""
    stop_at = monotonic() + seconds
    number = first
    while number < first + count if count else monotonic() < stop_at:
        yield number
        number += 1


def read_cases(name: str, folder: Path, cases: Iterable[int]) -> None:
    """Print the number of each case before it is read, and what failed."""
    kind = KINDS[name]
    whole, path = folder / "whole" / kind.name, folder / kind.name
    whole.parent.mkdir()
    kind.write(whole)
    rows = expected(kind, whole, path)
    gc.collect()
    gc.freeze()  # Else to collect after each case takes longer than the case: libraries have many objects.
    most = 0, 0
    for done, number in enumerate(cases):
        copied(whole, path)
        print(json.dumps({"kind": name, "case": number}), flush=True)
        faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
        failure = read(name, path, rows, number)
        faulthandler.cancel_dump_traceback_later()
        gc.collect()
        left = threading.active_count(), len(os.listdir("/proc/self/fd"))
        if done < WARM_UP:  # Libraries start threads and open files of their own, once.
            most = max(most[0], left[0]), max(most[1], left[1])
        elif not failure and (left[0] > most[0] or left[1] > most[1]):
            failure = f"threads and files: at most {most} before, {left} after"
        if failure:
            print(json.dumps({"kind": name, "case": number, "failure": failure}), flush=True)


def expected(kind: Kind, whole: Path, path: Path) -> list[Any]:
    """Return the rows of the file as it was written."""
    copied(whole, path)
    if kind.seal is not None:
        path.write_bytes(kind.seal(path.read_bytes()))
    with kind.open(path).stream() as stream:
        return list(stream)


def copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)


if __name__ == "__main__":
    main()
