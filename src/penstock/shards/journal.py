"""The journal of a folder that is being filled: what it is made from, and which files were begun and finished.

A line of JSON each: first what the folder is made from, then {"begins": [names]} before the files of a shard are made,
and the shard itself once they are on disk. So every file of ours is listed before it exists, and no other file is ever
taken for one of ours.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from penstock.io.atomic import atomic_file
from penstock.shards.manifest import shard_from_json, shard_to_json
from penstock.shards.writing import ShardRecord

NAME = ".unfinished.jsonl"


@dataclass(slots=True)
class Journal:
    """What a journal says."""

    head: dict[str, Any]
    """What the folder is made from."""
    finished: dict[int, ShardRecord] = field(default_factory=dict)
    cursors: dict[int, Any] = field(default_factory=dict)
    """Where the input stood after each finished shard."""
    names: set[str] = field(default_factory=set)
    """The names of all files that were begun, finished or not."""

    def line(self, number: int) -> str:
        """Return the line of a finished shard."""
        shard = shard_to_json(self.finished[number])
        return json.dumps({"shard": number, "cursor": self.cursors[number], **shard}) + "\n"

    def write(self, folder: Path) -> None:
        """Write the journal anew, in one step."""
        with atomic_file(folder / NAME, replace=True) as file:
            file.write((json.dumps(self.head) + "\n").encode())
            for number in self.finished:
                file.write(self.line(number).encode())


def begin_line(names: Iterable[str]) -> str:
    """Return the line that is written before files are made."""
    return json.dumps({"begins": list(names)}) + "\n"


def read_journal(folder: Path) -> Journal | None:
    """Return the journal of a folder, up to a line that is cut off; None if it has none of ours."""
    try:
        text = (folder / NAME).read_text()
    except (OSError, ValueError):
        return None
    journal: Journal | None = None
    try:
        for line in text.splitlines():
            value = json.loads(line)
            if journal is None:
                if not isinstance(value, dict) or not isinstance(value.get("made_from"), dict):
                    return None
                journal = Journal(value)
            elif "begins" in value:
                journal.names.update(map(str, value["begins"]))
            else:
                number = int(value["shard"])
                journal.finished[number] = shard_from_json(value)
                journal.cursors[number] = value["cursor"]
                journal.names.update(journal.finished[number].files)
    except (ValueError, KeyError, TypeError, AttributeError):
        pass
    return journal
