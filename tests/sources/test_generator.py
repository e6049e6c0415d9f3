"""Rows from generators: checked, copied, resumed, and ended well."""

import itertools
import json
import threading

import numpy as np
import pytest

import penstock as ps

PAIR = (ps.ArraySpec((3,), "float32"), ps.ArraySpec((), "int32"))


def pairs(count=10):
    def rows():
        for number in range(count):
            yield np.full(3, number, "float32"), number

    return rows


def labels(ds):
    return [label for batch in ds for label in np.atleast_1d(batch[1]).tolist()]


def test_a_generator_gives_its_rows_in_order_every_epoch():
    ds = ps.from_generator(pairs(), PAIR).batch(4)
    assert labels(ds) == list(range(10))
    assert labels(ds) == list(range(10))


def test_the_length_is_unknown_unless_it_is_given():
    with pytest.raises(TypeError, match="can't be known"):
        len(ps.from_generator(pairs(), PAIR))
    assert len(ps.from_generator(pairs(), PAIR, length=10).batch(4)) == 3


@pytest.mark.parametrize("length", [9, 11])
def test_a_length_that_is_not_kept_is_an_error(length):
    with pytest.raises(
        ps.LengthError, match=f"ended after 10 rows, but length={length} was declared"
    ):
        list(ps.from_generator(pairs(), PAIR, length=length))


def test_dicts_bare_values_text_and_ragged_rows_are_taken():
    rows = [{"x": np.arange(n), "name": "a" * n} for n in range(4)]
    spec = {"x": ps.ArraySpec((None,), "int64"), "name": ps.ArraySpec((), str)}
    found = list(ps.from_generator(lambda: iter(rows), spec))
    assert [row["name"] for row in found] == ["", "a", "aa", "aaa"]
    assert [row["x"].tolist() for row in found] == [[], [0], [0, 1], [0, 1, 2]]
    assert list(map(int, ps.from_generator(lambda: iter(range(3)), ps.ArraySpec((), "int8")))) == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ((np.zeros(4, "float32"), 1), r"row 2, field '0': got an array of shape \(4,\)"),
        (
            (np.zeros(3, "float64"), 1),
            r"row 2, field '0': got dtype float64, which can't become float32",
        ),
        ((np.zeros(3, "float32"), 1.5), r"row 2, field '1': got dtype float64"),
        ((np.zeros(3, "float32"), 2**40), r"row 2"),
        ((np.zeros(3, "float32"),), r"row 2: must be a nest like .* got a tuple of 1"),
        ([1, 2], r"row 2: must be a nest like .* got list"),
        ({"x": 1}, r"row 2: must be a nest like .* got a dict with 'x'"),
    ],
)
def test_a_row_that_does_not_match_is_an_error_that_names_row_field_and_both_specs(bad, message):
    def rows():
        yield from pairs(2)()
        yield bad

    with pytest.raises(ps.PenstockError, match=message):
        list(ps.from_generator(rows, PAIR).batch(2))


def test_an_exception_of_the_generator_comes_with_its_row_and_cause():
    def rows():
        yield from pairs(5)()
        raise KeyError("gone")

    with pytest.raises(
        ps.FunctionError, match=r"from_generator\(.*rows\).*row 5: KeyError"
    ) as caught:
        list(ps.from_generator(rows, PAIR))
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_generator_object_that_can_be_read_once_is_refused_with_the_cure():
    with pytest.raises(TypeError, match=r"right: from_generator\(rows, spec\)"):
        ps.from_generator(pairs()(), PAIR)


@pytest.mark.parametrize(
    ("result", "words"),
    [
        (None, "must return an iterator over rows, got NoneType; does it lack a yield"),
        (3, "must return an iterator over rows, got int; yield its rows"),
    ],
)
def test_a_function_that_returns_no_iterator_is_told_what_is_missing(result, words):
    ds = ps.from_generator(lambda: result, ps.ArraySpec((), "int64"))
    with pytest.raises(ps.FunctionError, match=words):
        list(ds)


def test_an_iterable_object_is_started_anew_each_epoch():
    ds = ps.from_generator([(np.zeros(3, "float32"), n) for n in range(4)], PAIR)
    assert labels(ds) == labels(ds) == [0, 1, 2, 3]


def test_endless_generators_work_with_take():
    def rows():
        for number in itertools.count():
            yield np.zeros(3, "float32"), number

    assert labels(ps.from_generator(rows, PAIR).take(5)) == [0, 1, 2, 3, 4]


def test_a_stream_resumes_at_every_row_by_replaying():
    ds = ps.from_generator(pairs(20), PAIR).batch(3)
    states = []
    with ds.stream() as stream:
        for _ in stream:
            states.append(json.loads(json.dumps(stream.state())))
    for done, state in enumerate(states[:-1], start=1):
        assert labels(ds.stream(state=state)) == list(range(3 * done, 20))


class Counter:
    """An iterator that can be put back."""

    started = 0

    def __init__(self):
        self.next = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == 20:
            raise StopIteration
        Counter.started += 1
        self.next += 1
        return np.zeros(3, "float32"), self.next - 1

    def state(self):
        return self.next

    def restore(self, state):
        self.next = state


def test_an_iterator_with_state_and_restore_is_put_back_at_once():
    ds = ps.from_generator(Counter, PAIR).batch(2)
    with ds.stream() as stream:
        for _ in range(8):
            next(stream)
        state = stream.state()
    Counter.started = 0
    assert labels(ds.stream(state=state)) == [16, 17, 18, 19]
    assert Counter.started < 16


def test_many_rows_an_item_are_taken_apart():
    def blocks():
        for start in (0, 3, 3, 5):
            numbers = np.arange(start, {0: 3, 3: 3, 5: 9}[start], dtype="int32")
            yield np.repeat(numbers[:, None], 3, axis=1).astype("float32"), numbers

    ds = ps.from_generator(blocks, PAIR, rows_per_item="many")
    assert labels(ds) == [0, 1, 2, 5, 6, 7, 8]


def test_an_item_of_many_rows_with_fields_of_unlike_lengths_is_named():
    def blocks():
        for number in range(6):
            yield np.zeros((3, 3), "float32"), np.zeros(3 + (number == 4), "int32")

    ds = ps.from_generator(blocks, PAIR, rows_per_item="many")
    match = r"from_generator\(blocks\), .*on item 4: .* got 4 in field '1' and 3 in the first one"
    with pytest.raises(ps.SpecMismatchError, match=match):
        labels(ds)


def test_interleave_is_the_same_whichever_generator_is_faster():
    def source(base, gate=None):
        def rows():
            for number in range(50):
                if gate is not None:
                    gate.wait(0.001)
                yield base + number

        return rows

    spec = ps.ArraySpec((), "int64")
    quick = list(map(int, ps.interleave([source(0), source(100)], spec, seed=1)))
    gate = threading.Event()
    slow = list(map(int, ps.interleave([source(0, gate), source(100)], spec, seed=1)))
    assert quick == slow
    assert sorted(quick) == [*range(50), *range(100, 150)]
    assert quick != sorted(quick)


def test_abandoning_a_stream_closes_the_generator():
    closed = threading.Event()

    def rows():
        try:
            for number in itertools.count():
                yield np.zeros(3, "float32"), number
        finally:
            closed.set()

    with ps.from_generator(rows, PAIR).batch(2).stream() as stream:
        next(stream)
    assert closed.wait(5)


def test_explain_says_that_a_generator_replays():
    assert "a resume runs it again" in str(ps.from_generator(pairs(), PAIR).explain())


def test_the_written_out_loop_agrees_with_the_plain_way():
    numbers = [0, 1, np.int32(2), np.int64(3), True, np.int8(4)]
    rows = [(np.full(3, n, "float32"), n) for n in range(len(numbers))]
    rows = [(x, number) for (x, _), number in zip(rows, numbers, strict=True)]
    flat = list(ps.from_generator(lambda: iter(rows[:4]), (PAIR[0], ps.ArraySpec((), "int64"))))
    nested = list(
        ps.from_generator(
            lambda: iter([{"a": x, "b": y} for x, y in rows[:4]]),
            {"a": PAIR[0], "b": ps.ArraySpec((), "int64")},
        )
    )
    assert [int(y) for _, y in flat] == [int(row["b"]) for row in nested] == [0, 1, 2, 3]
