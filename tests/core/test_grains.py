"""Grains: what a stage makes of the way in which its input lies on storage."""

from penstock.core.grains import Grain, coarsest, grouped, widest


def test_rows_that_stand_for_several_have_smaller_chunks_of_larger_rows():
    assert Grain(1000, 4).grouped(10) == Grain(100, 40)
    assert Grain(1, 4).grouped(10) == Grain(1, 40)
    assert grouped([Grain(8, 1), Grain(1, 2)], 16) == (Grain(1, 16), Grain(1, 32))
    assert grouped([], 3) == ()


def test_rows_of_which_several_make_one_are_read_together():
    assert Grain(1, 400).divided(10) == Grain(10, 40, run=10)
    assert Grain(100, 400).divided(32) == Grain(3200, 13, run=32)
    assert Grain(1, 0).divided(0) == Grain(1, 0)  # Batches without rows.


def test_the_widest_field_has_most_bytes_of_a_row():
    assert widest([Grain(10_000, 4), Grain(1000, 400)]) == Grain(1000, 400)
    assert widest([Grain(10, 8), Grain(30, 8), Grain(20, 8)]) == Grain(30, 8)


def test_of_several_inputs_those_with_the_largest_chunks_count():
    plain, packed = (Grain(1, 400), Grain(1, 4)), (Grain(1000, 400), Grain(1, 4))
    assert coarsest([plain, packed, ()]) == packed
    assert coarsest([(), plain]) == plain
    assert coarsest([(), ()]) == ()


def test_runs_of_rows_with_one_checksum_stay_whole_or_are_forgotten():
    assert Grain(1, 400, run=160).grouped(32) == Grain(1, 12_800, run=5)
    assert Grain(1, 400, run=163).grouped(32) == Grain(1, 12_800, run=1)
