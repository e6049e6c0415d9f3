"""penstock: train models on arrays bigger than memory."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock import tfrecord
    from penstock.core.spec import ArraySpec, spec_of
    from penstock.dataset import Dataset
    from penstock.engine.plan import Explanation
    from penstock.engine.stream import Stream
    from penstock.errors import (
        AccessError,
        BudgetError,
        CannotPickle,
        DataError,
        DiskFullError,
        FieldError,
        FileChangedError,
        FileError,
        FunctionError,
        LengthError,
        MissingFileError,
        NotAFileError,
        PenstockError,
        PenstockWarning,
        RangeError,
        RankMismatchError,
        ReadError,
        RecordError,
        SpecMismatchError,
        StaleCacheError,
        StateError,
        StreamClosedError,
        TargetExistsError,
        WorkersUnavailable,
        WriteError,
    )
    from penstock.feeds.keras.fit_arrays import fit_arrays
    from penstock.makers import (
        concatenate,
        from_arrays,
        from_files,
        from_generator,
        from_tfrecord,
        interleave,
        mix,
        zip,  # noqa: A004  # The name users know.
    )
    from penstock.reports.report import Report, merge_reports
    from penstock.sources.tfrecord.features import (
        FixedFeature,
        ImageFeature,
        SequenceFeature,
        TensorFeature,
        VarFeature,
    )

__version__ = "0.1.0"

__all__ = [
    "AccessError",
    "ArraySpec",
    "BudgetError",
    "CannotPickle",
    "DataError",
    "Dataset",
    "DiskFullError",
    "Explanation",
    "FieldError",
    "FileChangedError",
    "FileError",
    "FixedFeature",
    "FunctionError",
    "ImageFeature",
    "LengthError",
    "MissingFileError",
    "NotAFileError",
    "PenstockError",
    "PenstockWarning",
    "RangeError",
    "RankMismatchError",
    "ReadError",
    "RecordError",
    "Report",
    "SequenceFeature",
    "SpecMismatchError",
    "StaleCacheError",
    "StateError",
    "Stream",
    "StreamClosedError",
    "TargetExistsError",
    "TensorFeature",
    "VarFeature",
    "WorkersUnavailable",
    "WriteError",
    "concatenate",
    "fit_arrays",
    "from_arrays",
    "from_files",
    "from_generator",
    "from_tfrecord",
    "interleave",
    "merge_reports",
    "mix",
    "spec_of",
    "tfrecord",
    "zip",
]

# Each name is loaded when it is first used, with the modules that it needs: so `penstock --help` takes no longer than
# Python and click, and a program that uses `fit_arrays` alone does not wait for TFRecords.
_MODULES = {
    "core.spec": ("ArraySpec", "spec_of"),
    "dataset": ("Dataset",),
    "engine.plan": ("Explanation",),
    "engine.stream": ("Stream",),
    "feeds.keras.fit_arrays": ("fit_arrays",),
    "makers": (
        "concatenate", "from_arrays", "from_files", "from_generator", "from_tfrecord", "interleave", "mix", "zip",
    ),
    "reports.report": ("Report", "merge_reports"),
    "sources.tfrecord.features": (
        "FixedFeature", "ImageFeature", "SequenceFeature", "TensorFeature", "VarFeature",
    ),
}  # fmt: skip
_HOMES = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Return a name of the interface; its module is loaded now."""
    if name not in __all__:
        habits = importlib.import_module("penstock.core.habits")
        raise AttributeError(
            habits.attribute_words("the module penstock", name, __all__, habits.NAMES)
        )
    if name == "tfrecord":
        return importlib.import_module("penstock.tfrecord")
    # All that has no other place is an error.
    value = getattr(importlib.import_module(f"penstock.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what is meant to be used; the modules that it is made of are not."""
    return [*__all__, "__version__"]
