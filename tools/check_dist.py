"""Check what is in an sdist and in a wheel: python tools/check_dist.py dist. Part of `make dist`."""

import re
import sys
import tarfile
import zipfile
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).parents[1]
# What users need to build it, and to run its tests. Anything else is there by mistake.
FILES = "CHANGELOG.md CMakeLists.txt CONTRIBUTING.md LICENSE Makefile PKG-INFO README.md mkdocs.yml pyproject.toml"
FOLDERS = "docs examples src tests tools"


def here(*folders: str) -> set[str]:
    """Return the paths of all files under folders of the project, but for what tools leave behind."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    paths = (path.relative_to(ROOT) for path in found)
    return {
        str(one) for one in paths if not any(p == "__pycache__" or p[0] == "." for p in one.parts)
    }


def problems_of_sdist(path: Path, name: str) -> list[str]:
    """Return what an sdist has too much or too little of."""
    with tarfile.open(path) as archive:
        members = [PurePosixPath(one.name) for one in archive.getmembers() if one.isfile()]
    strays = [f"{one} is outside of its folder" for one in members if one.parts[0] != name]
    found = {str(PurePosixPath(*one.parts[1:])) for one in members}
    return strays + differences(found, {*FILES.split()} | here(*FOLDERS.split()))


def problems_of_wheel(path: Path, name: str) -> list[str]:
    """Return what a wheel has too much or too little of."""
    with zipfile.ZipFile(path) as archive:
        found = {one for one in archive.namelist() if not one.startswith(f"{name}.dist-info/")}
    native = {one for one in found if re.fullmatch(r"penstock/_native\.[\w.-]+\.so", one)}
    expected = {one.removeprefix("src/") for one in here("src/penstock")}
    count = [] if len(native) == 1 else [f"it has {len(native)} native modules instead of one"]
    return count + differences(found - native, expected)


def differences(found: set[str], expected: set[str]) -> list[str]:
    """Return a line for each path that is only on one side."""
    return [
        *(f"{one} should not be in it" for one in sorted(found - expected)),
        *(f"{one} is missing" for one in sorted(expected - found)),
    ]


def main(folder: str) -> int:
    """Print what is wrong; return how many things."""
    source = (ROOT / "src/penstock/__init__.py").read_text()
    version = re.search(r'^__version__ = "(.+)"$', source, re.MULTILINE)
    assert version is not None
    name = f"penstock-{version[1]}"
    sdists, wheels = (sorted(Path(folder).glob(glob)) for glob in ("*.tar.gz", "*.whl"))
    problems = [] if len(sdists) == 1 and wheels else [f"{folder} needs one sdist and wheels of it"]
    for path in (*sdists, *wheels):
        if not path.name.startswith((f"{name}.tar.gz", f"{name}-")):
            problems.append(f"{path}: penstock.__version__ is {version[1]}")
        check = problems_of_wheel if path in wheels else problems_of_sdist
        problems += [f"{path}: {one}" for one in check(path, name)]
    print(*problems or [f"{folder}: all is there, and nothing else"], sep="\n")
    return min(1, len(problems))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
