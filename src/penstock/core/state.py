"""Where a consumer stands in a dataset, as a small dict that JSON can hold."""

from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from penstock.core.parcels import Cursor
from penstock.core.rows import ENDLESS, Node, Rows
from penstock.errors import StateError

VERSION = 2
_MAX_EPOCH = 1 << 53  # Passes within an epoch are numbered, too, and all must fit into 64 bits.
_KEYS = {"version", "fingerprint", "epoch", "element", "cursor"}

StateDict = dict[str, Any]
"""What users save and give back: `State.to_dict()`."""


@dataclass(frozen=True, slots=True)
class State:
    """A place in the chain with this fingerprint: in `epoch`, after its first `element` elements."""

    fingerprint: str
    epoch: int
    element: int = 0
    cursor: Cursor = None
    """Where the last node of the chain stands; with random access, the number of the next row."""

    @property
    def at_end(self) -> "State":
        """The state after the last element of this epoch: the start of the next."""
        return State(self.fingerprint, self.epoch + 1)

    def after(self, count: int, num_elements: int) -> "State":
        """Return the state after `count` more elements, in this epoch and the next ones.

        For datasets with random access, of `num_elements` elements an epoch.
        """
        epochs, element = divmod(self.element + count, num_elements)
        return replace(self, epoch=self.epoch + epochs, element=element, cursor=element or None)

    def to_dict(self) -> StateDict:
        """Return the state as a dict that JSON can hold."""
        return {
            "version": VERSION,
            "fingerprint": self.fingerprint,
            "epoch": self.epoch,
            "element": self.element,
            "cursor": self.cursor,
        }

    @staticmethod
    def from_dict(value: Any) -> "State":
        """Return the state that a dict holds; raise a StateError if it holds none."""
        if not isinstance(value, dict) or not {"version", "fingerprint", "cursor"} <= value.keys():
            raise StateError(f"state must be a dict made by state(), got {value!r:.80}.")
        if value["version"] != VERSION:
            raise StateError(
                f"this state has version {value['version']!r}, and this penstock reads version {VERSION}; "
                "use the version of penstock that made it."
            )
        epoch, element = value.get("epoch"), value.get("element")
        if (
            value.keys() != _KEYS
            or not (_is_count(epoch) and _is_count(element))
            or epoch >= _MAX_EPOCH
        ):
            raise StateError(f"this state was changed since state() made it: {value!r:.200}.")
        return State(str(value["fingerprint"]), epoch, element, value["cursor"])

    def check(self, fingerprint: str) -> None:
        """Raise a StateError if this state belongs to a chain with another fingerprint."""
        if self.fingerprint != fingerprint:
            raise StateError(
                f"this state belongs to another pipeline: it has fingerprint {self.fingerprint}, "
                f"this dataset {fingerprint}. Rows, seeds, batch sizes and the order of the stages "
                "must be those of the run that saved it."
            )

    def check_place(self, node: Node) -> None:
        """Raise a StateError if a stream of this node can't have handed out that many elements, or stand there."""
        num_rows = None if node.num_rows == ENDLESS else node.num_rows
        problem = ""
        if num_rows is not None and self.element > num_rows:
            problem = f"it is after {self.element} elements, and an epoch has {num_rows}"
        elif self.element and self.cursor is None:
            problem = f"it is after {self.element} elements, and has no cursor"
        elif isinstance(node, Rows) and self.element != cursor_row(node, self.cursor, num_rows):
            problem = f"it is after {self.element} elements, and its cursor is {self.cursor}"
        if problem:
            raise StateError(f"this state was changed since state() made it: {problem}.")


def cursor_parts(
    node: Node, cursor: Cursor, first: tuple[Any, ...], *, most: tuple[int | None, ...] = ()
) -> tuple[Any, ...]:
    """Return the parts of a cursor; those of the first row if it is None. Raise a StateError if it can't be one.

    Each part is of the kind that it has in `first`: a count, a list, or, where that is None, whatever the input of the
    node says. `most` is how large counts may be, where that is known.
    """
    if cursor is None:
        return first
    if type(cursor) not in (list, tuple) or len(cursor) != len(first):
        raise wrong_cursor(node, cursor)
    for part, like, limit in zip(cursor, first, most or (None,) * len(first), strict=True):
        is_wrong = type(part) is not list if type(like) is list else not _is_count(part)
        if like is not None and (is_wrong or (limit is not None and part > limit)):
            raise wrong_cursor(node, cursor)
    return tuple(cursor)


def cursor_row(node: Node, cursor: Cursor, num_rows: int | None) -> int:
    """Return the row that a cursor which is a row number stands at; raise a StateError if there is no such row."""
    if cursor is None:
        return 0
    if not _is_count(cursor) or (num_rows is not None and cursor > num_rows):
        raise wrong_cursor(node, cursor)
    return cursor


def wrong_cursor(node: Node, cursor: Cursor) -> StateError:
    """Return the error for a cursor that a node can't have made."""
    return StateError(
        f"this state was changed since state() made it: {node.describe()} can't stand at {cursor!r:.80}."
    )


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < ENDLESS
