"""Rows that were left out because they are bad: `with_options(on_error="skip")`."""

import threading

SHOWN = 10  # Errors that are kept in words.


class Skipped:
    """Counts bad rows, and keeps what was wrong with the first few; any thread may add to it.

    A source or a stage whose rows can be bad becomes a flow under `on_error="skip"` (see
    `Node.with_errors`). It leaves the bad rows out of its parcels and adds the error of each here.
    What is lost together (a chunk, a file) is one error, and as many rows as are known to be in it.
    """

    def __init__(self, max_errors: int | None = None) -> None:
        self.max_errors = max_errors
        self.count = 0
        """Rows. What nobody can tell the number of counts as one."""
        self.num_errors = 0
        self.first: list[str] = []
        self._lock = threading.Lock()

    def add(self, error: Exception, num_rows: int = 1) -> None:
        """Count an error, and the rows it cost; raise it if there are more than `max_errors` by now."""
        with self._lock:
            self.count += num_rows
            self.num_errors += 1
            if len(self.first) < SHOWN:
                # The notes of a function's error are the user's own traceback.
                self.first.append("\n".join([str(error), *getattr(error, "__notes__", ())]))
            is_too_many = self.max_errors is not None and self.num_errors > self.max_errors
        if is_too_many:
            error.add_note(f"This one is more than max_errors={self.max_errors} allows.")
            raise error

    def add_rows(self, num_rows: int) -> None:
        """Count more rows that an error which was added before has cost."""
        with self._lock:
            self.count += num_rows
