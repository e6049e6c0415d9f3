"""Raw binary files: nothing but rows."""

from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from tests.sources.formats import Columns, FormatSuite

import penstock as ps
from penstock.errors import DataError


class TestRaw(FormatSuite):
    suffix = ".bin"
    options: ClassVar[dict[str, Any]] = {"format": "raw", "spec": ps.ArraySpec((4,), "f4")}

    def write(self, path: Path, columns: Columns) -> None:
        columns[""].tofile(path)

    def columns(self, num_rows: int, start: int = 0) -> Columns:
        return {"": (np.arange(start, start + num_rows)[:, None] * 10 + np.arange(4)).astype("f4")}

    def test_a_file_that_is_cut_short_is_an_error(self, tmp_path: Path) -> None:
        self.write(tmp_path / "a.bin", self.columns(10))
        data = (tmp_path / "a.bin").read_bytes()
        (tmp_path / "a.bin").write_bytes(data[:-1])
        with pytest.raises(
            DataError, match=r"159 bytes, which is not a whole number of rows of 16"
        ):
            self.open(tmp_path / "a.bin")

    def test_files_of_other_dtypes_are_refused_by_name(self, tmp_path: Path) -> None:
        """They can't be told: there is no header."""


def test_it_needs_the_spec_of_its_rows(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"1234")
    for spec in (
        None,
        ps.ArraySpec((None,), "f4"),
        ps.ArraySpec((), str),
        ps.ArraySpec((0,), "f4"),
    ):
        with pytest.raises(ValueError, match=r"needs the spec of its rows.*\n.*right:"):
            ps.from_files(tmp_path / "a.bin", spec=spec)
