"""penstock: train models on arrays bigger than memory."""

from penstock import tfrecord
from penstock.adapters.fit_arrays import fit_arrays
from penstock.dataset import (
    Dataset,
    concatenate,
    from_arrays,
    from_files,
    from_generator,
    from_tfrecord,
    interleave,
    mix,
    zip,  # noqa: A004  # The name users know.
)
from penstock.errors import (
    BudgetError,
    FunctionError,
    LengthError,
    PenstockError,
    PenstockWarning,
    SpecMismatchError,
    StaleCacheError,
    StateError,
    StreamClosedError,
)
from penstock.plan import Explanation
from penstock.sources.example_features import FixedFeature, TensorFeature, VarFeature
from penstock.spec import ArraySpec, spec_of
from penstock.stream import Report, Stream

__version__ = "0.1.0"

__all__ = [
    "ArraySpec",
    "BudgetError",
    "Dataset",
    "Explanation",
    "FixedFeature",
    "FunctionError",
    "LengthError",
    "PenstockError",
    "PenstockWarning",
    "Report",
    "SpecMismatchError",
    "StaleCacheError",
    "StateError",
    "Stream",
    "StreamClosedError",
    "TensorFeature",
    "VarFeature",
    "concatenate",
    "fit_arrays",
    "from_arrays",
    "from_files",
    "from_generator",
    "from_tfrecord",
    "interleave",
    "mix",
    "spec_of",
    "tfrecord",
    "zip",
]
