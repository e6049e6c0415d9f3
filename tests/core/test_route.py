"""Routes: what one native call reads is what the plain way reads, whichever stages stand before it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import penstock as ps
from penstock import _native
from penstock.core.route import Batches, Passes, Shifted, Tables, beside
from penstock.core.rows import plain_context

TABLE = np.arange(40, dtype=np.uint8).reshape(10, 4)


def rows_of(route, start, stop):
    """Return the rows of a route of bytes, read natively."""
    memory = np.zeros((stop - start) * (route.batch_size or 1) * 4, np.uint8)
    job = _native.Job(
        route.parts(start, stop), memory, np.array([[0, memory.nbytes]]), max(1, memory.nbytes // 4)
    )
    job.run()
    return (memory.reshape(-1, 4)[: job.num_rows, 0] // 4).tolist()


def test_steps_are_taken_from_the_outermost_to_the_tables():
    route = Tables((TABLE,))
    assert rows_of(route, 2, 5) == [2, 3, 4]
    assert rows_of(route.strided(3, 1), 0, 3) == [1, 4, 7]
    assert rows_of(route.strided(3, 1).strided(1, 1), 0, 2) == [4, 7]
    order = rows_of(route.shuffled(10, (0, 0)), 0, 10)
    assert order == ps.core.order.Permutation(10, (0, 0)).rows(np.arange(10)).tolist()
    assert rows_of(route.shuffled(10, (0, 0)).strided(2, 1), 0, 5) == order[1::2]


def test_passes_batches_and_shifts():
    route = Tables((TABLE,))
    passes = Passes(10, lambda number: route.shuffled(10, (0, number)), None)
    orders = [rows_of(route.shuffled(10, (0, number)), 0, 10) for number in range(3)]
    assert rows_of(passes, 8, 23) == (orders[0] + orders[1] + orders[2])[8:23]
    batches = Batches(route, 4, 10, is_whole=False)
    assert rows_of(batches, 1, 3) == [4, 5, 6, 7, 8, 9]
    assert rows_of(Shifted(batches, 1), 1, 2) == [8, 9]
    assert (batches.strided(2, 0), batches.shuffled(3, (0,))) == (None, None)


def test_tables_stand_side_by_side_only_as_they_are():
    route = Tables((TABLE,))
    both = beside([route, route])
    assert isinstance(both, Tables)
    assert len(both.tables) == 2
    assert beside([route, route.strided(1, 1)]) is None
    assert beside([route, None]) is None


STAGES = ("take", "skip", "shard", "shuffle", "repeat", "batch", "distribute")


@st.composite
def chains(draw):
    """Any chain of the stages that have a route, over one or two datasets of arrays."""
    num_rows = draw(st.integers(1, 60))
    dtype = draw(
        st.sampled_from(["f4", ">i2", "u1", "U3", "c16", "M8[s]", [("a", "i4"), ("b", "f8")]])
    )
    x = np.zeros((num_rows, *draw(st.sampled_from([(), (3,), (2, 0), (2, 2)]))), dtype)
    flat = x.view(np.uint8) if x.nbytes and x.dtype.kind != "V" else None
    if flat is not None and x.dtype.kind != "U":
        flat[...] = np.random.default_rng(num_rows).integers(0, 60, flat.shape)
    ds = ps.from_arrays((x, np.arange(num_rows)))
    if draw(st.booleans()):
        ds = ps.zip(ds, ps.from_arrays({"z": np.arange(num_rows, dtype="i2")[::-1]}))
    names = draw(st.lists(st.sampled_from(STAGES), max_size=6))
    for name in names:
        number = draw(st.integers(1, 7))
        if name == "distribute":
            if ds.node.is_batched or len(ds) == 0:
                continue
            ds = ds.batch(6, drop_remainder=draw(st.booleans()))
            return ds.distribute(rank=number % 3, world=3, uneven="drop")
        if name == "batch" and ds.node.is_batched:
            continue
        ds = {
            "take": lambda ds=ds, n=number: ds.take(8 * n),
            "skip": lambda ds=ds, n=number: ds.skip(n),
            "shard": lambda ds=ds, n=number: ds.shard(n, n // 2),
            "shuffle": lambda ds=ds, n=number: ds.shuffle(seed=n),
            "repeat": lambda ds=ds, n=number: ds.repeat(1 + n % 3),
            "batch": lambda ds=ds, n=number: ds.batch(n, drop_remainder=n % 2 == 0),
        }[name]()
    return ds


def plain_rows(node, epoch):
    """Return the columns of all rows, read without a route."""
    context = plain_context(epoch)
    block = context.block(node, node.num_rows)
    if node.num_rows:
        node.read(slice(0, node.num_rows), block, context)
    return block.finish()


@given(chains(), st.integers(0, 2), st.sampled_from([0, 1, 2]))
def test_a_stream_by_its_route_has_the_rows_of_plain_reads(ds, epoch, threads):
    block = plain_rows(ds.node, epoch)
    wanted = [block.row(row) for row in range(block.num_rows)]
    with (
        ds.with_options(threads=threads or None, memory="4MB")
        .prefetch(2 * threads)
        .stream(epoch=epoch) as stream
    ):
        found = [ps.core.nest.flatten(element)[0] for element in stream]
    assert len(found) == len(wanted)
    for mine, theirs in zip(found, wanted, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize(
    ("make", "has_route"),
    [
        (lambda ds: ds, True),
        (lambda ds: ds.shuffle().batch(8), True),
        (lambda ds: ds.shuffle().repeat().batch(8), True),
        (lambda ds: ds.shuffle().batch(5).repeat(2), True),
        (lambda ds: ds.shuffle().batch(8).repeat(2), False),  # A batch in the middle is cut short.
        (lambda ds: ds.batch(8).shuffle(), False),
        (lambda ds: ds.batch(4).batch(2), False),
        (lambda ds: ds.map(lambda x: x + 1), False),
    ],
)
def test_which_chains_have_a_route(make, has_route):
    node = make(ps.from_arrays(np.arange(100.0))).node
    assert (node.route(0) is not None) is has_route


def test_a_cache_has_a_route_once_it_is_full_and_its_input_is_not_read():
    ds = ps.from_arrays(np.arange(100.0)).shuffle(seed=3).cache().shuffle(seed=5).batch(8)
    assert ds.node.route(1) is None
    plain = [batch.tolist() for batch in ds.stream(epoch=1)]
    assert ds.node.route(1) is not None
    with ds.stream(epoch=1) as stream:
        assert [batch.tolist() for batch in stream] == plain
        stages = {stage.call: stage.num_rows for stage in stream.report().stages}
    assert stages["cache()"] == 100
    assert stages["from_arrays((100) float64)"] == 0


@pytest.mark.parametrize(
    "array", [np.arange(12.0).reshape(3, 4).T, np.asfortranarray(np.ones((3, 4))), ["a", "b"]]
)
def test_arrays_whose_rows_are_in_pieces_have_none(array):
    assert ps.from_arrays(array).node.route(0) is None
