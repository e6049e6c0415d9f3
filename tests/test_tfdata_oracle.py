"""tf.data as an oracle: chains of the stages whose meaning is shared give equal elements and specs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import penstock as ps
from penstock.core.nest import flatten

tf = pytest.importorskip("tensorflow")

# Starting tf.data costs tens of milliseconds a chain: few examples, but long chains.
ORACLE = settings(
    max_examples=40,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.filter_too_much,
    ],
)


def rows(num_rows: int) -> Any:
    x = np.arange(num_rows * 2, dtype="f4").reshape(num_rows, 2)
    return {"x": x, "y": (np.arange(num_rows), np.arange(num_rows) % 3 == 0)}


def both(num_rows: int) -> tuple[ps.Dataset, Any]:
    return ps.from_arrays(rows(num_rows)), tf.data.Dataset.from_tensor_slices(rows(num_rows))


def numbers(element: Any) -> list[Any]:
    return [np.asarray(leaf) for leaf in flatten(element)[0]]


def assert_agree(ours: ps.Dataset, theirs: Any) -> None:
    """Assert that both give equal elements, and that the specs agree."""
    found = [numbers(element) for element in ours]
    expected = [numbers(element) for element in theirs.as_numpy_iterator()]
    assert len(found) == len(expected)
    for mine, other in zip(found, expected, strict=True):
        for a, b in zip(mine, other, strict=True):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert (a == b).all()
    specs = flatten(ours.spec)[0]
    signatures = tf.nest.flatten(theirs.element_spec)
    for spec, signature in zip(specs, signatures, strict=True):
        assert spec.dtype == signature.dtype.as_numpy_dtype
        if signature.shape.rank is None:  # tf.data gave up on it.
            continue
        assert len(spec.shape) == len(signature.shape)
        for mine, other in zip(spec.shape, signature.shape, strict=True):
            # A length that is known to divide is known here, where tf.data only knows drop_remainder.
            assert mine == other or other is None or mine is None
    try:
        length = len(ours)
    except TypeError:
        return
    cardinality = int(theirs.cardinality())
    assert cardinality in (length, tf.data.UNKNOWN_CARDINALITY)


STAGES = ["batch", "take", "skip", "repeat", "shard", "enumerate", "zip", "concatenate"]
STAGES += ["map", "filter", "cache", "unbatch", "prefetch", "rebatch", "take_while", "flat_map"]


def apply(
    draw: st.DrawFn, ours: ps.Dataset, theirs: Any, depth: int
) -> tuple[ps.Dataset, Any, int]:
    """Put one stage behind both; `depth` is how many batches deep the rows are."""
    stage = draw(st.sampled_from(STAGES))
    if stage == "batch":
        if any(None in spec.shape for spec in flatten(ours.spec)[0]):
            return ours, theirs, depth
        size, drop = draw(st.integers(1, 5)), draw(st.booleans())
        return (
            ours.batch(size, drop_remainder=drop),
            theirs.batch(size, drop_remainder=drop),
            depth + 1,
        )
    if stage == "unbatch":
        # tf.data unbatches whatever has a first axis; rows whose fields disagree are an error in both.
        if depth == 0:
            return ours, theirs, depth
        return ours.unbatch(), theirs.unbatch(), depth - 1
    if stage == "rebatch":
        if depth == 0 or any(None in spec.shape[1:] for spec in flatten(ours.spec)[0]):
            return ours, theirs, depth
        size, drop = draw(st.integers(1, 5)), draw(st.booleans())
        again = theirs.unbatch().batch(size, drop_remainder=drop)
        if draw(st.booleans()):
            again = theirs.rebatch(size, drop_remainder=drop)
        return ours.rebatch(size, drop_remainder=drop), again, depth
    if stage == "take_while":
        few = theirs.take_while(
            lambda row: tf.cast(tf.reshape(tf.nest.flatten(row)[0], (-1,))[0], tf.float32) < 9.0
        )
        return ours.take_while(lambda row: bool(np.ravel(flatten(row)[0][0])[0] < 9)), few, depth
    if stage == "flat_map":
        twice = theirs.flat_map(lambda row: tf.data.Dataset.from_tensors(row).repeat(2))
        return ours.flat_map(lambda row: [row, row], spec=ours.spec), twice, depth
    if stage in ("take", "skip"):
        count = draw(st.integers(-1, 12))
        return getattr(ours, stage)(count), getattr(theirs, stage)(count), depth
    if stage == "repeat":
        count = draw(st.integers(0, 3))
        return ours.repeat(count), theirs.repeat(count), depth
    if stage == "shard":
        count = draw(st.integers(1, 4))
        index = draw(st.integers(0, count - 1))
        return ours.shard(count, index), theirs.shard(count, index), depth
    if stage == "enumerate":
        if depth:
            return ours, theirs, depth  # The number has no batch axis: nothing could unbatch it.
        start = draw(st.integers(0, 5))
        numbered = theirs.enumerate(start).map(lambda i, row: {"i": i, "row": row})
        return ours.enumerate(start).map(lambda i, row: {"i": i, "row": row}), numbered, depth
    if stage == "zip":
        zipped = tf.data.Dataset.zip((theirs, theirs)).map(lambda a, b: {"a": a, "b": b})
        return ps.zip(ours, ours).map(lambda a, b: {"a": a, "b": b}), zipped, depth
    if stage == "concatenate":
        return ps.concatenate(ours, ours), theirs.concatenate(theirs), depth
    if stage == "map":
        return (
            ours.map(lambda row: {"row": row, "twice": flatten(row)[0][0] * 2}),
            theirs.map(lambda row: {"row": row, "twice": tf.nest.flatten(row)[0] * 2}),
            depth,
        )
    if stage == "filter":
        if depth:
            return ours, theirs, depth
        few = theirs.filter(
            lambda row: tf.cast(tf.reshape(tf.nest.flatten(row)[0], (-1,))[0], tf.float32) < 13.0
        )
        return ours.filter(lambda row: bool(np.ravel(flatten(row)[0][0])[0] < 13)), few, depth
    if stage == "cache":
        return ours.cache(), theirs.cache(), depth
    return ours.prefetch(2), theirs.prefetch(2), depth


@given(st.data())
@ORACLE
def test_random_chains_give_what_tf_data_gives(data: st.DataObject):
    ours, theirs = both(data.draw(st.integers(0, 17)))
    depth = 0
    for _ in range(data.draw(st.integers(1, 5))):
        ours, theirs, depth = apply(data.draw, ours, theirs, depth)
        if len(flatten(ours.spec)[0]) > 24:
            break
    assert_agree(ours, theirs)


@pytest.mark.parametrize("size", [1, 3, 10, 20])
@pytest.mark.parametrize("drop", [False, True])
def test_batch(size: int, drop: bool):
    ours, theirs = both(10)
    assert_agree(ours.batch(size, drop_remainder=drop), theirs.batch(size, drop_remainder=drop))


@pytest.mark.parametrize("count", [-1, 0, 1, 9, 10, 11])
@pytest.mark.parametrize("stage", ["take", "skip", "repeat"])
def test_counts_at_their_limits(stage: str, count: int):
    ours, theirs = both(10)
    if stage == "repeat" and count == -1:
        ours, theirs = ours.repeat(-1).take(25), theirs.repeat(-1).take(25)
    else:
        ours, theirs = getattr(ours, stage)(count), getattr(theirs, stage)(count)
    assert_agree(ours, theirs)


def test_repeat_without_a_count_never_ends_in_both():
    ours, theirs = both(4)
    assert_agree(ours.repeat().take(11), theirs.repeat().take(11))


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("pad", [None, -7])
def test_padded_batch(size: int, drop: bool, pad: int | None):
    ragged = [np.arange(i * 3 % 5) for i in range(9)]
    ours = ps.from_arrays({"r": ragged, "x": np.arange(9)})
    theirs = tf.data.Dataset.from_generator(
        lambda: ({"r": r, "x": i} for i, r in enumerate(ragged)),
        output_signature={"r": tf.TensorSpec((None,), tf.int64), "x": tf.TensorSpec((), tf.int64)},
    )
    values = (
        None if pad is None else {"r": tf.constant(pad, tf.int64), "x": tf.constant(0, tf.int64)}
    )
    assert_agree(
        ours.padded_batch(size, drop_remainder=drop, padding_values=pad),
        theirs.padded_batch(size, drop_remainder=drop, padding_values=values),
    )


def test_padded_batch_of_two_dimensions():
    ragged = [np.full((i % 3 + 1, i % 4 + 1), i, "f4") for i in range(7)]
    theirs = tf.data.Dataset.from_generator(
        lambda: iter(ragged), output_signature=tf.TensorSpec((None, None), tf.float32)
    )
    assert_agree(ps.from_arrays(ragged).padded_batch(3), theirs.padded_batch(3))


def test_unbatch_of_an_axis_and_of_ragged_rows():
    x = np.arange(12).reshape(4, 3)
    assert_agree(ps.from_arrays(x).unbatch(), tf.data.Dataset.from_tensor_slices(x).unbatch())
    ragged = [np.arange(i) for i in range(5)]
    theirs = tf.data.Dataset.from_generator(
        lambda: iter(ragged), output_signature=tf.TensorSpec((None,), tf.int64)
    )
    assert_agree(ps.from_arrays(ragged).unbatch(), theirs.unbatch())


@pytest.mark.parametrize("lengths", [(5, 5), (5, 3), (0, 4)])
def test_zip_stops_with_the_shortest_as_tf_data_does(lengths: tuple[int, int]):
    (a, ta), (b, tb) = both(lengths[0]), both(lengths[1])
    assert_agree(ps.zip(a, b, strict=False), tf.data.Dataset.zip((ta, tb)))


def test_concatenate_joins_shapes_as_tf_data_does():
    (a, ta), (b, tb) = both(5), both(7)
    ours, theirs = ps.concatenate(a.batch(2), b.batch(3)), ta.batch(2).concatenate(tb.batch(3))
    assert_agree(ours, theirs)


def test_a_tuple_comes_in_parts_and_a_dict_whole_as_in_tf_data():
    x = np.arange(4)
    assert_agree(
        ps.from_arrays((x, (x, x))).map(lambda a, bc: a + bc[0] * bc[1]),
        tf.data.Dataset.from_tensor_slices((x, (x, x))).map(lambda a, bc: a + bc[0] * bc[1]),
    )
    assert_agree(
        ps.from_arrays({"a": x}).map(lambda d: d["a"] + 1),
        tf.data.Dataset.from_tensor_slices({"a": x}).map(lambda d: d["a"] + 1),
    )


def test_a_shape_that_may_differ_stays_so_through_a_map_as_in_tf_data():
    ragged = [np.arange(i % 3 + 1) for i in range(7)]
    theirs = tf.data.Dataset.from_generator(
        lambda: iter(ragged), output_signature=tf.TensorSpec((None,), tf.int64)
    )
    assert_agree(
        ps.from_arrays(ragged).map(lambda x: x * 2).padded_batch(2).map(lambda x: x + 1),
        theirs.map(lambda x: x * 2).padded_batch(2).map(lambda x: x + 1),
    )


def test_reduce_folds_as_tf_data_does():
    x = np.arange(10)
    ours = ps.from_arrays(x).reduce(np.int64(1), lambda total, value: total * 2 + value)
    theirs = tf.data.Dataset.from_tensor_slices(x).reduce(
        np.int64(1), lambda total, value: total * 2 + value
    )
    assert int(ours) == int(theirs)


def test_enumerate_counts_in_int64_from_anywhere():
    ours, theirs = both(3)
    assert_agree(ours.enumerate(7), theirs.enumerate(7))
    assert_agree(ours.enumerate(-2), theirs.enumerate(-2))


def test_the_cardinality_is_the_length():
    ours, theirs = both(23)
    for build in (
        lambda d: d.batch(4),
        lambda d: d.batch(4, drop_remainder=True),
        lambda d: d.take(100).skip(5).repeat(3).batch(7),
        lambda d: d.skip(50),
        lambda d: d.repeat(0),
    ):
        assert len(build(ours)) == int(build(theirs).cardinality())
