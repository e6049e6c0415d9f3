"""The rows of CSV files with random access."""

from penstock.sources.csv.flow import CsvFlow
from penstock.sources.csv.parsing import arrow
from penstock.sources.reading.parsed_rows import ParsedRows


class CsvRows(ParsedRows):
    """Rows of CSV files, a field a column."""

    flow: CsvFlow

    def names_of_fields(self) -> list[str]:
        """Return the names of the columns that the fields are, and what else their values depend on."""
        return [*self.flow.names, *self.flow.table.unusual()]

    def found_words(self) -> str:
        """Return what was found in the files, and who parses them."""
        by = "pyarrow" if arrow() is not None else "Python, since pyarrow is not installed"
        return f"{self.flow.found_words()}; parsed by {by}; "

    def notes(self) -> tuple[str, ...]:
        """Return how to read it faster."""
        if arrow() is not None:
            return ()
        return (
            "pip install 'penstock[csv]' installs pyarrow, which parses CSV many times as fast.",
        )
