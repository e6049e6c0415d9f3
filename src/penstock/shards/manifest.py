"""The manifest of a folder of `.npy` shards: what a row is, which files there are, what they hold.

It is written last, in one step: a folder without a manifest is not whole.

    {"format": "penstock-npy", "version": 1, "num_rows": 5,
     "row": {"image": "image", "label": "label"},
     "fields": {"image": {"shape": [28, 28], "dtype": "|u1", "arrays": {"rows": "image"}}, ...},
     "shards": [{"num_rows": 5, "run_rows": 83, "first_run_rows": 83,
                 "files": {"image-00000.npy": {"nbytes": ..., "crc32": "0c5d..."},
                           "image-00000.npy.crc32c": {"nbytes": ..., "crc32": "a61b..."}, ...}}],
     "made_from": {"fingerprint": "...", "stages": [...], "inputs": [...], ...}}

`row` is the nest of a row; a list stands for a tuple. `crc32` is that of the array's bytes, as
`zlib.crc32(np.load(file))` computes it. The file beside an array, itself a `.npy`, has a CRC32C for each run of
`run_rows` rows (`first_run_rows` for the first); see `checks.py`. Manifests of older versions have no such runs.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.nest import Structure, flatten, unflatten
from penstock.core.spec import ArraySpec, dtype_from_json, dtype_to_json
from penstock.errors import DataError
from penstock.io.atomic import atomic_file
from penstock.shards.layout import STEM, FieldLayout, check_names
from penstock.shards.writing import FileRecord, ShardRecord

NAME = "manifest.json"
FORMAT = "penstock-npy"
VERSION = 1
MAX_NBYTES = 1 << 28  # Enough for a million files.
_MAX_COUNT = 1 << 53  # So that bytes of so many rows, added up, are numbers of 64 bits.
_PAIRS = "__pairs__"  # Marks a dict with keys that are not text, which JSON can't hold as keys.


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a folder of shards holds."""

    row: Any
    """The nest of a row as JSON; each leaf is the stem of a field's files."""
    layouts: tuple[FieldLayout, ...]
    shards: tuple[ShardRecord, ...]
    made_from: dict[str, Any]

    @property
    def num_rows(self) -> int:
        """The rows of all shards."""
        return sum(shard.num_rows for shard in self.shards)

    @property
    def nbytes(self) -> int:
        """The bytes of all files."""
        return sum(file.nbytes for shard in self.shards for file in shard.files.values())

    def write(self, folder: Path) -> None:
        """Write the manifest in one step: from now on the folder is whole."""
        with atomic_file(folder / NAME, replace=True) as file:
            file.write(self.to_json())

    def to_json(self) -> bytes:
        """Return the text of the manifest."""
        value = {
            "format": FORMAT,
            "version": VERSION,
            "num_rows": self.num_rows,
            "row": self.row,
            "fields": fields_to_json(self.layouts),
            "shards": [shard_to_json(shard) for shard in self.shards],
            "made_from": self.made_from,
        }
        return json.dumps(value, indent=1).encode()


def row_to_json(structure: Structure, layouts: Sequence[FieldLayout]) -> Any:
    """Return the nest of a row as JSON."""
    return nest_to_json(unflatten(structure, [layout.stem for layout in layouts]))


def row_from_json(value: Any) -> Any:
    """Return the nest of a row that `row_to_json` wrote."""
    if isinstance(value, list):
        return tuple(row_from_json(one) for one in value)
    if not isinstance(value, dict):
        return value
    if _PAIRS in value:
        return {key: row_from_json(one) for key, one in value[_PAIRS]}
    return {key: row_from_json(one) for key, one in value.items()}


def parse_manifest(text: bytes, *, file: str) -> Manifest:
    """Return the manifest that a text holds; raise DataError if it is no manifest, or damaged."""

    def wrong(problem: str) -> DataError:
        return DataError(problem, file=file, cure="Write the folder again with ds.write(...).")

    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise wrong(f"the manifest is damaged: {error}") from error
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise wrong(f"the manifest must be one of format {FORMAT!r}")
    if value.get("version") != VERSION:
        raise wrong(f"manifest version {value.get('version')!r:.20} is not known, {VERSION} is")
    try:
        layouts = tuple(_field_from_json(stem, one) for stem, one in value["fields"].items())
        shards = tuple(shard_from_json(one) for one in value["shards"])
        check_names((name for one in shards for name in one.files), value["fields"])
        made_from = dict(value["made_from"])
        manifest = Manifest(value["row"], layouts, shards, made_from)
        stems = flatten(row_from_json(value["row"]))[0]
        num_rows = _count(value["num_rows"])
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise wrong(f"the manifest is damaged: {type(error).__name__}: {error!s:.200}") from error
    if sorted(map(str, stems)) != sorted(layout.stem for layout in layouts) or not shards:
        raise wrong("the manifest must name each field once, and at least one shard")
    if num_rows != manifest.num_rows:
        raise wrong(f"the manifest claims {num_rows} rows, and its shards {manifest.num_rows}")
    return manifest


def shard_to_json(shard: ShardRecord) -> dict[str, Any]:
    """Return what a shard holds as JSON."""
    files = {
        name: {"nbytes": one.nbytes, "crc32": f"{one.crc32:08x}"}
        for name, one in shard.files.items()
    }
    runs = {"run_rows": shard.run_rows, "first_run_rows": shard.first_run_rows}
    return {"num_rows": shard.num_rows, **(runs if shard.run_rows else {}), "files": files}


def shard_from_json(value: dict[str, Any]) -> ShardRecord:
    """Return the shard that `shard_to_json` wrote; raises KeyError, TypeError, ValueError or AttributeError."""
    files = {
        str(name): FileRecord(_count(one["nbytes"]), int(one["crc32"], 16))
        for name, one in value["files"].items()
    }
    num_rows = _count(value["num_rows"])
    run_rows = _count(value.get("run_rows", 0))
    first_run_rows = _count(value.get("first_run_rows", run_rows))
    if run_rows and not 0 < first_run_rows <= run_rows:
        raise ValueError(f"a run has {run_rows} rows, and the first one {first_run_rows}")
    return ShardRecord(num_rows, files, run_rows, first_run_rows)


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < _MAX_COUNT:
        raise ValueError(f"a number of rows or bytes is {value!r:.50}")
    return value


def nest_to_json(nest: Any) -> Any:
    """Return a nest of names as JSON, from which `row_from_json` makes it again."""
    if isinstance(nest, tuple):
        return [nest_to_json(one) for one in nest]
    if not isinstance(nest, dict):
        return nest
    if all(isinstance(key, str) for key in nest) and _PAIRS not in nest:
        return {key: nest_to_json(one) for key, one in nest.items()}
    for key in nest:
        if not isinstance(key, str | int | float | bool | None):
            raise TypeError(
                f"a row that is written must have names that JSON can hold, got {key!r}; "
                "rename it first with map."
            )
    return {_PAIRS: [[key, nest_to_json(one)] for key, one in nest.items()]}


def fields_to_json(layouts: Sequence[FieldLayout]) -> dict[str, Any]:
    """Return the fields of a row as JSON."""
    return {layout.stem: _field_to_json(layout) for layout in layouts}


def _field_to_json(layout: FieldLayout) -> dict[str, Any]:
    return {
        "shape": list(layout.spec.shape),
        "dtype": dtype_to_json(layout.spec.dtype),
        "arrays": {role: layout.stem + array.role for role, array in layout.arrays.items()},
    }


def _field_from_json(stem: str, value: dict[str, Any]) -> FieldLayout:
    if not STEM.fullmatch(stem):  # It becomes part of a path.
        raise ValueError(f"a field is called {stem!r:.50}")
    return FieldLayout(stem, ArraySpec(value["shape"], dtype_from_json(value["dtype"])))
