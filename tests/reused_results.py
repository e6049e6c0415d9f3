"""Functions and generators that keep what they return and change it later, and every way out of a dataset.

Whatever they do later, an element is what it was when it was returned.
"""

import functools
import mmap
import threading
from collections import OrderedDict, namedtuple

import numpy as np

import penstock as ps
from penstock.core.nest import flatten

NUM_ROWS = 24
X = np.arange(NUM_ROWS * 4, dtype=np.float32).reshape(NUM_ROWS, 4)
STRUCTURED = np.dtype([("a", "i4"), ("b", "f8")])
Pair = namedtuple("Pair", "x y")  # The plain kind is what functions return.


class Wrapped:
    """Something that NumPy sees as an array, and that hands out its own memory."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


def same_array():
    buffer = np.zeros(4, np.float32)

    def function(x):
        buffer[:] = x
        return buffer

    return function


def view_of_a_buffer():
    buffer = np.zeros(9, np.float32)

    def function(x):
        buffer[2:6] = x
        return buffer[2:6]

    return function


def strided_view_of_a_buffer():
    buffer = np.zeros((4, 2), np.float32)

    def function(x):
        buffer[:, 1] = x
        return buffer[::-1, 1]

    return function


def same_tuple():
    pair = (np.zeros(4, np.float32), np.zeros(2, np.float32))

    def function(x):
        pair[0][:] = x
        pair[1][:] = x[:2]
        return pair

    return function


def same_dict_of_new_arrays():
    row = {}

    def function(x):
        row["x"] = x * 1
        row["y"] = x[:2] * 1
        return row

    return function


def same_dict_of_the_same_arrays():
    row = {"x": np.zeros(4, np.float32), "y": np.zeros(2, np.float32)}

    def function(x):
        row["x"][:] = x
        row["y"][:] = x[:2]
        return row

    return function


def tuple_from_a_cache():
    @functools.lru_cache
    def made(_first):
        return np.zeros(4, np.float32), np.zeros(2, np.float32)

    def function(x):
        found = made(0)
        found[0][:] = x
        found[1][:] = x[:2]
        return found

    return function


def nest_of_the_same_arrays():
    buffer = np.zeros(4, np.float32)
    inner = {"b": (buffer, buffer[1:3])}

    def function(x):
        buffer[:] = x
        return {"a": buffer, "in": inner}

    return function


def named_tuple():
    kept = Pair(np.zeros(4, np.float32), np.zeros(2, np.float32))

    def function(x):
        kept.x[:] = x
        kept.y[:] = x[:2]
        return kept

    return function


def ordered_dict():
    kept = OrderedDict(x=np.zeros(4, np.float32))

    def function(x):
        kept["x"][:] = x
        return kept

    return function


def changed_later():
    kept = []

    def function(x):
        if kept:
            kept[-1][...] = -1
        kept.append(x * 2)
        return kept[-1]

    return function


def tuple_changed_later():
    kept = []

    def function(x):
        if kept:
            kept[-1][0][...] = -1
        kept.append((x * 2, x[:1] * 2))
        return kept[-1]

    return function


def input_changed_later():
    kept = []

    def function(x):
        if kept:
            kept[-1][...] = -1
        kept.append(x)
        return x

    return function


def view_of_the_input_changed_later():
    kept = []

    def function(x):
        if kept:
            kept[-1][...] = -1
        kept.append(x[1:])
        return x, x[:2]

    return function


def input_in_place():
    def function(x):
        x += 1
        return x

    return function


def array_like():
    buffer = np.zeros(4, np.float32)

    def function(x):
        buffer[:] = x
        return Wrapped(buffer)

    return function


def array_like_of_another_dtype():
    buffer = np.zeros(4, np.float32)

    def function(x):
        buffer[:] = x
        return {"x": Wrapped(buffer), "y": buffer.view(np.uint8)}

    return function


def torch_tensor():
    import torch

    tensor = torch.zeros(4)

    def function(x):
        tensor.copy_(torch.from_numpy(x))
        return {"tensor": tensor, "array": tensor.numpy()}

    return function


def read_only_view():
    buffer = np.zeros(4, np.float32)
    view = buffer.view()
    view.flags.writeable = False

    def function(x):
        buffer[:] = x
        return view

    return function


def buffers():
    memory = bytearray(16)

    def function(x):
        memory[:] = x.tobytes()
        return {"array": np.frombuffer(memory, np.float32), "view": memoryview(memory)}

    return function


def mapped_memory():
    memory = mmap.mmap(-1, 4096)
    array = np.frombuffer(memory, np.float32, 4)

    def function(x):
        array[:] = x
        return array

    return function


def zero_d():
    number, record = np.zeros((), np.float32), np.zeros((), STRUCTURED)

    def function(x):
        number[...] = x[0]
        record["a"], record["b"] = x[0], x[1]
        return {"array": number[...], "scalar": number[()], "record": record, "void": record[()]}

    return function


def structured():
    records = np.zeros(2, STRUCTURED)

    def function(x):
        records["a"], records["b"] = x[:2], x[2:]
        return records, records[1]

    return function


def text():
    objects, names = np.zeros(2, object), ["", ""]

    def function(x):
        for place in range(2):
            objects[place] = b"%d\0" % x[place]
            names[place] = f"{x[place]}\0"
        return {"objects": objects, "names": names, "one": names[0]}

    return function


def ragged():
    buffer = np.zeros(8, np.float32)

    def function(x):
        size = int(x[0]) // 4 % 5
        buffer[:size] = x[0]
        return buffer[:size]

    return function


def ragged_nest():
    buffer, words = np.zeros((8, 2), np.float32), np.zeros(8, object)

    def function(x):
        size = 1 + int(x[0]) // 4 % 5
        buffer[:size] = x[0]
        words[:size] = f"{x[0]}\0"
        return {"x": (buffer[:size], buffer[:size, 0]), "words": words[:size], "n": size}

    return function


def ragged_array_like():
    buffer = np.zeros(8, np.float32)

    def function(x):
        size = int(x[0]) // 4 % 5
        buffer[:size] = x[0]
        return Wrapped(buffer[:size])

    return function


FIXED = {
    one.__name__: one
    for one in (
        *(same_array, view_of_a_buffer, strided_view_of_a_buffer, same_tuple),
        *(same_dict_of_new_arrays, same_dict_of_the_same_arrays, tuple_from_a_cache),
        *(nest_of_the_same_arrays, named_tuple, ordered_dict, changed_later, tuple_changed_later),
        *(input_changed_later, view_of_the_input_changed_later, input_in_place, array_like),
        *(array_like_of_another_dtype, torch_tensor, read_only_view, buffers, mapped_memory),
        *(zero_d, structured, text),
    )
}
SPEC = ps.ArraySpec((None,), np.float32)
RAGGED = {
    ragged: SPEC,
    ragged_nest: {
        "x": (ps.ArraySpec((None, 2), np.float32), SPEC),
        "words": ps.ArraySpec((None,), str),
        "n": ps.ArraySpec((), np.int64),
    },
    ragged_array_like: SPEC,
}
FUNCTIONS = {
    **{name: (make, None) for name, make in FIXED.items()},
    **{make.__name__: (make, spec) for make, spec in RAGGED.items()},
}


def plain(element):
    """Return an element as nothing but Python objects, which nobody can change later."""
    leaves, _ = flatten(element)
    return [_plain_leaf(leaf) for leaf in leaves]


def _plain_leaf(leaf):
    if isinstance(leaf, bytes | str):
        return leaf
    array = np.asarray(leaf, object if isinstance(leaf, list) else None)
    return array.dtype.str, array.tolist()


def expected(make, rows=X):
    """Return what a function returns for each row, as it was when it was returned."""
    function = make()
    return [plain(function(row.copy())) for row in rows]


def on_each_thread(make):
    """Return a function that is made anew on each thread: no two threads fill the same memory at once."""
    own = threading.local()

    def function(x):
        if not hasattr(own, "function"):
            own.function = make()
        return own.function(x)

    return function


def generator(make):
    """Return a generator that yields what a function returns for each row."""

    def rows():
        function = make()
        for row in X:
            yield function(row.copy())

    return rows


def spec_of(make, spec):
    """Return the spec of a function's results."""
    return ps.from_arrays(X).map(make(), spec=spec).spec


NUMERIC = ("same_tuple", "same_dict_of_new_arrays", "tuple_from_a_cache", "input_changed_later")
"""Functions whose results every framework can hold."""


def batches_of(name):
    """Return what such a function makes of the first row of each batch, and the values that it must have."""
    make, _ = FUNCTIONS[name]
    function = make()
    ds = ps.from_arrays(X).batch(4).map(lambda batch: function(batch[0]))
    return ds, [[values for _, values in row] for row in expected(make, X[::4])]
