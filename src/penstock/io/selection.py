"""Which files of a folder to take, and what to do with bad ones."""

import re
from dataclasses import dataclass

from penstock.errors import DataError, ReadError

_BRACES = re.compile(r"\*?\{[^{}/]*\}\*?")


def braces_cure(path: str) -> str:
    """Return what to write instead of a path with braces, as a shell and webdataset expand them; '' if it has none.

    >>> braces_cure("train-{000..099}.tar")
    "Braces are no pattern: write 'train-*.tar', or a list of the files."
    """
    pattern = _BRACES.sub("*", path)
    if pattern == path:
        return ""
    return f"Braces are no pattern: write {pattern!r}, or a list of the files."


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a folder to take: those ending in one of `suffixes`, or all."""

    suffixes: tuple[str, ...] = ()
    recursive: bool = False
    skipped: list[DataError] | None = None
    """A list for the errors of bad files, which are skipped; None: their errors are raised."""

    def takes(self, name: str) -> bool:
        """Return whether to take a file of this name."""
        return self.may_enter(name) and (not self.suffixes or name.lower().endswith(self.suffixes))

    def may_enter(self, name: str) -> bool:
        """Return whether the name may be that of data: `.git`, `_SUCCESS` and the like are not."""
        return not name.startswith((".", "_"))

    def missed(self, error: DataError) -> None:
        """Raise the error of a bad file, or add it to `skipped` if bad files are skipped."""
        # A ReadError says that the storage failed, not that the file is bad.
        if self.skipped is None or isinstance(error, ReadError):
            raise error
        self.skipped.append(error)

    def __str__(self) -> str:
        return f"files ending in {', '.join(self.suffixes)}" if self.suffixes else "files"
