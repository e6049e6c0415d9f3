"""What is published: its claims are the same wherever they are made, and the scripts that check it find mistakes."""

import importlib.metadata
import importlib.util
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import penstock

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WORKFLOWS = ROOT / ".github" / "workflows"
needs_workflows = pytest.mark.skipif(
    not WORKFLOWS.is_dir(), reason="the workflows are in the repository, not in an sdist"
)


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def claimed_pythons():
    """The versions of Python in the classifiers: '3.11' and newer."""
    found = (one.rpartition(" :: ")[2] for one in PYPROJECT["project"]["classifiers"])
    return {one for one in found if re.fullmatch(r"3\.\d+", one)}


def test_the_version_is_the_same_everywhere():
    assert penstock.__version__ == PYPROJECT["project"]["version"]
    assert penstock.__version__ == importlib.metadata.version("penstock")


def test_wheels_are_made_for_every_python_that_is_claimed():
    built = PYPROJECT["tool"]["cibuildwheel"]["build"].split()
    tags = {f"cp{one.replace('.', '')}-*" for one in claimed_pythons()}
    assert tags == set(built)
    assert min(claimed_pythons()) == PYPROJECT["project"]["requires-python"].removeprefix(">=")


@needs_workflows
@pytest.mark.parametrize("name", ["check.yml", "wheels.yml"])
def test_workflows_run_every_python_that_is_claimed(name):
    matrices = re.findall(r"^ +python: \[(.*)\]$", (WORKFLOWS / name).read_text(), re.MULTILINE)
    assert matrices
    for matrix in matrices:
        assert set(re.findall(r'"(.*?)"', matrix)) == claimed_pythons()


@needs_workflows
def test_workflows_call_only_targets_that_the_makefile_has():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set()
    for path in WORKFLOWS.glob("*.yml"):
        text = path.read_text()
        used |= set(re.findall(r"run: make ([a-z-]+)", text))
        for listed in re.findall(r"target: \[(.*)\]", text):
            used |= set(listed.split(", "))
    assert {"check", "oldest", "portable", "dist", "installed"} <= used <= targets


def test_the_extra_all_has_all_but_the_frameworks():
    extras = PYPROJECT["project"]["optional-dependencies"]
    (everything,) = extras["all"]
    listed = set(re.fullmatch(r"penstock\[(.*)\]", everything)[1].split(","))
    apart = {"keras", "tensorflow", "jax", "torch", "ray", "all", "test", "docs", "dev"}
    assert listed == set(extras) - apart


def test_wheels_are_tested_with_the_same_tools_on_ci_and_here():
    listed = PYPROJECT["tool"]["cibuildwheel"]["test-requires"]
    assert listed == list(tool("install_dist").TEST_TOOLS)


def test_every_example_is_run_by_a_test():
    tests = "".join(path.read_text() for path in (ROOT / "tests" / "examples").glob("*.py"))
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert len(examples) > 10
    assert not {name for name in examples if name not in tests}


TITLES = {
    "fix: keep the last partial batch when resuming mid-epoch": "",
    "feat: `from_files({...})` puts files side by side: rows are dicts": "",
    "docs: x" + "y" * 112: "",
    "docs: x" + "y" * 114: "at most 120 characters, and has 121",
    "chore: tidy up": "must begin with one of feat:, fix:",
    "Fix: keep the last batch": "must begin with",
    "fix:keep the last batch": "must begin with",
    "fix(keras): keep the last batch": "must begin with",
    "keep the last batch": "must begin with",
    "fix:  keep the last batch": "after one space",
    "fix: ": "there must be text",
    "fix: keep the last batch.": "without a full stop",
}


@pytest.mark.parametrize("title", TITLES)
def test_titles_of_commits_follow_the_rule(title):
    found = tool("check_titles").problem_of(title)
    assert TITLES[title] in found if TITLES[title] else found is None


def test_the_kinds_of_commits_are_those_of_the_guide():
    guide = (ROOT / "CONTRIBUTING.md").read_text().partition("## Commits")[2]
    sentence = guide.partition(":")[2].partition(".")[0]
    assert tuple(re.findall(r"`([a-z]+)`", sentence)) == tool("check_titles").KINDS


def test_a_wrong_title_in_a_repository_is_named(tmp_path):
    def git(*arguments):
        names = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
        subprocess.run(["git", *names, *arguments], cwd=tmp_path, check=True, capture_output=True)

    def check(commits):
        command = [sys.executable, str(ROOT / "tools" / "check_titles.py"), commits]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    git("init", "-q")
    for title in ("whatever it was", "fix: one", "two", "feat: three"):
        git("commit", "-q", "--allow-empty", "-m", title)
    code, printed = check("HEAD~3..HEAD")
    assert code == 1
    assert "'two': it must begin with" in printed
    assert printed.count("\n") == 1
    assert check("HEAD~1..HEAD") == (0, "1 titles, all as CONTRIBUTING.md has them\n")
    assert check("nowhere..HEAD")[0] == 2


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A project of a few files, with an sdist and a wheel of it that are right; returns the script and the folder."""
    script = tool("check_dist")
    root, dist = tmp_path / "project", tmp_path / "dist"
    monkeypatch.setattr(script, "ROOT", root)
    files = {*script.FILES.split(), "src/penstock/__init__.py", "src/penstock/core/a.py"}
    files |= {"docs/a.md", "tests/test_a.py", "examples/a.py", "tools/a.py"}
    for name in files:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text('__version__ = "1.2"\n')
    dist.mkdir()
    with tarfile.open(dist / "penstock-1.2.tar.gz", "w:gz") as archive:
        for name in sorted(files):
            archive.add(root / name, f"penstock-1.2/{name}")
    with zipfile.ZipFile(dist / "penstock-1.2-cp311-cp311-linux_x86_64.whl", "w") as archive:
        for name in ("__init__.py", "core/a.py", "_native.cpython-311-x86_64-linux-gnu.so"):
            archive.writestr(f"penstock/{name}", "")
        archive.writestr("penstock-1.2.dist-info/METADATA", "")
    (root / "src/penstock/__pycache__").mkdir()
    (root / "src/penstock/__pycache__/a.pyc").write_text("left behind by tools")
    return script, root, dist


def test_an_sdist_and_a_wheel_with_all_that_they_need_are_fine(made, capsys):
    script, _, dist = made
    assert script.main(str(dist)) == 0
    assert capsys.readouterr().out.endswith("all is there, and nothing else\n")


def test_what_is_missing_or_too_much_in_a_dist_is_named(made, capsys):
    script, root, dist = made
    (root / "src/penstock/new.py").write_text("")
    (root / "src/penstock/core/a.py").unlink()
    with zipfile.ZipFile(next(dist.glob("*.whl")), "a") as archive:
        archive.writestr("penstock/_native.cpython-312-x86_64-linux-gnu.so", "")
    assert script.main(str(dist)) == 1
    printed = capsys.readouterr().out
    for line in (
        "tar.gz: src/penstock/new.py is missing",
        "tar.gz: src/penstock/core/a.py should not be in it",
        "whl: penstock/new.py is missing",
        "whl: penstock/core/a.py should not be in it",
        "whl: it has 2 native modules instead of one",
    ):
        assert line in printed


def test_a_dist_of_another_version_is_named(made, capsys):
    script, root, dist = made
    (root / "src/penstock/__init__.py").write_text('__version__ = "1.3"\n')
    assert script.main(str(dist)) == 1
    assert "tar.gz: penstock.__version__ is 1.3" in capsys.readouterr().out
