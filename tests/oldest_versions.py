"""Print the oldest version that pyproject.toml allows of each package that the tests use: `h5py==3.11`, a line each.

`make oldest` installs them. Torch is missing, which the Makefile installs by itself; so are the tools (pytest and the
like), which are no part of what is claimed.
"""

import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
TOOLS = {"google-crc32c", "hypothesis", "moto", "pytest", "pytest-timeout", "pytest-xdist", "scipy"}
# No formats, and Keras does not use them.
APART = {"ray", "accelerate", "equinox", "flax", "lightning", "optax", "transformers"}
REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(?:\[([a-z0-9_,-]+)\])?(?:>=([0-9.]+))?")


def requirements(project, extra):
    """Yield (name, oldest version) of an extra, and of those that it names."""
    extras = project["optional-dependencies"]
    for text in extras[extra]:
        found = REQUIREMENT.fullmatch(text)
        if found is None:
            raise ValueError(f"{PYPROJECT}: {text!r} is no name with an oldest version.")
        name, others, oldest = found.groups()
        if name == project["name"]:
            for other in others.split(","):
                yield from requirements(project, other)
        else:
            yield name, oldest


def pins(project):
    """Return the packages and their oldest versions, tools left out."""
    own = [REQUIREMENT.fullmatch(text).group(1, 3) for text in project["dependencies"]]
    found = dict([*own, *requirements(project, "tensors"), *requirements(project, "test")])
    return {name: oldest for name, oldest in found.items() if name not in TOOLS | APART}


def main():
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    sys.stdout.writelines(f"{name}=={oldest}\n" for name, oldest in pins(project).items())


if __name__ == "__main__":
    main()
