"""The code in the documentation works as it stands there, and prints what the pages say."""

import json
import os
import subprocess
import sys
import textwrap
from functools import cache
from pathlib import Path

import pytest
from tests.docs.blocks import FRAMEWORKS, PAGES, ROOT, Block, read_blocks
from tests.processes import QUIET

BLOCKS = {page: read_blocks(page) for page in PAGES}
# Its commands take files and a model, which test_command_line.py makes.
COMMANDS = ROOT / "docs" / "command_line.md"
RUN = [
    page
    for page, blocks in BLOCKS.items()
    if page != COMMANDS and any(one.is_script or one.is_shell for one in blocks)
]
MARKED = [block for blocks in BLOCKS.values() for block in blocks if block.mark]
# Pages of the site that are guides for a user with a problem; the others are references.
GUIDES = [
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *(
        ROOT / "docs" / f"{name}.md"
        for name in (
            "bad_files",
            "coming_from",
            "design",
            "distributed",
            "tables",
            "tfrecord",
            "training",
            "user_code",
        )
    ),
]


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def needs_frameworks(page: Path) -> bool:
    return any(block.is_script and block.imports & FRAMEWORKS for block in BLOCKS[page])


@cache
def results(*, with_frameworks: bool, folder: Path) -> dict[str, dict]:
    """Run all pages that need frameworks, or all that don't, in one process: frameworks take long to import."""
    pages = [page for page in RUN if needs_frameworks(page) is with_frameworks]
    found = folder / f"results-{with_frameworks}.jsonl"
    done = subprocess.run(
        [sys.executable, Path(__file__).parent / "run_pages.py", found, *pages],
        env=os.environ | QUIET | {"KERAS_BACKEND": "tensorflow"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    return {line["page"]: line for line in map(json.loads, found.read_text().splitlines())}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("pages")


@pytest.mark.parametrize("page", RUN, ids=name)
def test_the_code_of_a_page_runs_and_prints_what_the_page_says(page: Path, folder: Path):
    result = results(with_frameworks=needs_frameworks(page), folder=folder)[str(page)]
    assert not result["error"], result["error"]


@pytest.mark.parametrize("page", GUIDES, ids=name)
def test_a_guide_starts_with_a_problem_and_a_complete_script(page: Path):
    assert page in RUN
    first = BLOCKS[page][0]
    assert first.is_script, f"{name(page)}: the first block is no script"
    assert "penstock" in first.imports, f"{name(page)}: the script does not import penstock"
    words = " ".join(page.read_text().splitlines()[1 : first.line - 1]).split()
    assert 10 <= len(words) <= 220, f"{name(page)}: {len(words)} words before the script"


@pytest.mark.parametrize("page", BLOCKS, ids=name)
def test_every_block_is_run_or_says_why_not(page: Path):
    others = [
        f"line {block.line}: {block.language or 'no language'}"
        for block in BLOCKS[page]
        if not (block.is_doctest or block.is_script or block.is_shell or block.mark)
        and not block.is_output
    ]
    assert not others


def is_told(block: Block) -> bool:
    """Whether the reason that a block is not run holds."""
    kind, _, rest = block.mark.partition(": ")
    if kind == "excerpt of examples":
        code = (ROOT / "examples" / rest).read_text()
        return is_excerpt(block.text, code) and (ROOT / f"tests/examples/test_{rest}").is_file()
    if kind == "run by":
        scripts = [word for word in block.text.split() if word.startswith("examples/")]
        return Path(scripts[-1]).name in (ROOT / rest).read_text()  # The last one: others start it.
    return kind == "not run" and len(rest.split()) > 2


def is_excerpt(text: str, code: str) -> bool:
    """Whether lines follow each other in a script, at whatever depth; a line `...` leaves some out."""
    rest = [line.strip() for line in code.splitlines() if line.strip()]
    for piece in textwrap.dedent(text).split("\n...\n"):
        wanted = [line.strip() for line in piece.splitlines() if line.strip()]
        starts = [at for at in range(len(rest)) if rest[at : at + len(wanted)] == wanted]
        if not starts:
            return False
        rest = rest[starts[0] + len(wanted) :]
    return True


@pytest.mark.parametrize("block", MARKED, ids=lambda block: f"{block.page}:{block.line}")
def test_what_is_not_run_as_it_stands_is_run_elsewhere_or_cannot_be(block: Block):
    assert is_told(block), block.mark


def test_an_excerpt_is_told_from_lines_that_are_not_in_the_script():
    code = "import a\n\nif a:\n    b = 1\n    c = 2\nd = 3\n"
    assert is_excerpt("b = 1\nc = 2\n", code)
    assert is_excerpt("import a\n...\nd = 3\n", code)
    assert not is_excerpt("b = 1\nd = 3\n", code)
    assert not is_excerpt("d = 3\n...\nimport a\n", code)
