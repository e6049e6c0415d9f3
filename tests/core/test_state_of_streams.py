"""States that were changed: a stream refuses them by name, or goes on from a place that there is."""

import copy
import itertools
import json
import warnings

import numpy as np
import pytest

import penstock as ps

NUM_ROWS = 23
X = np.arange(NUM_ROWS)
RAGGED = ps.ArraySpec((None,), "int64")


def keep(x):
    return True


def rows(path):
    return ps.from_arrays(X)


def flow(path):
    return rows(path).filter(keep)


def csv(path):
    for number in range(2):
        lines = [f"{row},{row % 3}" for row in range(12 * number, 12 * number + 12)]
        (path / f"{number}.csv").write_text("\n".join(["a,b", *lines, ""]))
    return ps.from_files(path / "*.csv")


def text(path):
    for number in range(2):
        (path / f"{number}.txt").write_text("\n".join(f"line {row}" for row in range(12)) + "\n")
    return ps.from_files(path / "*.txt")


def npz(path):
    for number in range(2):
        np.savez_compressed(path / f"{number}.npz", x=np.arange(12), y=np.arange(12.0))
    return ps.from_files(path / "*.npz")


def records(path):
    ps.from_arrays({"x": X}).write(path / "records", format="tfrecord", shard_rows=12)
    return ps.from_tfrecord(path / "records").with_options(on_error="skip")


def skipping(path):
    np.save(path / "x.npy", X)
    return ps.from_files(path / "x.npy").with_options(on_error="skip")


def generated(path):
    return ps.from_generator(lambda: iter(X), ps.ArraySpec((), "int64"))


class Restorable:
    """An iterator with a state of its own."""

    def __init__(self):
        self.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= NUM_ROWS:
            raise StopIteration
        self.at += 1
        return X[self.at - 1]

    def state(self):
        return {"at": self.at}

    def restore(self, state):
        self.at = state["at"]


CHAINS = {
    "rows": rows,
    "batches": lambda path: rows(path).shuffle(seed=1).batch(3),
    "filter": flow,
    "map": lambda path: flow(path).map(lambda x: x + 1),
    "batch": lambda path: flow(path).batch(3),
    "padded_batch": lambda path: flow(path)
    .map(lambda x: np.arange(x % 4), spec=RAGGED)
    .padded_batch(3),
    "shuffle": lambda path: flow(path).shuffle(seed=1, window=64).batch(2),
    "zip": lambda path: ps.zip(flow(path), rows(path), strict=False),
    "mix": lambda path: ps.mix([flow(path), rows(path)], weights=[1, 2], seed=1),
    "mix to the end": lambda path: ps.mix([flow(path), flow(path).take(4)], seed=1, stop="all"),
    "concatenate": lambda path: ps.concatenate(flow(path), rows(path)),
    "unbatch": lambda path: flow(path).batch(3).filter(keep).unbatch(),
    "ragged unbatch": lambda path: flow(path)
    .map(lambda x: np.arange(x % 4), spec=RAGGED)
    .unbatch(),
    "take": lambda path: flow(path).take(15),
    "skip": lambda path: flow(path).skip(3),
    "shard": lambda path: flow(path).shard(2, 1),
    "repeat": lambda path: flow(path).repeat(2),
    "endless": lambda path: flow(path).repeat(),
    "enumerate": lambda path: flow(path).enumerate(),
    "cache": lambda path: flow(path).cache(),
    "cache on disk": lambda path: flow(path).cache(str(path / "cache")),
    "shuffled cache": lambda path: flow(path).cache().shuffle(seed=1),
    "cached rows": lambda path: rows(path).cache(str(path / "cache")),
    "csv": csv,
    "text": text,
    "npz": npz,
    "tfrecord": records,
    "skipping": skipping,
    "generator": generated,
    "restorable": lambda path: ps.from_generator(Restorable, ps.ArraySpec((), "int64")),
    "deep": lambda path: ps.zip(
        flow(path).shuffle(seed=1, window=64).batch(2).take(9).filter(lambda x: True).repeat(2),
        ps.concatenate(flow(path), flow(path)).skip(2).enumerate(),
        strict=False,
    ),
}  # fmt: skip
WRONG = [
    None, True, -1, 1, 10**6, 2**61, 2**70, 1.5, float("nan"), "1", [], [0, None], [1, 2, 3], {"a": 1},
]  # fmt: skip


def places(value, path=()):
    """Yield the path to everything in a nest."""
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield from places(inner, (*path, key))


def changed(value, path, wrong):
    if not path:
        return wrong
    value = copy.copy(value)
    value[path[0]] = changed(value[path[0]], path[1:], wrong)
    return value


@pytest.fixture(params=CHAINS)
def chain(request, tmp_path):
    ds = CHAINS[request.param](tmp_path)
    return ds.with_options(threads=0, processes=0)


def state_of(ds, count):
    with ds.stream() as stream:
        for _ in range(count):
            next(stream)
        return json.loads(json.dumps(stream.state()))


def go_on(ds, state):
    """Take what there is, but not for ever."""
    with warnings.catch_warnings():
        # That a shuffle has more than one window.
        warnings.simplefilter("ignore", ps.PenstockWarning)
        with ds.stream(state=state) as stream:
            return list(itertools.islice(stream, 3 * NUM_ROWS))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_a_state_that_was_changed_anywhere_is_refused_or_is_a_place_that_there_is(chain):
    state = state_of(chain, 5)
    expected = go_on(chain, state)
    assert expected
    refused = 0
    for path in places(state):
        for wrong in WRONG:
            try:
                go_on(chain, changed(state, path, wrong))
            except ps.PenstockError:
                refused += 1
    assert refused > 40
    assert repr(go_on(chain, state)) == repr(expected)


@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_a_key_more_or_less_is_refused(chain):
    state = state_of(chain, 5)
    for key in state:
        with pytest.raises(ps.StateError):
            go_on(chain, {name: state[name] for name in state if name != key})
    with pytest.raises(ps.StateError, match="changed since"):
        go_on(chain, state | {"more": 1})


@pytest.mark.filterwarnings("ignore::penstock.PenstockWarning")
def test_a_cursor_of_another_shape_is_refused_by_name(chain):
    state = state_of(chain, 5)
    for wrong in ("x", {}, [[[[]]]], -1, 1.5, True, 2**70):
        with pytest.raises(
            ps.StateError, match=r"changed since state\(\) made it: .*can't stand at"
        ):
            go_on(chain, state | {"cursor": wrong})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"element": 99}, "after 99 elements, and an epoch has 23"),
        ({"element": 4}, "after 4 elements, and its cursor is 5"),
        ({"cursor": 6}, "after 5 elements, and its cursor is 6"),
        ({"cursor": 24}, "can't stand at 24"),
        ({"cursor": None}, "after 5 elements, and has no cursor"),
        ({"epoch": 2**60}, "changed since"),
    ],
)
def test_elements_that_do_not_fit_the_cursor_are_refused(changes, message, tmp_path):
    state = state_of(rows(tmp_path), 5) | changes
    with pytest.raises(ps.StateError, match=message):
        rows(tmp_path).stream(state=state)
    feed = rows(tmp_path).batch(1).to_torch()
    with pytest.raises(ps.StateError):
        feed.resume(state_of(rows(tmp_path).batch(1), 5) | changes)


def test_a_window_that_would_have_less_rows_than_were_used_is_refused(tmp_path):
    ds = flow(tmp_path).shuffle(seed=1, window=64).with_options(threads=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ps.PenstockWarning)
        state = state_of(ds, 5)
    number, _, inner = state["cursor"]
    with pytest.raises(ps.StateError, match=r"shuffle\(seed=1.*can't stand at"):
        go_on(ds, state | {"cursor": [number, 1000, inner]})
