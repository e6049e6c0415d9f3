"""What errors of from_arrays name instead of what is no array: typed in, it works."""

import array
import datetime as dt
import re
from collections import deque
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import torch

import penstock as ps


class Items(torch.utils.data.Dataset):  # type: ignore[type-arg]
    """A map-style Dataset of torch."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, row: int) -> Any:
        if row >= 3:
            raise IndexError(row)
        return np.full(2, row), row


class Stream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Any:
        return iter([1, 2])


WORKS: dict[str, tuple[Any, Any]] = {
    "a range": (range(3), [0, 1, 2]),
    "a deque": (deque([1, 2]), [1, 2]),
    "an array of Python": (array.array("i", [1, 2]), [1, 2]),
    "bytes in memory": (memoryview(b"ab"), [97, 98]),
    "bytes that change": (bytearray(b"ab"), [97, 98]),
    "bytes": (b"ab", [b"ab"]),
    "a set": ({2, 1}, [1, 2]),
    "keys": ({"a": 1}.keys(), ["a"]),
    "tensors of unlike lengths": (tf.ragged.constant([[1], [1, 2]]), [[1], [1, 2]]),
    "tf.data": (tf.data.Dataset.range(3), [0, 1, 2]),
    "tf.data of pairs": (tf.data.Dataset.from_tensor_slices(([1, 2], [3, 4])), [(1, 3), (2, 4)]),
    "a Dataset of torch": (Items(), [([0, 0], 0), ([1, 1], 1), ([2, 2], 2)]),
    "tensors of torch": (torch.utils.data.TensorDataset(torch.arange(2)), [(0,), (1,)]),
    "a stream of torch": (Stream(), [1, 2]),
    "dicts": ([{"a": 1, "b": "x"}, {"a": 2, "b": "y"}], [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    "lists": ([[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    "tuples of numbers": ([(1, 2), (3, 4)], [[1, 2], [3, 4]]),
    "tuples of unlike fields": ([(1, "a"), (2, "b")], [(1, "a"), (2, "b")]),
    "lists of unlike lengths": ([[1], [2, 3]], [[1], [2, 3]]),
    "lists of texts": ([["a"], ["b"]], [["a"], ["b"]]),
    "lists of texts of unlike lengths": ([["a"], ["b", "c"]], [["a"], ["b", "c"]]),
    "numbers and text": ([1, "a"], ["1", "a"]),
    "numbers of which some are missing": ([1, None], [1.0, np.nan]),
    "decimal numbers": ([Decimal("1.5")], [1.5]),
    "times": ([dt.datetime(2026, 1, 2, 3)], [dt.datetime(2026, 1, 2, 3)]),  # noqa: DTZ001
    "days": ([dt.date(2026, 1, 2)], [dt.date(2026, 1, 2)]),
    "tensors of a list": ([torch.zeros(2), torch.ones(2)], [[0, 0], [1, 1]]),
    "tensors of TensorFlow": ([tf.zeros(2), tf.ones(3)], [[0, 0], [1, 1, 1]]),
    "datasets": ([ps.from_arrays(np.arange(2)), ps.from_arrays(np.arange(1))], [0, 1, 0]),
}


def plain(row: Any) -> Any:
    """Return a row as lists and numbers of Python."""
    if isinstance(row, tuple):
        return tuple(map(plain, row))
    if isinstance(row, dict):
        return {key: plain(one) for key, one in row.items()}
    return row.tolist() if hasattr(row, "tolist") else row


@pytest.mark.parametrize("name", WORKS)
def test_what_is_named_works_when_it_is_typed_in(name: str) -> None:
    value, expected = WORKS[name]
    with pytest.raises(TypeError) as raised:
        ps.from_arrays(value)
    message = str(raised.value)
    found = re.search(
        r"(?:; write | is a list of one: |  right: )(.*?)(?:, or .*)?\.?$", message, re.MULTILINE
    )
    assert found is not None, message
    known = {"ps": ps, "np": np, "from_arrays": ps.from_arrays, "value": value, "rows": value}
    made = eval(found[1], known)  # As a user types it in.
    np.testing.assert_equal([plain(row) for row in made], expected)


def test_rows_of_dicts_come_from_a_generator_too() -> None:
    rows = [{"a": 1}, {"a": 2}]
    with pytest.raises(
        TypeError, match=r"or ps.from_generator\(lambda: rows, ps.spec_of\(rows\[0\]\)\)$"
    ):
        ps.from_arrays(rows)
    found = ps.from_generator(lambda: rows, ps.spec_of(rows[0]))
    assert [plain(row) for row in found] == rows


def test_arrays_of_an_npz_archive_are_named_with_the_file(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(2))
    with np.load(tmp_path / "a.npz") as value:
        with pytest.raises(
            TypeError, match=r"write from_arrays\(dict\(value\)\), or ps.from_files\(path\)"
        ):
            ps.from_arrays(value)
        assert [plain(row) for row in ps.from_arrays(dict(value))] == [{"x": 0}, {"x": 1}]


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ("x.npy", r"files are read by ps.from_files\('x.npy'\)\.$"),
        (Path("x.npy"), r"files are read by ps.from_files\('x.npy'\)\.$"),
        ([Path("x.npy"), Path("y.npy")], r"right: ps.from_files\(rows\)$"),
        ((one for one in ()), r"write ps.from_generator\(function, spec\)"),
        (lambda: iter([1]), r"write ps.from_generator\(function, spec\)"),
        (3, r"np.full\(num_rows, value\)"),
        (None, "got NoneType; leave it out"),
        (ps.from_arrays(np.arange(3)), r"is a dataset already: .* side by side by ps.zip\(a, b\)"),
        (torch.utils.data.DataLoader(Items()), r"\.batch\(32\)\.to_torch\(\) takes its place"),
        (object(), r"got object\.$"),
    ],
)
def test_other_things_are_named_with_what_reads_them(value: Any, cure: str) -> None:
    with pytest.raises(TypeError, match=rf"field 'value'.*(.|\n)*{cure}"):
        ps.from_arrays(value)


def test_a_stream_is_no_array() -> None:
    with (
        ps.from_arrays(np.arange(3)).stream() as stream,
        pytest.raises(TypeError, match=r"got Stream; give the arrays .* or go on with its dataset"),
    ):
        ps.from_arrays(stream)
