"""What tells one chain from another: its stages, and the files that it reads."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from penstock.core.rows import Node


def walk(node: Node) -> Iterator[Node]:
    """Yield the nodes of a chain, inputs first."""
    for child in node.inputs:
        yield from walk(child)
    yield node


def fingerprint(node: Node) -> str:
    """Return a short text that is the same for chains that give the same rows in the same order."""
    return _digest([item.fingerprint() for item in walk(node)])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def made_from(node: Node) -> dict[str, Any]:
    """Return what the rows of a chain are made from, as JSON: the stages, and the files with size and version.

    A function counts by its name alone: what it does can't be compared. Each stage is listed with its call as
    text, for messages, and with a digest of its fingerprint; only the digest is compared. The version of a file
    is the time of its last change, or its ETag.
    """
    files = []
    for item in walk(node):
        for location in item.locations:
            version = location.etag if location.mtime_ns is None else location.mtime_ns
            files.append([location.name, location.size, version])
    return {
        "fingerprint": fingerprint(node),
        "stages": [[item.describe(), _digest(item.fingerprint())] for item in walk(node)],
        "files": files,
    }


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return what is different between two results of `made_from`; '' if nothing is."""
    was, stages = list(before.get("stages", [])), now["stages"]
    if not all(isinstance(stage, list) for stage in was):
        return "it was made by another version of penstock"
    for number, (call, digest) in enumerate(stages):
        if number >= len(was):
            return f"stage {call} was added"
        if was[number][1] != digest:
            return f"it was made by {was[number][0]}, and the dataset now has {call}"
    if len(was) > len(stages):
        return f"stage {was[len(stages)][0]} is gone"
    old = {name: (size, version) for name, size, version in before.get("files", [])}
    for name, size, version in now["files"]:
        if name not in old:
            return f"file {name} was not among its inputs"
        if old[name][0] != size:
            return f"file {name} had {old[name][0]} bytes, and has {size} now"
        if old[name][1] != version:
            return f"file {name} was written to since"
    gone = old.keys() - {name for name, *_ in now["files"]}
    if gone:
        return f"file {min(gone)} is no longer among its inputs"
    if before.get("fingerprint") != now["fingerprint"]:
        return "the rows, seeds or arguments of its stages are different"
    return ""
