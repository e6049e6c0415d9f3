"""What a worker process imports: no more of penstock than a function needs, and all of it when it asks."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow  # Every test starts interpreters.

INSTALL = """
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("light_package", PATH)
module = module_from_spec(spec)
spec.loader.exec_module(module)
module.install("penstock")
"""


def run(code: str) -> str:
    from penstock.workers import light_package

    done = subprocess.run(
        [sys.executable, "-c", INSTALL.replace("PATH", repr(light_package.__file__)) + code],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_a_module_is_imported_without_the_rest():
    code = "import penstock.engine.functions.task; print('penstock.dataset' in sys.modules)"
    assert run(code) == "False"


def test_submodules_are_had_by_from_imports_without_the_rest():
    code = "from penstock import core, _native; print('penstock.dataset' in sys.modules)"
    assert run(code) == "False"


@pytest.mark.parametrize(
    "code",
    [
        "import penstock as ps; print(ps.spec_of(1))",
        "from penstock import spec_of; print(spec_of(1))",
        "import penstock.core.spec; from penstock import *; print(spec_of(1))",
        "import penstock; penstock.__version__; print(penstock.spec_of(1))",
        "import penstock.core.spec as s, penstock as ps; assert ps.ArraySpec is s.ArraySpec; print(ps.spec_of(1))",
    ],
)
def test_names_of_the_package_are_there_when_they_are_asked_for(code: str):
    assert run(code) == "ArraySpec((), int64)"


def test_names_that_it_does_not_have_are_missing():
    code = "import penstock\nprint(hasattr(penstock, 'nothing'), hasattr(penstock, '__wrapped__'))"
    assert run(code) == "False False"


def test_a_package_that_is_loaded_or_not_there_is_left_alone():
    code = "import json; module.install('json'); module.install('no_such_package'); print(type(json).__name__)"
    assert run(code) == "module"
