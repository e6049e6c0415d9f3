"""The timeline has a fixed number of samples, however long a stream runs."""

from itertools import pairwise

from penstock.engine.stream.timeline import FIRST_INTERVAL, MOST_SAMPLES, Timeline
from penstock.reports.figures import Sample


def sample(seconds: float, **values: int) -> Sample:
    empty = Sample(seconds, 0, 0, 0, 0, 0.0, 0, 0, 0, 0, (), ())
    return empty._replace(**values)


def test_samples_are_merged_by_twos_when_there_are_too_many():
    timeline, taken, now, due = Timeline(), 0, 0.0, 0.0
    while now < 60.0:
        if now >= due:
            timeline.add(sample(now, num_elements=taken, ledger_nbytes=taken % 7, queue=taken % 5))
            taken += 1
            due = now + timeline.interval
        now += 1e-3
    samples = timeline.until(sample(now, num_elements=taken))
    assert MOST_SAMPLES / 2 <= len(samples) <= MOST_SAMPLES
    assert taken < 2000
    assert (
        timeline.interval
        == FIRST_INTERVAL * 2 ** round(timeline.interval / FIRST_INTERVAL).bit_length() / 2
    )
    assert samples[-1].seconds == now
    assert all(one.seconds < two.seconds for one, two in pairwise(samples))
    assert all(one.num_elements <= two.num_elements for one, two in pairwise(samples))


def test_a_merged_sample_has_the_most_bytes_and_the_fewest_waiting_blocks_of_the_two():
    timeline = Timeline()
    for number in range(MOST_SAMPLES):
        is_odd = number % 2
        timeline.add(
            sample(float(number), ledger_nbytes=9 if is_odd else 5, queue=3 if is_odd else 1)
        )
    first, *_ = timeline.until(sample(1e9))
    assert (first.seconds, first.ledger_nbytes, first.queue) == (1.0, 9, 1)


def test_a_report_at_the_moment_of_the_last_sample_does_not_repeat_it():
    timeline = Timeline()
    assert timeline.until(sample(0.0)) == (sample(0.0),)
    timeline.add(sample(1.0))
    assert timeline.until(sample(1.0)) == (sample(1.0),)
