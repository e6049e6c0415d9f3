"""Links of the documentation lead somewhere on GitHub: to a file of the repository, and to a heading of it."""

import re
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT

LINKING = [
    *PAGES,
    *(ROOT / one for one in ("CHANGELOG.md", "CONTRIBUTING.md", "benchmarks/README.md")),
]
_LINK = re.compile(r"\]\(([^)\s#]*)(?:#([^)\s]*))?\)")
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(path: Path) -> set[str]:
    """Return what GitHub calls the headings of a page."""
    text = _FENCED.sub("", path.read_text())
    found = set()
    for heading in re.findall(r"^#+ (.*)$", text, re.MULTILINE):
        plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        found.add(re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-"))
    return found


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_file_and_a_heading(page: Path):
    lost = []
    for target, anchor in _LINK.findall(_FENCED.sub("", page.read_text())):
        if "://" in target:
            continue
        found = (page.parent / target).resolve() if target else page
        if not found.exists() or (anchor and anchor not in anchors(found)):
            lost.append(f"{target}#{anchor}")
    assert not lost


def test_the_page_of_examples_has_all_of_them():
    page = (ROOT / "docs" / "examples.md").read_text()
    scripts = [path.name for path in (ROOT / "examples").glob("*.py")]
    assert scripts
    assert not [name for name in scripts if f"](../examples/{name})" not in page]


def test_links_are_found_at_all():
    links = [link for page in LINKING for link in _LINK.findall(page.read_text())]
    assert len(links) > 100
