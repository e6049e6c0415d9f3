"""Which files of a folder are meant, and what happens to those that can't be read."""

from dataclasses import dataclass

from penstock.errors import DataError, ReadError


@dataclass(frozen=True, slots=True)
class Selection:
    """Which files of a folder are meant: those ending in one of `suffixes`, or all."""

    suffixes: tuple[str, ...] = ()
    recursive: bool = False
    skipped: list[DataError] | None = None
    """Where the errors of files that can't be read go; None raises them."""

    def takes(self, name: str) -> bool:
        """Return whether a file of this name is meant."""
        return self.may_enter(name) and (not self.suffixes or name.lower().endswith(self.suffixes))

    def may_enter(self, name: str) -> bool:
        """Return whether the name is one of the user's: `.git`, `_SUCCESS` and the like are not."""
        return not name.startswith((".", "_"))

    def missed(self, error: DataError) -> None:
        """Raise the error of a file that can't be read, or keep it if such files are left out."""
        # Storage that fails is no bad file.
        if self.skipped is None or isinstance(error, ReadError):
            raise error
        self.skipped.append(error)

    def __str__(self) -> str:
        return f"files ending in {', '.join(self.suffixes)}" if self.suffixes else "files"
