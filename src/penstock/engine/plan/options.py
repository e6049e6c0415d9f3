"""What `with_options` and `prefetch` set: how a dataset runs, never what comes out of it."""

import os
from dataclasses import dataclass, fields
from typing import Any

from penstock.core.arguments import whole_number
from penstock.memory import parse_nbytes


@dataclass(frozen=True, slots=True)
class Options:
    """How a dataset is run; None leaves a value to penstock."""

    memory: int | None = None
    threads: int | None = None
    prefetch: int | None = None
    scratch: str | None = None
    processes: int | None = None
    retries: int | None = None
    on_error: str | None = None
    max_errors: int | None = None
    remote_cache: int | None = None
    watch: bool | None = None

    @staticmethod
    def checked(
        *,
        memory: int | str | None = None,
        threads: int | None = None,
        prefetch: int | None = None,
        scratch: str | os.PathLike[str] | None = None,
        processes: int | None = None,
        retries: int | None = None,
        on_error: str | None = None,
        max_errors: int | None = None,
        remote_cache: int | str | None = None,
        watch: bool | None = None,
    ) -> "Options":
        """Return options, or raise with the rule that one of them breaks."""
        if on_error not in (None, "raise", "skip"):
            raise ValueError(f'on_error must be "raise" or "skip", got {on_error!r}.')
        if watch not in (None, True, False):
            raise ValueError(
                f"watch is True to show a live page of what is read, or False, got {watch!r}."
            )
        return Options(
            None if memory is None else parse_nbytes(memory),
            None if threads is None else whole_number("threads", threads, least=0),
            None if prefetch is None else whole_number("prefetch", prefetch, least=-1),
            None if scratch is None else _folder(scratch),
            None if processes is None else whole_number("processes", processes, least=0),
            None if retries is None else whole_number("retries", retries, least=0),
            on_error,
            None if max_errors is None else whole_number("max_errors", max_errors, least=0),
            None if remote_cache is None else _cache_nbytes(remote_cache),
            watch,
        )

    @property
    def depth(self) -> int | None:
        """How many batches are made ahead, if that was set; -1 takes back what was set before."""
        return None if self.prefetch == -1 else self.prefetch

    def updated(self, other: "Options") -> "Options":
        """Return these options with what `other` sets on top."""
        values = {name: _last(getattr(self, name), getattr(other, name)) for name in _NAMES}
        return Options(**values)

    def joined(self, other: "Options") -> "Options":
        """Return the options of two datasets that are combined; raise where they contradict."""
        for name in _NAMES:
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                raise ValueError(
                    f"datasets that are combined must agree in their options, got {name}={mine} and "
                    f"{name}={theirs}; set it after combining them instead."
                )
        return self.updated(other)


def _cache_nbytes(size: int | str) -> int:
    """Return the bytes of the cache; 0 is none."""
    is_none = size == 0 and not isinstance(size, bool)
    try:
        return 0 if is_none or size == "0" else parse_nbytes(size)
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"remote_cache is the bytes to keep on disk, 0 for none: {error}"
        ) from None


def _folder(path: str | os.PathLike[str]) -> str:
    if not os.path.isdir(path):  # noqa: PTH112  # Path.is_dir raises for a name that is too long.
        raise ValueError(f"scratch must be a folder that exists, got {os.fspath(path)!r}.")
    return os.fspath(path)


def _last(mine: Any, theirs: Any) -> Any:
    return mine if theirs is None else theirs


_NAMES = tuple(field.name for field in fields(Options))
