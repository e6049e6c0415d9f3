"""The site is built without a warning, and a browser loads nothing for it from elsewhere."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.docs.blocks import PAGES, ROOT

# What a browser loads by itself, and the attribute that says from where; an <a href> is followed by the reader.
LOADS = {
    "audio": "src", "embed": "src", "iframe": "src", "img": "src", "link": "href", "object": "data", "script": "src",
    "source": "src", "video": "src",
}  # fmt: skip


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", folder],
        cwd=ROOT,
        env=os.environ
        | {"NO_MKDOCS_2_WARNING": "1"},  # Advertisement, which is no matter of these pages.
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    assert "WARNING" not in done.stderr
    return folder


def test_lists_and_tables_begin_after_an_empty_line():
    """GitHub sees them without one, MkDocs does not."""
    lost = []
    for page in PAGES:
        text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for match in re.finditer(r"^(?![-|#\s]|\d+\. ).+\n(- |\d+\. |\|).*", text, re.MULTILINE):
            lost.append(f"{page.name}: {match[0]}")
    assert not lost


class Loaded(HTMLParser):
    """Collects what a page loads."""

    def __init__(self):
        super().__init__()
        self.urls = []

    def handle_starttag(self, tag, attrs):
        found = dict(attrs).get(LOADS.get(tag, ""))
        if found:
            self.urls.append(found)


def loads(text: str) -> list[str]:
    page = Loaded()
    page.feed(text)
    return page.urls


def test_pages_load_nothing_from_elsewhere(site: Path):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    foreign = {
        f"{page.relative_to(site)}: {url}"
        for page in pages
        for url in loads(page.read_text())
        if re.match(r"(\w+:)?//", url)
    }
    assert not foreign


def test_styles_load_nothing_from_elsewhere(site: Path):
    styles = list(site.rglob("*.css"))
    assert styles
    assert not [
        style
        for style in styles
        if re.search(r"(url\(|@import )['\"]?(https?:)?//", style.read_text())
    ]


def test_a_foreign_script_would_be_noticed():
    assert loads('<p><script async src="https://example.com/x.js"></script>') == [
        "https://example.com/x.js"
    ]


def test_the_pages_have_the_readme_the_examples_and_the_docstrings(site: Path):
    assert "A first pipeline" in (site / "index.html").read_text()
    assert "DistributedDataParallel" in (site / "examples" / "torch_ddp.html").read_text()
    reference = (site / "reference" / "dataset.html").read_text()
    assert 'id="penstock.Dataset.shuffle"' in reference
    assert "&gt;&gt;&gt; " not in re.sub(r"<code.*?</code>", "", reference, flags=re.DOTALL)
