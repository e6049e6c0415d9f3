"""What orders, epochs, seeds and states mean: each sentence of the design is a test here."""

import copy
import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.order import Permutation

N = 20


def numbers(num_rows: int = N) -> ps.Dataset:
    return ps.from_arrays(np.arange(num_rows))


def values(ds: ps.Dataset, **options: Any) -> list[int]:
    with ds.stream(**options) as stream:
        return [int(value) for value in stream]


# -- golden orders: a change here breaks the promise that a seed gives the same batches for ever --

GOLDEN: dict[tuple[int, int, int], list[int]] = {
    (1, 0, 0): [0],
    (2, 0, 0): [0, 1],
    (2, 1, 0): [0, 1],
    (10, 0, 0): [8, 1, 6, 4, 3, 9, 0, 2],
    (10, 0, 1): [3, 7, 0, 6, 4, 9, 2, 8],
    (10, 1, 0): [6, 5, 4, 9, 7, 3, 1, 0],
    (97, 5, 2): [39, 9, 65, 62, 35, 47, 56, 89],
    (1000, 4611686018427387904, 3): [756, 109, 458, 794, 115, 791, 648, 313],
    (4294967297, 0, 0): [
        208703245,
        2021521453,
        236914660,
        311402798,
        101679587,
        3142877755,
        1064089776,
        546295714,
    ],
    (8589934599, 1, 4): [
        5097581431,
        58576079,
        3009731486,
        3537309748,
        1355637263,
        54737972,
        4790593606,
        7015753084,
    ],
    (35184372088832, 12345, 1000000): [
        13544097272976,
        23981020672830,
        20609624089324,
        22788635004253,
        23075004848417,
        1509693446285,
        11401231436153,
        10943890369427,
    ],
    (1000000000039, 7, 0): [
        728262900713,
        403545257184,
        413060266756,
        265919442070,
        761263548001,
        880769107557,
        340260077151,
        743652582521,
    ],
}


@pytest.mark.parametrize(("num_rows", "seed", "epoch"), GOLDEN)
def test_golden_orders_of_shuffle_never_change(num_rows: int, seed: int, epoch: int):
    rows = np.broadcast_to(np.int8(0), (num_rows,))
    expected = GOLDEN[num_rows, seed, epoch]
    ds = ps.from_arrays(rows).enumerate().map(lambda i, _: i).shuffle(seed=seed).take(8)
    assert values(ds, epoch=epoch) == expected


def test_golden_orders_of_a_second_shuffle_and_of_windows_never_change():
    assert values(numbers(8).shuffle().shuffle()) == [7, 1, 4, 6, 5, 2, 3, 0]
    assert values(numbers(8).filter(lambda x: True).shuffle()) == [0, 1, 2, 3, 5, 4, 6, 7]
    windows = numbers(12).filter(lambda x: True).shuffle(window=8 * 5)
    assert values(windows) == [2, 3, 1, 0, 4, 5, 6, 8, 7, 9, 11, 10]
    assert values(numbers(8).batch(2).shuffle(seed=1).unbatch()) == [0, 1, 2, 3, 6, 7, 4, 5]


def test_golden_patterns_of_mix_never_change():
    parts = [ps.from_arrays(np.full(30, i)) for i in range(3)]
    assert values(ps.mix(parts, weights=[3, 2, 1], seed=4).take(16)) == [
        1,
        1,
        1,
        1,
        0,
        1,
        1,
        1,
        1,
        0,
        2,
        1,
        1,
        1,
        2,
        1,
    ]
    assert values(ps.mix([p.take(3) for p in parts], stop="all")) == [2, 0, 1, 0, 2, 2, 1, 1, 0]


def test_golden_numbers_of_a_seeded_map_never_change():
    ds = numbers(4).map(lambda x, random: random.integers(1 << 30), seed=9)
    assert values(ds) == [581890245, 208294301, 89493771, 922811577]
    assert values(ds, epoch=1) == [917155922, 865505176, 1004488595, 603364644]


def test_an_order_is_part_of_a_state_that_was_saved_by_an_earlier_version():
    """A state as it was written when states got version 2: it must go on where it was."""
    ds = ps.from_arrays((np.arange(50), np.arange(50.0))).shuffle(seed=7).batch(4).repeat(2)
    state = json.loads(
        '{"version": 2, "fingerprint": "100fcdc7682a4119", "epoch": 0, "element": 5, "cursor": 5}'
    )
    assert state == _state_after(ds, 5)
    with ds.stream(state=state) as stream:
        assert next(stream)[0].tolist() == [27, 8, 42, 41]


def _state_after(ds: ps.Dataset, count: int) -> dict[str, Any]:
    with ds.stream() as stream:
        for _ in range(count):
            next(stream)
        return stream.state()


# -- epochs ---------------------------------------------------------------------------------------


def test_a_stream_is_one_epoch_and_iter_runs_the_next():
    ds = numbers().shuffle()
    first, second = [int(x) for x in ds], [int(x) for x in ds]
    assert first == values(ds, epoch=0)
    assert second == values(ds, epoch=1)
    assert first != second
    assert sorted(first) == sorted(second) == list(range(N))


def test_the_epoch_counter_belongs_to_one_dataset_alone():
    ds = numbers().shuffle()
    list(ds)
    list(ds)
    for other in (
        pickle.loads(pickle.dumps(ds)),
        copy.copy(ds),
        ds.with_options(threads=1),
        ds.take(N),
    ):
        assert [int(x) for x in other] == values(ds, epoch=0)
    assert [int(x) for x in ds] == values(ds, epoch=2)


def test_opening_a_stream_by_name_does_not_count_as_an_epoch():
    ds = numbers().shuffle()
    values(ds)
    values(ds, epoch=5)
    assert [int(x) for x in ds] == values(ds, epoch=0)


def test_shuffle_then_repeat_is_differently_shuffled_passes():
    found = values(numbers().shuffle().repeat(3))
    passes = [found[i : i + N] for i in range(0, 3 * N, N)]
    assert all(sorted(one) == list(range(N)) for one in passes)
    assert passes == [values(numbers().shuffle(), epoch=epoch) for epoch in range(3)]
    assert values(numbers().shuffle().repeat(3), epoch=1)[:N] == values(
        numbers().shuffle(), epoch=3
    )


def test_repeat_then_shuffle_mixes_the_passes():
    found = values(numbers().repeat(3).shuffle())
    assert sorted(found) == sorted([*range(N)] * 3)
    assert any(sorted(found[i : i + N]) != list(range(N)) for i in range(0, 3 * N, N))


def test_endless_repeat_then_shuffle_is_an_error_that_shows_the_right_way():
    with pytest.raises(
        ValueError, match=r"wrong: ds.repeat\(\).shuffle\(\)\n.*right: ds.shuffle\(\).repeat\(\)"
    ):
        numbers().repeat().shuffle()


def test_an_endless_repeat_is_a_new_shuffle_each_pass():
    found = [int(x) for x in itertools.islice(numbers().shuffle().repeat(), 3 * N)]
    assert found[:N] != found[N : 2 * N]
    assert all(sorted(found[i : i + N]) == list(range(N)) for i in range(0, 3 * N, N))
    assert (
        len({tuple(values(numbers().shuffle().repeat().take(N), epoch=e)) for e in range(4)}) == 4
    )


def test_repeats_of_repeats_never_use_an_epoch_twice():
    found = values(numbers().shuffle().repeat(2).repeat(2))
    assert len({tuple(found[i : i + N]) for i in range(0, 4 * N, N)}) == 4


def test_after_the_last_batch_the_state_is_the_first_of_the_next_epoch():
    for ds in (numbers().shuffle().batch(6), numbers().filter(lambda x: x < 13).shuffle().batch(6)):
        with ds.stream(epoch=4) as stream:
            batches = list(stream)
            state = stream.state()
        assert (state["epoch"], state["element"], state["cursor"]) == (5, 0, None)
        assert batches
        with ds.stream(state=state) as resumed, ds.stream(epoch=5) as fifth:
            assert [b.tolist() for b in resumed] == [b.tolist() for b in fifth]


def test_the_state_already_means_the_next_epoch_when_the_last_batch_was_received():
    with numbers().batch(10).stream() as stream:
        next(stream)
        next(stream)
        assert (stream.state()["epoch"], stream.state()["element"]) == (1, 0)


# -- order ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("chain", ["rows", "flow"])
def test_the_order_depends_on_neither_budget_nor_threads_nor_prefetch(chain: str):
    rows = np.arange(6000).reshape(2000, 3)
    ds = ps.from_arrays(rows)
    ds = ds.filter(lambda x: True) if chain == "flow" else ds
    ds = ds.shuffle(seed=3, window="20KB").batch(7).map(lambda x: x + 1)
    expected = np.concatenate(list(ds.with_options(threads=0)))
    for options in ({"memory": "1MB"}, {"memory": "1GB", "threads": 1}, {"threads": 5}):
        assert (np.concatenate(list(ds.with_options(**options))) == expected).all()
    assert (np.concatenate(list(ds.prefetch(0))) == expected).all()
    assert (np.concatenate(list(ds.prefetch(9))) == expected).all()


def test_the_order_does_not_depend_on_the_values_or_on_where_they_are():
    other = ps.from_arrays(np.arange(0, 3 * N, 3)).shuffle(seed=2)
    assert [x // 3 for x in values(other)] == values(numbers().shuffle(seed=2))


def test_shuffle_visits_every_row_once_an_epoch_for_every_number_of_rows():
    for num_rows in (0, 1, 2, 3, 5, 97, 1000):
        ds = numbers(num_rows).shuffle(seed=num_rows)
        for epoch in range(3):
            assert sorted(values(ds, epoch=epoch)) == list(range(num_rows))


def test_rows_past_two_to_the_32_are_all_in_reach():
    num_rows = (1 << 33) + 7
    found = Permutation(num_rows, (0, 0, 0)).rows(np.arange(1000))
    assert found.max() > 1 << 32
    assert len(set(found.tolist())) == 1000
    assert found.min() >= 0
    assert found.max() < num_rows


# -- seeds ----------------------------------------------------------------------------------------


def test_shuffle_without_a_seed_has_seed_0():
    assert values(numbers().shuffle()) == values(numbers().shuffle(seed=0))
    assert values(numbers().shuffle()) != values(numbers().shuffle(seed=1))


def test_a_seed_of_none_is_drawn_when_the_chain_is_built_and_kept():
    ds = numbers(1000).shuffle(seed=None)
    assert values(ds) == values(ds)
    assert values(pickle.loads(pickle.dumps(ds))) == values(ds)
    assert values(ds) != values(numbers(1000).shuffle(seed=None))
    state = _state_after(ds, 3)
    assert values(ds, state=state) == values(ds)[3:]


@pytest.mark.parametrize("argument", [1024, None, "x"])
def test_a_positional_argument_of_shuffle_says_what_to_write(argument: Any):
    with pytest.raises(
        TypeError,
        match=r"shuffle takes no buffer size.*\n.*wrong: .*\n.*right: ds.shuffle\(seed=0\)",
    ):
        numbers().shuffle(argument)


def test_a_shuffle_after_batch_moves_whole_batches_and_explain_says_so():
    ds = numbers().batch(5).shuffle(seed=1)
    assert sorted(b.tolist() for b in ds) == [list(range(i, i + 5)) for i in range(0, N, 5)]
    assert any("shuffle after batch mixes whole batches" in note for note in ds.explain().notes)


def test_a_function_named_like_a_stage_is_not_taken_for_it():
    def my_shuffle(x: Any) -> Any:
        return x

    assert numbers().batch(5).map(my_shuffle).explain().notes == ()


# -- states ---------------------------------------------------------------------------------------


def test_a_state_of_another_chain_is_refused():
    ds = numbers().shuffle(seed=1).batch(4)
    state = _state_after(ds, 2)
    for other in (
        numbers().shuffle(seed=2).batch(4),
        numbers().shuffle(seed=1).batch(5),
        numbers().shuffle(seed=1).batch(4, drop_remainder=True),
        numbers(N + 1).shuffle(seed=1).batch(4),
        numbers().batch(4).shuffle(seed=1),
        ps.from_arrays(np.arange(N, dtype="i4")).shuffle(seed=1).batch(4),
        numbers().shuffle(seed=1).batch(4).map(lambda x: x),
        numbers().shuffle(seed=1).batch(4).repeat(2),
    ):
        with pytest.raises(ps.StateError, match="belongs to another pipeline"):
            other.stream(state=state)


def test_a_state_of_the_same_chain_with_other_options_is_taken():
    ds = numbers().shuffle(seed=1).batch(4)
    state = _state_after(ds, 2)
    for other in (
        ds.with_options(threads=3, memory="10MB"),
        ds.prefetch(0),
        pickle.loads(pickle.dumps(ds)),
    ):
        with other.stream(state=state) as stream:
            assert next(stream).tolist() == [b.tolist() for b in ds.stream()][2]


def test_a_state_of_another_version_or_of_no_stream_is_refused():
    ds = numbers()
    state = _state_after(ds, 2)
    with pytest.raises(ps.StateError, match="has version 99, and this penstock reads version 2"):
        ds.stream(state=state | {"version": 99})
    for wrong in ({}, {"cursor": 3}):
        with pytest.raises(ps.StateError, match=r"made by state\(\)"):
            ds.stream(state=wrong)
    with pytest.raises(ps.StateError, match="epoch=7 contradicts the state, which is in epoch 0"):
        ds.stream(epoch=7, state=state)


def test_a_state_is_small_and_json_whatever_was_prefetched():
    ds = numbers(5000).shuffle().filter(lambda x: x % 3).batch(4).repeat(2)
    with ds.stream() as stream:
        for _ in range(50):
            next(stream)
            state = stream.state()
            assert state == json.loads(json.dumps(state))
            assert len(json.dumps(state)) < 300
        assert state["element"] == 50


def test_resuming_costs_the_same_wherever_rows_can_be_addressed():
    reads: list[int] = []

    class Counting:
        shape = (1 << 30, 1)
        dtype = np.dtype("u1")

        def __getitem__(self, key: slice) -> Any:
            reads.append(key.stop - key.start)
            return np.zeros((key.stop - key.start, 1), "u1")

    ds = ps.from_arrays(Counting()).batch(32).with_options(threads=0)
    counts = []
    for element in (10, 10_000_000):
        reads.clear()
        state = ds.stream().state() | {"element": element, "cursor": element}
        with ds.stream(state=state) as stream:
            next(stream)
        counts.append(sum(reads))
    assert counts[0] == counts[1]


# -- combining, options, lengths ------------------------------------------------------------------


def test_zip_of_unequal_lengths_is_an_error_unless_it_is_not_strict():
    with pytest.raises(ps.LengthError, match=r"got 20 rows and 5 rows.\n.*strict=False"):
        ps.zip(numbers(), numbers(5))
    with pytest.raises(ps.LengthError, match="got 20 rows and endless"):
        ps.zip(numbers(), numbers(5).repeat())
    assert len(ps.zip(numbers(), numbers(5), strict=False)) == 5


def test_with_options_holds_for_the_whole_chain_and_the_last_wins():
    ds = (
        numbers()
        .with_options(memory="1MB")
        .batch(4)
        .with_options(memory="2MB", threads=1)
        .shuffle()
    )
    assert (ds.explain().budget_nbytes, ds.explain().threads) == (2_000_000, 1)
    assert ds.with_options(threads=2).explain().budget_nbytes == 2_000_000


def test_options_that_conflict_are_an_error():
    a, b = numbers().with_options(memory="1MB"), numbers().with_options(memory="2MB")
    for combine in (ps.zip, ps.concatenate, lambda *parts: ps.mix(parts)):
        with pytest.raises(
            ValueError, match="must agree in their options, got memory=1000000 and memory=2000000"
        ):
            combine(a, b)
        assert combine(a, numbers()).explain().budget_nbytes == 1_000_000
        assert combine(a, a).explain().budget_nbytes == 1_000_000


def test_prefetch_sets_the_final_depth_and_0_turns_it_off():
    ds = ps.from_arrays(np.zeros((1 << 12, 1 << 10))).batch(256)
    assert ds.prefetch(0).explain().threads == 0
    assert ds.prefetch(0).explain().ahead == 0
    assert ds.prefetch(1).explain().ahead == 1
    assert ds.prefetch(3).prefetch(6).explain().ahead == 6
    assert ds.prefetch().explain().ahead == ds.explain().ahead
    assert ds.prefetch(-1).explain().ahead == ds.explain().ahead  # tf.data.AUTOTUNE


def test_prefetch_0_makes_a_batch_when_it_is_asked_for():
    made: list[int] = []
    ds = numbers().map(lambda x: (made.append(int(x)), x)[1]).batch(4)
    ds = ds.prefetch(0).with_options(processes=0)
    made.clear()
    stream = ds.stream()
    assert made == []
    next(stream)
    assert made[:4] == [0, 1, 2, 3]
    stream.close()


def test_cache_freezes_the_order_before_it_and_not_after_it():
    frozen = numbers().shuffle().cache()
    assert values(frozen, epoch=3) == values(frozen, epoch=0) == values(numbers().shuffle())
    after = numbers().cache().shuffle()
    assert values(after, epoch=1) != values(after, epoch=0)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda ds: ds.filter(lambda x: True), r"before filter\(<lambda>\) has run"),
        (lambda ds: ds.filter(lambda x: True).batch(2), "can't be known"),
        (lambda ds: ps.zip(ds, ds.filter(lambda x: True)), "can't be known"),
        (lambda ds: ps.concatenate(ds, ds.filter(lambda x: True)), "can't be known"),
        (lambda ds: ds.filter(lambda x: True).cache(), "can't be known"),
        (lambda ds: ds.repeat(), r"infinite: repeat\(\) has no count; use .take"),
        (lambda ds: ds.repeat().batch(3), "infinite"),
        (lambda ds: ds.filter(lambda x: True).repeat(), "infinite"),
    ],
)
def test_len_is_a_type_error_where_it_cannot_be_known(build: Any, message: str):
    ds = build(numbers())
    with pytest.raises(TypeError, match=message):
        len(ds)
    assert bool(ds) is True
    assert len(list(itertools.islice(ds, 3))) == 3


def test_a_dataset_is_true_even_if_it_is_empty():
    assert bool(numbers(0))
    assert len(numbers(0)) == 0


def test_batch_of_ragged_rows_is_an_error_that_names_padded_batch():
    with pytest.raises(
        ValueError, match=r"field 'value' is ArraySpec\(\(None,\), int64\).\n.*\.padded_batch\(4\)"
    ):
        ps.from_arrays([np.arange(2), np.arange(3)]).batch(4)


def test_a_dataset_is_immutable_and_building_reads_nothing():
    ds = numbers()
    ds.shuffle().batch(2).take(1)
    assert values(ds) == list(range(N))
    with pytest.raises(AttributeError):
        ds.anything = 1
