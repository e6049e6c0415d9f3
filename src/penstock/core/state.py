"""Where a consumer stands in a dataset, as a small dict that JSON can hold."""

from dataclasses import dataclass, replace
from typing import Any, TypeGuard

from penstock.core.rows import Cursor
from penstock.errors import StateError

VERSION = 2
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
        if value.keys() != _KEYS or not (_is_count(epoch) and _is_count(element)):
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


def _is_count(value: Any) -> TypeGuard[int]:
    return type(value) is int and value >= 0
