"""A dataset and its explanation in a notebook."""

import numpy as np
from tests.reports.pages import checked

import penstock as ps

DS = ps.from_arrays(np.zeros((60, 3), "f4")).shuffle(seed=4)


def test_a_dataset_shows_its_pipeline_and_reads_nothing():
    def fails():
        raise AssertionError("it was read")
        yield

    rows = ps.from_generator(fails, ps.ArraySpec((), "int64"))
    text = checked(ps.zip(rows, rows, strict=False).batch(2)._repr_html_())
    assert "zip(2 datasets" in text
    assert "unknown number of x (0: int64[?], 1: int64[?])" in text
    assert "60 x (float32[3])" in checked(DS._repr_html_())


def test_an_explanation_shows_the_pipeline_with_the_plan_and_what_was_chosen():
    text = checked(DS.with_options(memory="64MB", threads=2).explain()._repr_html_())
    assert "shuffle(seed=4): exact, by index" in text
    assert "threads 2, 3 blocks ahead (threads=2 by with_options)" in text
    assert "of a budget of 64 MB" in text
