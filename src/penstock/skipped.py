"""Rows that were left out because they are bad: `with_options(on_error="skip")`."""

import threading

SHOWN = 10  # Errors that are kept in words.


class Skipped:
    """Counts bad rows, and keeps what was wrong with the first few; any thread may add to it.

    A source or a stage whose rows can be bad becomes a flow under `on_error="skip"` (see
    `Node.with_errors`). It leaves the bad rows out of its parcels and adds the error of each here.
    """

    def __init__(self, max_errors: int | None = None) -> None:
        self.max_errors = max_errors
        self.count = 0
        self.first: list[str] = []
        self._lock = threading.Lock()

    def add(self, error: Exception) -> None:
        """Count one bad row; raise its error if there are more than `max_errors` by now."""
        with self._lock:
            self.count += 1
            if len(self.first) < SHOWN:
                # The notes of a function's error are the user's own traceback.
                self.first.append("\n".join([str(error), *getattr(error, "__notes__", ())]))
            is_too_many = self.max_errors is not None and self.count > self.max_errors
        if is_too_many:
            error.add_note(f"This one is more than max_errors={self.max_errors} allows.")
            raise error
