"""Bad rows that were skipped under `with_options(on_error="skip")`."""

import threading

SHOWN = 10  # How many errors are kept as text.
_MOST_FILES = 1000  # How many files are kept by name: the first ones.


class Tally:
    """Counts bad rows, and keeps the text of the first few errors; any thread may add to it.

    A source or a stage whose rows can be bad becomes a flow under `on_error="skip"` (see
    `Node.with_errors`). Its parcels skip the bad rows, and it adds the error of each here. Rows that are
    lost together (a chunk, a file) are one error, which counts as many rows as are known to be lost.
    """

    def __init__(self, max_errors: int | None = None) -> None:
        self.max_errors = max_errors
        self.count = 0
        """Rows that were skipped. An error that costs an unknown number of rows counts as one row."""
        self.num_errors = 0
        self.first: list[str] = []
        self.files: dict[str, int] = {}
        """How many rows of each file were skipped, for errors that have a file."""
        self._lock = threading.Lock()

    def add(self, error: Exception, num_rows: int = 1) -> None:
        """Count an error and the rows it cost; raise it if there are now more than `max_errors` errors."""
        with self._lock:
            self.count += num_rows
            self.num_errors += 1
            file = getattr(error, "file", "")
            if file and (file in self.files or len(self.files) < _MOST_FILES):
                self.files[file] = self.files.get(file, 0) + num_rows
            if len(self.first) < SHOWN:
                # The notes of a function's error are the user's own traceback.
                self.first.append("\n".join([str(error), *getattr(error, "__notes__", ())]))
            is_too_many = self.max_errors is not None and self.num_errors > self.max_errors
        if is_too_many:
            error.add_note(f"This one is more than max_errors={self.max_errors} allows.")
            raise error

    def add_rows(self, error: Exception, num_rows: int) -> None:
        """Count more rows for an error that was added before."""
        file = getattr(error, "file", "")
        with self._lock:
            self.count += num_rows
            if file in self.files:
                self.files[file] += num_rows
