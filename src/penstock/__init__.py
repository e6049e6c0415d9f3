"""penstock: train models on arrays bigger than memory."""

import importlib
from typing import TYPE_CHECKING, Any

from penstock.core.habits import NAMES, attribute_words
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

if TYPE_CHECKING:
    from penstock import tfrecord
    from penstock.feeds.keras.fit_arrays import fit_arrays
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

# What most programs never use: `import penstock` does not wait for it.
_LATE = {
    "FixedFeature": "penstock.sources.tfrecord.features",
    "ImageFeature": "penstock.sources.tfrecord.features",
    "Report": "penstock.reports.report",
    "SequenceFeature": "penstock.sources.tfrecord.features",
    "TensorFeature": "penstock.sources.tfrecord.features",
    "VarFeature": "penstock.sources.tfrecord.features",
    "fit_arrays": "penstock.feeds.keras.fit_arrays",
    "merge_reports": "penstock.reports.report",
}


def __getattr__(name: str) -> Any:
    """Return a name that is loaded when it is first used."""
    if name == "tfrecord":
        return importlib.import_module("penstock.tfrecord")
    if name not in _LATE:
        raise AttributeError(attribute_words("the module penstock", name, __all__, NAMES))
    value = getattr(importlib.import_module(_LATE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return what is meant to be used; the modules that it is made of are not."""
    return [*__all__, "__version__"]
