"""Digests: the same in every process, of values in any layout, in bounded memory."""

import subprocess
import sys
import tracemalloc

import numpy as np
import pytest

from penstock.core.digests import array_digest, digest, list_digest, pieces_digest

IN_ANOTHER_PROCESS = """
import numpy as np
from penstock.core.digests import digest
A, B = {"a", "b", "c", ("d", 1)}, {"x": np.arange(1000)}
class C:
    def __call__(self, x): return x in A or B[x]
def f(x, *, y=frozenset("pqrst")): return C()(x) or x in {"k", "l", "m"}
print(digest(f), digest(C()), digest(A))
"""


def test_it_is_the_same_in_every_process():
    found = {
        subprocess.run(
            [sys.executable, "-c", IN_ANOTHER_PROCESS],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "random")
    }
    assert len(found) == 1


@pytest.mark.parametrize("dtype", ["i1", ">i4", "f8", "c16", "U3", "M8[s]", "bool", "V5"])
@pytest.mark.parametrize("shape", [(), (0,), (7,), (5, 3), (2, 0, 3), (300, 1000)])
def test_the_layout_of_an_array_does_not_tell_and_every_byte_does(dtype, shape):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    bits = np.random.default_rng(0).integers(0, 2, size, dtype=np.uint8)
    array = np.full(shape, "abc") if dtype == "U3" else np.ndarray(shape, dtype, bits.tobytes())
    apart = np.empty((*shape, 2), array.dtype)[..., 0]
    apart[...] = array
    assert array_digest(array) == array_digest(np.array(array, order="F")) == array_digest(apart)
    assert array_digest(array) == digest(array)
    if not array.size:
        return
    for place in (0, -1):
        other = array.copy()
        other.reshape(-1).view(np.uint8)[place] ^= 1
        assert array_digest(other) != array_digest(array)


def test_an_array_is_not_copied():
    array = np.ones((64, 1 << 20), "u1")[:, ::2]
    tracemalloc.start()
    try:
        array_digest(array)
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


def test_lists_tell_where_one_value_ends():
    assert list_digest(["ab", "c"]) != list_digest(["a", "bc"])
    assert list_digest(["a"] * 5000) != list_digest(["a"] * 5001)
    assert list_digest([b"a", b""]) != list_digest([b"", b"a"])
    assert list_digest([np.zeros(2), np.zeros(3)]) != list_digest([np.zeros(3), np.zeros(2)])
    many = [str(number) for number in range(10_000)]
    other = [*many[:-1], "x"]
    assert list_digest(many) == list_digest(list(many)) != list_digest(other)


def test_pieces_tell_in_their_order():
    one, other = np.zeros(10_000, np.uint8), np.ones(10_000, np.uint8)
    assert pieces_digest([one, other]) == pieces_digest(iter([one, other]))
    assert pieces_digest([one, other]) != pieces_digest([other, one])
