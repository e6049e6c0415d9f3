"""Going past batches without training on them: where a feed stands after the next so many."""

import itertools

from penstock.core.rows import Node
from penstock.core.state import State
from penstock.engine.stream import open_stream
from penstock.feeds.facts import has_random_access
from penstock.outlets import Outlets


def state_past(source: Outlets, begin: State, count: int) -> State:
    """Return the state `count` batches after `begin`, in its epoch and the next ones.

    With random access it follows from the number, and nothing is read. Else the batches are read, and dropped.
    """
    node = source.node
    if not count:
        return begin
    if has_random_access(node):
        if not node.num_rows:
            raise _none(node)
        return begin.after(count, node.num_rows)
    is_whole = False
    while True:
        with open_stream(node, source.options, state=begin.to_dict(), by_element=True) as stream:
            found = sum(1 for _ in itertools.islice(stream, count))
            count -= found
            if not count:
                there = stream.position
                # Whether that was the last one of its epoch, only the next one tells.
                return stream.position if next(stream, None) is None else there
            if is_whole and not found:
                raise _none(node)
            begin, is_whole = stream.position, True


def _none(node: Node) -> ValueError:
    return ValueError(f"there are no batches to skip: {node.describe()} gives none.")
