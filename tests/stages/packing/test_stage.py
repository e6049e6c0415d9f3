"""pack: which sequences share a row, their segment ids and positions, and what is refused."""

import json
from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.conformance import ROWS, Chain, StageConformance, cases, keep
from tests.stages.packing.model import joined, packed, placed

import penstock as ps

SPEC = {"tokens": ps.ArraySpec((None,), "int32"), "mask": ps.ArraySpec((None, 2), "f4")}


def sequence(x: Any, y: Any) -> dict[str, Any]:
    length = y * 7 % 11
    return {
        "tokens": np.arange(length, dtype="i4") + 100 * y.astype("i4"),
        "mask": np.full((length, 2), y, "f4"),
    }


SEQUENCES = [sequence(*row) for row in ROWS]
LENGTHS = [len(row["tokens"]) for row in SEQUENCES]
CHAINS = {
    "first fit": Chain(
        lambda ds: ds.map(sequence, spec=SPEC).pack(12, bins=3, padding_values=-1),
        packed(SEQUENCES, placed(LENGTHS, 12, 3), 12, -1),
    ),
    "split": Chain(
        lambda ds: ds.map(sequence, spec=SPEC).pack(4, bins=2, long="split"),
        packed(SEQUENCES, placed(LENGTHS, 4, 2), 4),
    ),
    "concat": Chain(
        lambda ds: ds.map(sequence, spec=SPEC).pack(7, method="concat"),
        packed(SEQUENCES, joined(LENGTHS, 7), 7),
    ),
}


class TestPack(StageConformance):
    case = cases(CHAINS)


@pytest.mark.parametrize("seed", range(12))
def test_it_packs_as_plain_python_does(seed: int):
    rng = np.random.default_rng(seed)
    length, bins = int(rng.integers(1, 40)), int(rng.integers(1, 9))
    top = length if seed % 2 else 3 * length
    lengths = rng.integers(0, top + 1, 200).tolist()
    rows = [
        {"tokens": rng.integers(1, 1000, n).astype("i4"), "mask": rng.random((n, 2)).astype("f4")}
        for n in lengths
    ]
    ds = ps.from_arrays({name: [row[name] for row in rows] for name in ("tokens", "mask")})
    long = "error" if seed % 2 else "split"
    options: dict[str, Any] = {"memory": "600KB"} if seed % 3 == 0 else {}
    ds = ds.with_options(**options)
    fitted = ds.pack(length, bins=bins, long=long)
    assert_same(run(fitted), packed(rows, placed(lengths, length, bins), length))
    assert_same(
        run(ds.pack(length, method="concat")), packed(rows, joined(lengths, length), length)
    )
    cut = [min(n, length) for n in lengths]
    short = ds.pack(length, bins=bins, long="truncate")
    assert_same(run(short), packed(rows, placed(cut, length, bins), length))


@pytest.mark.parametrize("method", ["first_fit", "concat"])
@pytest.mark.parametrize("kind", ["rows", "flow", "shuffled"])
def test_it_goes_on_exactly_from_every_state(kind: str, method: Any):
    rng = np.random.default_rng(1)
    rows = [np.arange(size) for size in rng.integers(0, 40, 250)]
    ds = ps.from_arrays(rows).with_options(processes=0)
    ds = {"rows": ds, "flow": ds.filter(keep), "shuffled": ds.shuffle(seed=1)}[kind]
    ds = ds.pack(16, bins=5, long="split", method=method)
    with ds.stream(epoch=2) as stream:
        states, found = [stream.state()], []
        for row in stream:
            found.append(row)
            states.append(stream.state())
    for done in [*range(0, len(states), 17), len(states) - 2, len(states) - 1]:
        state = json.loads(json.dumps(states[done]))
        rest = found[done:] if done < len(found) else run(ds, epoch=3)
        assert_same(run(ds.with_options(threads=done % 3), state=state), rest)


def test_a_state_has_the_pieces_of_rows_in_open_bins():
    rows = [np.arange(size) for size in [3, 9, 5]]
    ds = ps.from_arrays(rows).pack(8, bins=2, long="split")
    with ds.stream() as stream:
        next(stream)
        # Bin 0 has row 0; eight values of row 1 were a row of their own, and its ninth comes next.
        assert stream.state()["cursor"] == [[[[0, 0, 3]]], 8, 1, 1, 1]


@pytest.mark.parametrize(
    "cursor",
    [
        [[[[0, 0, 3]]], 9, 1, 1, 1],
        [[[[0, 0, 30]]], 8, 1, 1, 1],
        [[[[0, 3, 3]]], 8, 1, 1, 1],
        [[[[5, 0, 3]]], 8, 1, 1, 1],
        [[[[0, 0]]], 8, 1, 1, 1],
        [[[[0, 0, 3]], [], []], 8, 1, 1, 1],
        [[0], 8, 1, 1, 1],
        [[[[0, 0, 3]]], 8, 1, 0, 0],
        [[[[0, 0, 7]]], 8, 1, 1, 1],
    ],
)
def test_a_state_that_was_changed_is_refused(cursor: Any):
    ds = ps.from_arrays([np.arange(size) for size in [3, 9, 5]]).pack(8, bins=2, long="split")
    with ds.stream() as stream:
        next(stream)
        state = stream.state()
    with pytest.raises(ps.StateError, match="was changed"):
        run(ds, state={**state, "cursor": cursor})


def test_rows_that_are_no_dict_become_triples():
    (row,) = run(ps.from_arrays([np.arange(3), np.arange(2)]).pack(8))
    assert [one.tolist() for one in row] == [
        [0, 1, 2, 0, 1, 0, 0, 0],
        [1, 1, 1, 2, 2, 0, 0, 0],
        [0, 1, 2, 0, 1, 0, 0, 0],
    ]
    pair = ps.from_arrays(([np.arange(3)], [np.ones(3)])).pack(4)
    ((tokens, mask), segment_ids, positions) = run(pair)[0]
    assert (tokens.tolist(), mask.tolist()) == ([0, 1, 2, 0], [1, 1, 1, 0])
    assert segment_ids.dtype == positions.dtype == np.int32


def test_rows_of_one_length_are_packed_too():
    x = np.arange(12.0).reshape(4, 3)
    rows = run(ps.from_arrays({"x": x}).pack(7, bins=1))
    assert [row["x"].tolist() for row in rows] == [
        [0, 1, 2, 3, 4, 5, 0],
        [6, 7, 8, 9, 10, 11, 0],
    ]


def test_more_bins_leave_less_padding_and_the_report_tells_it():
    rng = np.random.default_rng(0)
    ds = ps.from_arrays([np.arange(n) for n in rng.integers(1, 100, 2000)])
    shares = []
    for bins in (1, 32):
        with ds.pack(128, bins=bins).stream() as stream:
            num_rows = sum(1 for _ in stream)
            (padding,) = stream.report().padding
        assert padding.num_values + padding.num_padding == 128 * num_rows
        shares.append(padding.share)
    assert shares[1] < 0.05 < 0.15 < shares[0]


def test_the_remainder_can_be_dropped():
    ds = ps.from_arrays([np.arange(3), np.arange(4), np.arange(2)])
    assert len(run(ds.pack(4, drop_remainder=True))) == 1
    assert len(run(ds.pack(4))) == 3
    assert len(run(ds.pack(4, method="concat", drop_remainder=True))) == 2


@pytest.mark.parametrize(
    ("ds", "message"),
    [
        (
            ps.from_arrays({"tokens": [np.arange(2)], "label": np.arange(1)}),
            "'label' is .* no axis",
        ),
        (ps.from_arrays([np.zeros((2, 3)), np.zeros((1, 4))]), "open size that is not its first"),
        (ps.from_arrays(["text"]), "'value' is .* no axis to pack along"),
        (ps.from_arrays({"tokens": [np.arange(2)], "positions": [np.arange(2)]}), "another name"),
    ],
)
def test_rows_that_are_no_sequences_are_refused_when_the_chain_is_built(
    ds: ps.Dataset, message: str
):
    with pytest.raises(ValueError, match=message):
        ds.pack(8)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"length": 0}, "length must be at least 1, got 0"),
        ({"length": 8, "bins": 0}, "bins must be at least 1, got 0"),
        ({"length": 8, "long": "cut"}, "long must be one of error, split, truncate, got 'cut'"),
        ({"length": 8, "method": "best"}, 'must be "first_fit" or "concat", got \'best\''),
        ({"length": 8, "padding_values": 0.5}, "must be a value of int64, got 0.5"),
    ],
)
def test_wrong_arguments_are_refused(options: Any, message: str):
    with pytest.raises(ValueError, match=message):
        ps.from_arrays([np.arange(3)]).pack(**options)


def test_what_only_rows_tell_is_an_error_that_names_the_row():
    rows = [np.arange(3), np.arange(9)]
    with pytest.raises(ps.SpecMismatchError, match=r'row 1 has 9 values.*fit into 8.*long="split"'):
        run(ps.from_arrays(rows).pack(8))
    uneven = ps.from_arrays({"a": rows, "b": [np.arange(3), np.arange(4)]})
    with pytest.raises(ps.SpecMismatchError, match="row 1 has 9 values in 'a' and 4 in 'b'"):
        run(uneven.pack(16))
    with pytest.raises(ValueError, match=r"can't follow distribute.*\n.*\n.*pack\(8"):
        ps.from_arrays(np.zeros((8, 2))).batch(4).distribute(rank=0, world=2).pack(8)


def test_packed_rows_can_be_batched_shuffled_and_distributed():
    ds = ps.from_arrays({"tokens": [np.arange(n % 9) for n in range(300)]}).shuffle(seed=3).pack(16)
    rows = run(ds)
    batches = run(ds.batch(4, drop_remainder=True))
    assert (
        np.concatenate([b["tokens"] for b in batches])
        == [r["tokens"] for r in rows][: 4 * len(batches)]
    ).all()
    part = run(ds.batch(4).distribute(rank=1, world=2, uneven="drop"))
    assert (part[0]["segment_ids"] == batches[0]["segment_ids"][1::2]).all()
    mixed = run(ds.shuffle(seed=1).with_options(memory="256MB"))
    assert sorted(r["tokens"].tolist() for r in mixed) == sorted(r["tokens"].tolist() for r in rows)
