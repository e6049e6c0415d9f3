"""The journal of a folder that is being filled: what it is made from, and which files were begun and finished.

A line of JSON each: first what the folder is made from, then {"begins": [names]} before the files of a shard are made,
and the shard itself, with a checksum of the line, once they are on disk. So every file of ours is listed before it
exists, and no other file is ever taken for one of ours.
"""

import contextlib
import json
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.io.atomic import atomic_file
from penstock.io.local.whole_file import read_whole
from penstock.shards.layout import check_names
from penstock.shards.manifest import MAX_NBYTES, shard_from_json, shard_to_json
from penstock.shards.writing import ShardRecord

NAME = ".unfinished.jsonl"
Head = dict[str, Any]
"""What the rows of a folder are, and what they are made from, as JSON."""


@dataclass(slots=True)
class Journal:
    """What a journal says."""

    head: Head
    finished: dict[int, ShardRecord] = field(default_factory=dict)
    cursors: dict[int, Any] = field(default_factory=dict)
    """Where the input stood after each finished shard."""
    names: set[str] = field(default_factory=set)
    """The names of all files that were begun, finished or not."""

    def line(self, number: int) -> str:
        """Return the line of a finished shard."""
        shard = shard_to_json(self.finished[number])
        value = {"shard": number, "cursor": self.cursors[number], **shard}
        return json.dumps(value | {"crc32": _checksum(value)}) + "\n"

    def take(self, value: Any) -> None:
        """Take in a line; raises KeyError, TypeError, ValueError or AttributeError if it is none of ours."""
        if "begins" in value:
            check_names(value["begins"], self.head["fields"])
            self.names.update(value["begins"])
            return
        if value.pop("crc32") != _checksum(value):
            raise ValueError("it was changed since it was written")
        number = value["shard"]
        if type(number) is not int or number < 0:
            raise ValueError(f"a shard has the number {number!r:.50}")
        shard = shard_from_json(value)
        check_names(shard.files, self.head["fields"])
        self.names.update(shard.files)
        self.cursors[number] = value["cursor"]
        self.finished[number] = shard

    def write(self, folder: Path) -> None:
        """Write the journal anew, in one step."""
        with atomic_file(folder / NAME, replace=True) as file:
            file.write((json.dumps(self.head) + "\n").encode())
            file.write(begin_line(sorted(self.names)).encode())
            for number in self.finished:
                file.write(self.line(number).encode())


class Journalled:
    """A folder that is being filled, as its journal tells it."""

    _journal: Journal

    @property
    def head(self) -> Head:
        """What the rows are, and what they are made from."""
        return self._journal.head

    @property
    def finished(self) -> dict[int, ShardRecord]:
        """The finished shards, by number."""
        return self._journal.finished

    @property
    def cursors(self) -> dict[int, Any]:
        """Where the input stood after each finished shard."""
        return self._journal.cursors


def _checksum(value: dict[str, Any]) -> str:
    # A cursor that was changed would lead to other rows, and none at all to too few.
    return f"{zlib.crc32(json.dumps(value).encode()):08x}"


def begin_line(names: Iterable[str]) -> str:
    """Return the line that is written before files are made."""
    return json.dumps({"begins": list(names)}) + "\n"


def read_journal(folder: Path) -> Journal | None:
    """Return the journal of a folder, without lines that are cut off or damaged; None if it has none of ours."""
    try:
        text = read_whole(folder / NAME, most=MAX_NBYTES)
    except (OSError, ValueError):  # ValueError: a path with a null byte in it.
        return None
    return parse_journal(text)


def parse_journal(text: bytes) -> Journal | None:
    """Return the journal that a text holds, without lines that are cut off or damaged; None if it is none of ours."""
    first, *lines = text.split(b"\n")
    try:
        head = json.loads(first)
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or not isinstance(head.get("made_from"), dict):
        return None
    journal = Journal(head)
    for line in lines:
        # A line that is cut off is one that was never finished, and neither was its shard.
        with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, RecursionError):
            journal.take(json.loads(line))
    return journal
