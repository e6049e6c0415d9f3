"""What MkDocs is told besides mkdocs.yml: pages that lie outside of docs/, and the links to them.

Links in the documentation are those that work on GitHub, from file to file of the repository. Here they become links of
the site: README.md is its first page, and a script of examples/ is a page with its code.
"""

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
# Files of the repository that are pages of the site, and where.
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "benchmarks/README.md": "benchmarks.md",
} | {
    f"examples/{script.name}": f"examples/{script.stem}.md"
    for script in sorted((ROOT / "examples").glob("*.py"))
}
_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"^( *)```.*?^\1```$", re.MULTILINE | re.DOTALL)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that lie outside of docs/."""
    for source, page in PAGES.items():
        text = (ROOT / source).read_text()
        if source.endswith(".py"):
            text = f"# {source}\n\n```python\n{text}```\n"
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Point links to where their files are on the site; code is left alone."""
    place = page.file.src_uri
    source = _SOURCES.get(place, f"docs/{place}")
    if source.endswith(".py"):
        return markdown

    def pointed(link: re.Match[str]) -> str:
        before, target, after = link.groups()
        if "://" in target or target.startswith("mailto:"):
            return link[0]
        return f"{before}{_on_site(source, place, target)}{after}"

    pieces, end = [], 0
    for fence in _FENCE.finditer(markdown):
        pieces += [_LINK.sub(pointed, markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join(pieces) + _LINK.sub(pointed, markdown[end:])


def _on_site(source: str, place: str, target: str) -> str:
    """Return the link of the site, from the page at `place`, for one of a file of the repository."""
    found = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
    if found.startswith("docs/"):
        found = found.removeprefix("docs/")
    elif found in PAGES:
        found = PAGES[found]
    else:
        raise PluginError(f"{source} links to {target}, which is no page of the site.")
    return posixpath.relpath(found, posixpath.dirname(place) or ".")
