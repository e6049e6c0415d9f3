"""The timeline of a stream: how far it was, and when, in a fixed number of samples, however long it runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.reports.figures import Sample

MOST_SAMPLES = 240  # An even number: they are merged by twos.
FIRST_INTERVAL = 6e-3
"""Seconds between two samples at first. An epoch of 15 ms has two, and taking one costs 10 to 30 us."""


class Timeline:
    """Samples at regular intervals. When there are too many, two become one, and the interval doubles.

    The samples are taken by whoever asks for the next block, when it does: there is no thread for it.
    """

    def __init__(self) -> None:
        self._samples: list[Sample] = []
        self.interval = FIRST_INTERVAL
        """How long after a sample the next one should be taken, in seconds."""

    def add(self, sample: "Sample") -> None:
        """Add a sample."""
        self._samples.append(sample)
        if len(self._samples) >= MOST_SAMPLES:
            pairs = zip(self._samples[::2], self._samples[1::2], strict=True)
            self._samples = [merged(*pair) for pair in pairs]
            self.interval *= 2

    def until(self, last: "Sample") -> "tuple[Sample, ...]":
        """Return all samples, with a last one that tells how it stands now."""
        samples = tuple(self._samples)
        if samples and samples[-1].seconds >= last.seconds:
            return samples
        return (*samples, last)


def merged(first: "Sample", second: "Sample") -> "Sample":
    """Return one sample for two that follow each other: the counts of the later, and what was worst in either."""
    return second._replace(
        ledger_nbytes=max(first.ledger_nbytes, second.ledger_nbytes),
        held_nbytes=max(first.held_nbytes, second.held_nbytes),
        queue=min(first.queue, second.queue),
    )
