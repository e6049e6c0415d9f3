"""Check titles of commits by the rule of CONTRIBUTING.md: python tools/check_titles.py main..HEAD."""

import re
import subprocess
import sys

KINDS = ("feat", "fix", "perf", "docs", "test", "build", "refactor")
MOST_CHARACTERS = 120


def problem_of(title: str) -> str | None:
    """Return what is wrong with a title; None if nothing is."""
    kind, colon, text = title.partition(": ")
    if not colon or kind not in KINDS:
        return f"it must begin with one of {', '.join(f'{one}:' for one in KINDS)} and a space"
    if not re.match(r"\S", text) or text != text.rstrip():
        return "there must be text after one space, and no space at the end"
    if text.endswith((".", "!")):
        return "it must end without a full stop"
    if len(title) > MOST_CHARACTERS:
        return f"it must have at most {MOST_CHARACTERS} characters, and has {len(title)}"
    return None


def main(commits: str) -> int:
    """Print each title that is wrong; return 1 if one is. Merges have no title of their own."""
    command = ["git", "log", "--no-merges", "--format=%h %s", commits, "--"]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if found.returncode:
        return 2  # Git has said why.
    titles = [line.split(" ", 1) for line in found.stdout.splitlines()]
    wrong = [(commit, title, why) for commit, title in titles if (why := problem_of(title))]
    for commit, title, why in wrong:
        print(f"{commit} {title!r}: {why}. Cure: git rebase -i, and reword it.")
    if not wrong:
        print(f"{len(titles)} titles, all as CONTRIBUTING.md has them")
    return min(1, len(wrong))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/check_titles.py FIRST..LAST")
    sys.exit(main(sys.argv[1]))
