"""docs/coming_from.md names all that users of tf.data and PyTorch know."""

import inspect
import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "coming_from.md").read_text()


def known(heading: str) -> set[str]:
    """The names in the first column of the tables below a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| ")]
    return {name for row in rows for name in re.findall(r"`([\w.]+)`", row)}


def test_every_method_of_a_tf_data_dataset_is_in_the_table():
    tf = pytest.importorskip("tensorflow")
    methods = {name for name in dir(tf.data.Dataset) if not name.startswith("_")}
    assert methods - known("tf.data.Dataset") == set()


def test_every_argument_and_sampler_of_torch_is_in_the_table():
    data = pytest.importorskip("torch").utils.data
    arguments = set(inspect.signature(data.DataLoader.__init__).parameters) - {"self"}
    samplers = {name for name in data.__all__ if name.endswith(("Sampler", "Dataset"))}
    samplers |= {"random_split", "get_worker_info", "default_collate", "default_convert"}
    samplers -= {"Dataset"}  # The first argument of a DataLoader.
    assert (arguments | samplers) - known("torch.utils.data") == set()


def test_each_table_has_as_many_columns_in_every_row():
    for table in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE):
        counts = {line.count("|") for line in table.splitlines()}
        assert len(counts) == 1, table[:200]
