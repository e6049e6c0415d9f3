"""What concatenate and mix make of rows of many inputs, and of rows whose shapes differ."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock.stages.base import segment


def test_what_is_combined_may_have_batches_of_different_lengths():
    a = ps.from_arrays(np.arange(5)).batch(2)
    b = ps.from_arrays(np.arange(9)).batch(3, drop_remainder=True)
    found = [batch.tolist() for batch in ps.concatenate(a, b)]
    assert found == [[0, 1], [2, 3], [4], [0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert ps.concatenate(a, b).spec == ps.ArraySpec((None,), "int64")
    mixed = sorted(batch.tolist() for batch in ps.mix([a, b], stop="all"))
    assert mixed == sorted(found)


def _arrays(lengths: list[int], kind: str) -> list[Any]:
    """Return a nest of two arrays for each length, in the layouts that users have them in."""
    made = []
    for number, length in enumerate(lengths):
        x = (np.arange(length * 3) + 1000 * number).astype("float32").reshape(length, 3)
        y = np.arange(length, dtype="int32") + 1000 * number
        if kind == "not contiguous":
            x, y = np.asfortranarray(np.repeat(x, 2, axis=1))[:, ::2], np.repeat(y, 2)[::2]
        made.append({"x": x, "y": y})
    return made


STAGES = {
    "none": lambda ds: ds,
    "shuffle": lambda ds: ds.shuffle(seed=5),
    "shuffle, skip, take, shard": lambda ds: ds.shuffle(seed=5).skip(1).take(9).shard(2, 0),
    "repeat": lambda ds: ds.repeat(3),
    "shuffle and repeat": lambda ds: ds.shuffle(seed=5).repeat(3),
    "map": lambda ds: ds.map(lambda row: row),
}


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6),
    kinds=st.lists(st.sampled_from(["plain", "not contiguous"]), min_size=6, max_size=6),
    stages=st.lists(st.sampled_from(list(STAGES)), min_size=6, max_size=6),
    combine=st.sampled_from(["mix", "concatenate"]),
    then=st.sampled_from(["none", "shuffle", "shuffle and repeat"]),
    batch_size=st.integers(1, 40),
)
def test_rows_of_arrays_are_those_that_a_read_of_each_input_gives(
    lengths, kinds, stages, combine, then, batch_size
):
    def made(arrays: list[Any]) -> list[Any]:
        inputs = [
            STAGES[stage](ps.from_arrays(one)) for stage, one in zip(stages, arrays, strict=False)
        ]
        both = ps.concatenate(*inputs) if combine == "concatenate" else ps.mix(inputs, stop="all")
        ds = STAGES[then](both).batch(batch_size).with_options(threads=0, processes=0)
        return [
            (b["x"].tobytes(), b["y"].tobytes()) for epoch in (0, 1) for b in ds.stream(epoch=epoch)
        ]

    mixed = [_arrays(lengths, kind)[n] for n, kind in enumerate(kinds[: len(lengths)])]
    # Rows with gaps in them are never copied in place: each input is read.
    assert made(mixed) == made(_arrays(lengths, "not contiguous"))


def test_hundreds_of_inputs_are_copied_without_a_read_of_each(monkeypatch: pytest.MonkeyPatch):
    inputs = [ps.from_arrays(one).shuffle(seed=1) for one in _arrays([200] * 300, "plain")]
    ds = ps.mix(inputs).batch(64)
    monkeypatch.setattr(type(inputs[0].node.input), "fill", None)  # Nobody may call it.
    batches = [batch["y"] for batch, _ in zip(ds, range(40), strict=False)]
    assert len(np.unique(np.concatenate(batches) // 1000)) == 300


def test_blocks_of_many_inputs_grow_however_slow_the_first_were(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(segment, "_LONG", 1e-9)
    inputs = [ps.from_arrays(one) for one in _arrays([200] * 300, "plain")]
    with ps.mix(inputs).with_options(threads=2).stream() as stream:
        sizes = [size for _, size in stream.blocks()]
    assert sizes[:3] == [sizes[0], 2 * sizes[0], 4 * sizes[0]]
