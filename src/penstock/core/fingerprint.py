"""What tells one chain from another: its stages, and the files that it reads."""

import hashlib
import json
from collections.abc import Hashable, Iterator
from typing import Any

from penstock.core.evidence import FUNCTION, Unproven
from penstock.core.rows import Node


def walk(node: Node) -> Iterator[Node]:
    """Yield the nodes of a chain, inputs first."""
    for child in node.inputs:
        yield from walk(child)
    yield node


def declared(node: Node) -> Iterator[Node]:
    """Yield the nodes of a chain as it was declared, inputs first: all ranks of a distributed chain have the same."""
    for child in node.inputs if node.declared is None else (node.declared,):
        yield from declared(child)
    yield node


def lineage(node: Node) -> tuple[Hashable, ...]:
    """Return what the rows of a chain are made from, in this process: equal only if they surely are the same rows."""
    parts: list[Hashable] = []
    for item in declared(node):
        parts.append(json.dumps(item.fingerprint(), sort_keys=True))
        function = getattr(getattr(item, "stage", None), "function", None)
        if function is not None:
            parts.append(id(function.function))
        if not item.inputs:
            try:
                files = tuple(str([one.name, *one.identity()]) for one in item.locations)
            except Unproven:
                files = ()
            parts.append(files or id(item))
    return tuple(parts)


def fingerprint(node: Node) -> str:
    """Return a short text that is the same for chains that give the same rows in the same order."""
    found = (item.fingerprint() for item in declared(node))
    return _digest([one for one in found if one is not None])


def _digest(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def made_from(node: Node, *, key: str | None = None, run: str | None = None) -> dict[str, Any]:
    """Return what the rows of a chain are made from, as JSON: the stages, and what proves each input.

    Each stage is listed with its call as text, for messages, and with a digest of its fingerprint; only the digest
    is compared. Each input is listed as [what it is, what is compared, why nothing can be]. This reads arrays in
    memory. A `key` stands for the user's functions, and for all that can't be compared; `run` for this very chain.
    """
    inputs = []
    for item in declared(node):
        for one in item.evidence():
            if key is not None and one.kind == "code":
                continue
            found, why = one.found()
            if found is not None or key is None:
                inputs.append([one.what, found, why])
    return {
        "fingerprint": fingerprint(node),
        "stages": [[item.describe(), _digest(item.fingerprint())] for item in declared(node)],
        "inputs": inputs,
        "key": key,
        "run": run,
    }


def doubts(made: dict[str, Any]) -> str:
    """Return the first input that another run can't compare with its own; '' if all can be."""
    for what, found, why in made["inputs"]:
        if found is None:
            return _doubt(what, why)
    return ""


def doubtful_code(node: Node) -> str:
    """Return the first function that another run can't compare with its own; '' if all can be. Reads no array."""
    for item in declared(node):
        for one in item.evidence():
            why = one.found()[1] if one.kind == "code" else ""
            if why:
                return _doubt(one.what, why)
    return ""


def _doubt(what: str, why: str) -> str:
    return f"{what} can't be compared: {why}"


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Return what is different between two results of `made_from`, or can't be compared; '' if all is the same."""
    try:
        return _changes(before, now)
    except (TypeError, ValueError, LookupError, AttributeError):
        return "what is noted there of its inputs was changed, or comes from another version of penstock"


def _changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    was, stages = list(before.get("stages", [])), now["stages"]
    if "inputs" not in before or not all(isinstance(stage, list) for stage in was):
        return "it was made by another version of penstock"
    if before.get("key") != now["key"]:
        return f"it was made with key={before.get('key')!r}, and the dataset now has key={now['key']!r}"
    for number, (call, digest) in enumerate(stages):
        if number >= len(was):
            return f"stage {call} was added"
        if was[number][1] != digest:
            return f"it was made by {was[number][0]}, and the dataset now has {call}"
    if len(was) > len(stages):
        return f"stage {was[len(stages)][0]} is gone"
    is_same_run = now["run"] is not None and before.get("run") == now["run"]
    change = _changed_input(before["inputs"], now["inputs"], is_same_run=is_same_run)
    if not change and before.get("fingerprint") != now["fingerprint"]:
        return "the rows, seeds or arguments of its stages are different"
    return change


def _changed_input(old: list[Any], new: list[Any], *, is_same_run: bool) -> str:
    names, now = [one[0] for one in old], [one[0] for one in new]
    if names != now:
        added, gone = set(now) - set(names), set(names) - set(now)
        if added:
            return f"{min(added)} was not among its inputs"
        return f"{min(gone)} is no longer among its inputs" if gone else "its inputs are others"
    for (what, was, _), (_, found, why) in zip(old, new, strict=True):
        if was is None or found is None:
            if not (is_same_run and was is found):
                return _doubt(what, why or "it could not be when that was written")
        elif was != found and not (is_same_run and what.startswith(FUNCTION)):
            return _words(what, was, found)
    return ""


def _words(what: str, was: Any, found: Any) -> str:
    if not what.startswith("file "):
        return f"{what} is not what it was"
    if was[0] != found[0]:
        return f"{what} had {was[0]} bytes, and has {found[0]} now"
    return f"{what} was written to since"
