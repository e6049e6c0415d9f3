"""Install an sdist and wheels, each into a fresh venv, and run the quick tests: python tools/install_dist.py dist.

With nothing but what the core depends on. The tests are those of the sdist, unpacked elsewhere, so that the sources of
this folder have no part in it. Wheels for other interpreters or machines are left out. Part of `make dist`.
"""

import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# As in [tool.cibuildwheel] of pyproject.toml.
TEST_TOOLS = ("pytest", "pytest-timeout", "pytest-xdist", "hypothesis")
WHERE = "import json, penstock, sys; print(json.dumps([penstock.__file__, sys.prefix]))"


def fits(wheel: Path) -> bool:
    """Return whether a wheel can be installed here."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", "--quiet"]
    command += ["--ignore-installed", str(wheel)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def attempt(path: Path, sdist: Path) -> None:
    """Install one file, and run the tests of the sdist on it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
        python = folder / "venv" / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*install, path.resolve()], check=True)
        listed = subprocess.check_output([python, "-m", "pip", "list", "--format=json"], text=True)
        names = sorted({one["name"] for one in json.loads(listed)} - {"pip", "setuptools"})
        print(f"{path.name} brings along {', '.join(names)}", flush=True)
        subprocess.run([*install, *TEST_TOOLS], check=True)
        with tarfile.open(sdist) as archive:
            archive.extractall(folder, filter="data")
        project = folder / sdist.name.removesuffix(".tar.gz")
        found, prefix = json.loads(
            subprocess.check_output([python, "-c", WHERE], text=True, cwd=project)
        )
        assert Path(found).is_relative_to(prefix), f"{found} is not in {prefix}"
        subprocess.run(["make", "-C", project, "installed", f"PYTHON={python}"], check=True)


def main(folder: str) -> None:
    """Try all files in a folder that are for this machine."""
    (sdist,) = Path(folder).glob("*.tar.gz")
    wheels = sorted(Path(folder).glob("*.whl"))
    for path in (sdist, *wheels):
        if path in wheels and not fits(path):
            print(f"{path.name} is for another interpreter or machine")
        else:
            attempt(path, sdist)


if __name__ == "__main__":
    main(*sys.argv[1:])
