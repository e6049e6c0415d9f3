"""The code in pages of the documentation: what each block is, and where it stands."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```(\w*)$")
_MARK = re.compile(r"^<!-- (.*) -->$")
# Pages with a script that imports one of these are run together: to import them takes seconds.
FRAMEWORKS = {"grain", "jax", "keras", "lightning", "ray", "tensorflow", "torch", "transformers"}


@dataclass(frozen=True)
class Block:
    """One block of code, or of what the block before it prints."""

    page: str
    line: int
    """Of its first line of code, in the page."""
    language: str
    text: str
    mark: str
    """The comment in the line before it: why it is not run as it stands."""

    @property
    def is_doctest(self) -> bool:
        """Whether `make doctest` runs it."""
        return self.language == "python" and ">>> " in self.text

    @property
    def is_script(self) -> bool:
        return self.language == "python" and not self.is_doctest and not self.mark

    @property
    def is_shell(self) -> bool:
        return self.language == "sh" and not self.mark

    @property
    def is_output(self) -> bool:
        return self.language == "text" and not self.mark

    @property
    def imports(self) -> set[str]:
        return set(re.findall(r"^\s*(?:import|from) (\w+)", self.text, re.MULTILINE))


def read_blocks(path: Path) -> list[Block]:
    """Return the blocks of a page, in order."""
    blocks, start, before = [], None, ""
    lines = path.read_text().splitlines()
    for number, line in enumerate(lines):
        if start is not None:
            if line == "```":
                first, language, mark = start
                text = "\n".join(lines[first:number]) + "\n"
                name = str(path.relative_to(ROOT))
                blocks.append(Block(name, first + 1, language, text, mark))
                start = None
        elif found := _FENCE.match(line):
            mark = _MARK.match(before)
            start = (number + 1, found[1], mark[1] if mark else "")
        if line.strip():
            before = line
    assert start is None, f"{path}: a block that begins in line {start and start[0]} has no end"
    return blocks
