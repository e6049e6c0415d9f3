"""The rows of JSON Lines files with random access."""

from penstock.core.fields import Field
from penstock.sources.jsonl.flow import JsonFlow
from penstock.sources.jsonl.parsing import arrow
from penstock.sources.reading.parsed_rows import ParsedRows


class JsonRows(ParsedRows):
    """Rows of JSON Lines files, a field a key."""

    flow: JsonFlow
    text_copies = 6  # Pyarrow keeps all values as text before it converts them.

    def value_nbytes(self, field: Field, text_nbytes: int) -> int:
        """Return the most bytes that values of a field take in a block: a number in a list has two bytes of text."""
        return (
            text_nbytes
            if field.spec.is_text
            else field.spec.numpy_dtype.itemsize * text_nbytes // 2
        )

    def found_words(self) -> str:
        """Return what was found in the files, and who parses them."""
        by = "pyarrow" if arrow() is not None else "Python, since pyarrow is not installed"
        if self.flow.parser.plain.are_all:
            by = f"native code, and what is not plain by {by}"
        return f"{self.flow.found_words()}; parsed by {by}; "

    def notes(self) -> tuple[str, ...]:
        """Return how to read it faster."""
        if arrow() is not None or self.flow.parser.plain.are_all:
            return ()
        return (
            "pip install 'penstock[jsonl]' installs pyarrow, which parses JSON many times as fast.",
        )
