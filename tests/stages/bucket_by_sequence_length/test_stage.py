"""bucket_by_sequence_length: which rows share a batch, how they are padded, and what is refused."""

import json
from typing import Any

import numpy as np
import pytest
from tests.conformance import assert_same, run
from tests.stages.bucket_by_sequence_length.model import bucketed
from tests.stages.conformance import ROWS, Chain, StageConformance, cases, keep

import penstock as ps

tf = pytest.importorskip("tensorflow")

SPEC = {"tokens": ps.ArraySpec((None,), "int64"), "label": ps.ArraySpec((3,), "f4")}


def sequence(x: Any, y: Any) -> dict[str, Any]:
    return {"tokens": np.arange(y * 7 % 11), "label": x}


def length(row: Any) -> int:
    return len(row["tokens"])


SEQUENCES = [sequence(*row) for row in ROWS]
CHAINS = {
    "by a function": Chain(
        lambda ds: ds.map(sequence, spec=SPEC).bucket_by_sequence_length(
            length, [4, 7], [3, 2, 4], padding_values=-1
        ),
        bucketed(SEQUENCES, [4, 7], [3, 2, 4], pad=-1),
    ),
    "by a field": Chain(
        lambda ds: ds.map(sequence, spec=SPEC).bucket_by_sequence_length("tokens", [5], [4, 6]),
        bucketed(SEQUENCES, [5], [4, 6]),
    ),
    "by a field, no remainder": Chain(
        lambda ds: ds.map(sequence, spec=SPEC).bucket_by_sequence_length(
            "tokens", [3, 5], [2, 3, 4], drop_remainder=True
        ),
        bucketed(SEQUENCES, [3, 5], [2, 3, 4], drop=True),
    ),
}


class TestBucketBySequenceLength(StageConformance):
    case = cases(CHAINS)


def both(rows: list[Any]) -> tuple[ps.Dataset, Any]:
    """The same rows, of two fields of different open sizes and one of one size, here and in tf.data."""
    spec = {
        "a": tf.TensorSpec((None,), tf.int64),
        "b": tf.TensorSpec((None, 2), tf.float32),
        "c": tf.TensorSpec((), tf.int32),
    }
    made = [
        {"a": np.arange(size), "b": np.full((width, 2), width, "f4"), "c": np.int32(size)}
        for size, width in rows
    ]
    mine = {
        "a": [row["a"] for row in made],
        "b": [row["b"] for row in made],
        "c": np.array([row["c"] for row in made], "i4"),
    }
    return ps.from_arrays(mine), tf.data.Dataset.from_generator(
        lambda: iter(made), output_signature=spec
    )


@pytest.mark.parametrize(
    ("how", "seed"),
    [("longest", 2), ("boundary", 1), ("boundary", 3), ("shapes", 0), ("shapes", 3), ("values", 2)],
)
def test_it_gives_what_tf_data_gives(how: str, seed: int):
    rng = np.random.default_rng(seed)
    boundaries = [[], [4], [3, 6], [4, 6, 8]][seed]
    sizes = rng.integers(1, 6, len(boundaries) + 1).tolist()
    options: dict[str, Any] = {"drop_remainder": bool(seed % 2)}
    values = None
    if how == "boundary":
        boundaries[-1] = 10
        options["pad_to_bucket_boundary"] = True
    if how == "shapes":
        options["padded_shapes"] = {"a": [12], "b": [None, 3], "c": []}
    if how == "values":
        values = {"a": np.int64(-1), "b": np.float32(0.5), "c": np.int32(7)}
    ours, theirs = both(list(zip(rng.integers(0, 10, 31), rng.integers(1, 4, 31), strict=True)))
    mine, called = (
        ours.bucket_by_sequence_length(by, boundaries, sizes, padding_values=values, **options)
        for by in ("a", lambda row: row["a"].shape[0])
    )
    other = theirs.bucket_by_sequence_length(
        lambda row: tf.shape(row["a"])[0], boundaries, sizes, padding_values=values, **options
    )
    expected = list(other.as_numpy_iterator())
    assert_same(run(mine), expected)
    assert_same(run(called), expected)


def test_without_padding_rows_of_one_shape_are_stacked_as_in_tf_data():
    lengths = [2, 3, 2, 2, 3, 3, 2]
    rows = [np.full(size, number) for number, size in enumerate(lengths)]
    ours = ps.from_arrays(rows).bucket_by_sequence_length("value", [3], [2, 2], no_padding=True)
    theirs = tf.data.Dataset.from_generator(
        lambda: iter(rows), output_signature=tf.TensorSpec((None,), tf.int64)
    ).bucket_by_sequence_length(lambda x: tf.shape(x)[0], [3], [2, 2], no_padding=True)
    assert_same(run(ours), list(theirs.as_numpy_iterator()))
    mixed = ps.from_arrays(rows).bucket_by_sequence_length("value", [], [2], no_padding=True)
    with pytest.raises(
        ps.SpecMismatchError, match=r"field 'value' .*\(2,\) and \(3,\) in one batch.*pads them"
    ):
        run(mixed)


@pytest.mark.parametrize("kind", ["rows", "flow", "shuffled", "skipping"])
def test_it_goes_on_exactly_from_every_state(kind: str):
    rng = np.random.default_rng(0)
    rows = [np.arange(size) for size in rng.integers(0, 40, 300)]
    ds = ps.from_arrays({"tokens": rows}).with_options(processes=0)
    ds = {
        "rows": ds,
        "flow": ds.filter(keep),
        "shuffled": ds.shuffle(seed=1),
        "skipping": ds.map(_fails_on_some).with_options(on_error="skip"),
    }[kind]
    by = length if kind in ("rows", "skipping") else "tokens"
    ds = ds.bucket_by_sequence_length(by, [10, 20, 38], [7, 5, 3, 20])
    with ds.stream(epoch=2) as stream:
        states, batches = [stream.state()], []
        for batch in stream:
            batches.append(batch)
            states.append(stream.state())
    for done in [*range(0, len(states), 7), len(states) - 2, len(states) - 1]:
        state = json.loads(json.dumps(states[done]))
        rest = batches[done:] if done < len(batches) else run(ds, epoch=3)
        assert_same(run(ds.with_options(threads=done % 3), state=state), rest)


def _fails_on_some(row: Any) -> Any:
    if len(row["tokens"]) % 13 == 7:
        raise ValueError("bad")
    return row


def test_a_state_has_the_numbers_of_the_rows_in_the_buckets():
    rows = [np.arange(size) for size in [9, 1, 9, 1, 1]]
    ds = ps.from_arrays(rows).bucket_by_sequence_length("value", [5], [2, 3])
    with ds.stream() as stream:
        next(stream)
        assert stream.state()["cursor"] == [[[], [0, 2]], 4, 4, 4]
    flow = ps.from_arrays(rows).filter(keep).bucket_by_sequence_length("value", [5], [2, 3])
    with flow.stream() as stream:
        next(stream)
        assert stream.state()["cursor"] == [[[], [0, 2]], 4, 0, [0, 0]]


@pytest.mark.parametrize(
    "cursor",
    [
        [[[], [0, 9]], 4, 4, 4],
        [[[], [2, 0], []], 4, 4, 4],
        [[[], [0, 0]], 4, 4, 4],
        [[[], ["0"]], 4, 4, 4],
        [[[0, 1], []], 4, 4, 4],
        [[[], [0]], 4, 3, 3],
        [[[], [0]], 9, 9, 9],
        [[[], 0], 4, 4, 4],
    ],
)
def test_a_state_that_was_changed_is_refused(cursor: Any):
    rows = [np.arange(size) for size in [9, 1, 9, 1, 1]]
    ds = ps.from_arrays(rows).bucket_by_sequence_length("value", [5], [2, 3])
    with ds.stream() as stream:
        next(stream)
        state = stream.state()
    with pytest.raises(ps.StateError, match="was changed"):
        run(ds, state={**state, "cursor": cursor})


def test_the_report_tells_the_share_of_padding():
    rows = [np.arange(size) for size in [1, 3, 8, 8]]
    with ps.from_arrays(rows).bucket_by_sequence_length("value", [5], [2, 2]).stream() as stream:
        list(stream)
        report = stream.report()
    (padding,) = report.padding
    assert (padding.num_values, padding.num_padding) == (20, 2)
    assert padding.share == 2 / 22
    assert "padding           9.1 % of 22 values of bucket_by_sequence_length" in str(report)


def test_it_says_what_it_does_before_it_runs():
    ds = ps.from_arrays([np.arange(3)]).bucket_by_sequence_length("value", [5], [8, 2])
    assert "2 buckets, of 2 to 8 rows a batch" in str(ds.explain())
    with pytest.raises(TypeError, match="length can't be known"):
        len(ds)


RAGGED = ps.from_arrays({"tokens": [np.arange(3), np.arange(9)], "label": np.arange(2)})


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (("tokens", [5], [2]), {}, "one number more than bucket_boundaries, got 1 and 1"),
        (("tokens", [5, 5], [2, 2, 2]), {}, r"must be ascending, got \[5, 5\]"),
        (("tokens", [5], [2, 0]), {}, "each of bucket_batch_sizes must be at least 1, got 0"),
        (("words", [5], [2, 2]), {}, r"one of \['label', 'tokens'\], got 'words'"),
        (("label", [5], [2, 2]), {}, "'label' is .* which has no length"),
        (
            ("tokens", [5], [2, 2]),
            {"padded_shapes": {"tokens": [9]}},
            "a nest of shapes like a row",
        ),
        (
            ("tokens", [5], [2, 2]),
            {"padded_shapes": {"tokens": [9, 9], "label": []}},
            r"must have as many sizes as \(None,\)",
        ),
        (("tokens", [5], [2, 2]), {"padding_values": 0.5}, "must be a value of int64, got 0.5"),
        (
            ("tokens", [5], [2, 2]),
            {"no_padding": True, "pad_to_bucket_boundary": True},
            "not both",
        ),
        (("tokens", [], [2]), {"pad_to_bucket_boundary": True}, "needs at least one"),
    ],
)
def test_wrong_arguments_are_refused_when_the_chain_is_built(
    arguments: Any, options: Any, message: str
):
    with pytest.raises(ValueError, match=message):
        RAGGED.bucket_by_sequence_length(*arguments, **options)


def test_what_only_rows_tell_is_an_error_that_names_the_row():
    too_long = RAGGED.bucket_by_sequence_length("tokens", [5], [2, 2], pad_to_bucket_boundary=True)
    with pytest.raises(ps.SpecMismatchError, match=r"row 1 has length 9. Add a boundary"):
        run(too_long)
    too_small = RAGGED.bucket_by_sequence_length(
        "tokens", [5], [2, 2], padded_shapes={"tokens": [4], "label": []}
    )
    with pytest.raises(ps.SpecMismatchError, match=r"a row of shape \(9,\), larger than \(4,\)"):
        run(too_small)
    with pytest.raises(ps.SpecMismatchError, match=r"bucket_by_sequence_length.*one whole number"):
        run(RAGGED.bucket_by_sequence_length(lambda row: 0.5, [5], [2, 2]))
    with pytest.raises(ps.FunctionError, match=r"bucket_by_sequence_length.*row 0"):
        run(RAGGED.bucket_by_sequence_length(lambda row: row["none"], [5], [2, 2]))


def test_ranks_share_batches_of_one_size_and_no_others():
    rows = [np.arange(size) for size in range(20)]
    ds = ps.from_arrays(rows)
    with pytest.raises(ValueError, match=r"batches of one size, and .* 4 and 8 rows"):
        ds.bucket_by_sequence_length("value", [9], [8, 4]).distribute(
            rank=0, world=2, uneven="drop"
        )
    batches = ds.bucket_by_sequence_length("value", [9], [4, 4])
    whole = run(batches)
    for uneven, expected in (("drop", [b for b in whole if len(b) == 4]), ("pad", whole)):
        parts = [run(batches.distribute(rank=r, world=2, uneven=uneven)) for r in range(2)]
        assert len(parts[0]) == len(parts[1]) == len(expected)
        for batch, *mine in zip(expected, *parts, strict=True):
            for rank, part in enumerate(mine):
                got = part[0] if uneven == "pad" else part
                want = batch[rank::2]
                assert (got[: len(want)] == want).all()


def test_processes_and_threads_give_the_same_batches():
    ds = ps.from_arrays({"tokens": [np.arange(n % 17) for n in range(90)]})
    ds = ds.bucket_by_sequence_length(length, [5, 11], [4, 3, 2])
    assert_same(run(ds.with_options(processes=2)), run(ds.with_options(processes=0, threads=0)))


def test_an_empty_dataset_has_no_batches():
    ds = ps.from_arrays({"tokens": [np.arange(3)]}).take(0)
    assert run(ds.bucket_by_sequence_length("tokens", [5], [2, 2])) == []
    assert run(ds.bucket_by_sequence_length(length, [5], [2, 2])) == []
