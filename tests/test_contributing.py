"""CONTRIBUTING.md tells the truth: the format and the stage that it adds work as they stand there."""

import re
import struct
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from tests.conformance import run
from tests.stages.conformance import INPUTS, ROWS, Case, StageConformance

import penstock as ps
from penstock.engine.plan import Options
from penstock.io.paths import expand
from penstock.sources.reading.parts import Request

TEXT = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text()


def module(first_line: str) -> ModuleType:
    """The example that starts with this line, as if it were a file of the library."""
    (code,) = [
        block
        for block in re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
        if first_line in block
    ]
    made = ModuleType("example")
    exec(compile(code, "CONTRIBUTING.md", "exec"), made.__dict__)
    return made


IDX, STUTTER = module('"""IDX files'), module('"""stutter')


def write(path: Path, array: np.ndarray) -> None:
    code = {dtype: code for code, dtype in IDX._DTYPES.items()}[array.dtype.str.lstrip("|")]
    head = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    path.write_bytes(head + array.tobytes())


@pytest.mark.parametrize("dtype", ["u1", ">i2", ">f4", ">f8"])
def test_the_format_reads_shuffles_and_batches(dtype: str, tmp_path: Path):
    x = np.arange(5000 * 6).reshape(5000, 2, 3).astype(dtype)
    write(tmp_path / "a.idx", x[:3000])
    write(tmp_path / "b.idx", x[3000:])
    ds = ps.Dataset(IDX.open_format(expand(tmp_path), Request()), Options())
    assert np.array_equal(np.stack(run(ds)), x)
    shuffled = np.concatenate(run(ds.shuffle(seed=1).batch(64)))
    assert np.array_equal(np.sort(shuffled, axis=0), np.sort(x, axis=0))


@pytest.mark.parametrize("cut", [0, 3, 9, 40])
def test_the_format_refuses_what_is_cut_off(cut: int, tmp_path: Path):
    write(tmp_path / "a.idx", np.zeros((10, 5), "u1"))
    data = (tmp_path / "a.idx").read_bytes()
    (tmp_path / "a.idx").write_bytes(data[:cut])
    with pytest.raises(ps.DataError, match=r"a\.idx"):
        IDX.open_format(expand(tmp_path / "a.idx"), Request())


def stuttered(ds: ps.Dataset, count: int) -> ps.Dataset:
    return ps.Dataset(STUTTER.Stutter(count).build(ds.node), ds.options)


class TestTheStage(StageConformance):
    @pytest.fixture(params=[(kind, count) for kind in INPUTS for count in (1, 3)])
    def case(self, request: pytest.FixtureRequest) -> Case:
        kind, count = request.param
        expected = [row for row in ROWS for _ in range(count)]
        # It is no module that another process could import.
        return Case(
            lambda: stuttered(INPUTS[kind](), count), expected, has_length=False, is_pickled=False
        )


def test_every_path_that_is_named_exists():
    root = Path(__file__).parents[1]
    new = ("idx.py", "test_idx.py", "stutter.py", "test_stutter.py")
    named = re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", TEXT)
    named += [
        f"src/penstock/{one}" for one in re.findall(r"`((?:sources|stages|feeds)/[\w/.]+)`", TEXT)
    ]
    assert len(named) > 10
    missing = [one for one in named if not (root / one).exists() and not one.endswith(new)]
    assert not missing
