"""Seeds: given by the user, or drawn, in which case every process has another."""

import os

from penstock.core.arguments import whole_number

_END = 1 << 63


class DrawnSeed(int):
    """A seed that nobody gave: another process that runs the same lines draws another."""

    process: int
    """Which process drew it; it may have been handed on to others."""


def checked_seed(seed: int | None) -> int:
    """Return a seed that is a whole number below 2**63, drawn if there is none."""
    if seed is None:
        drawn = DrawnSeed(int.from_bytes(os.urandom(8), "little") % _END)
        drawn.process = os.getpid()
        return drawn
    number = whole_number("seed", seed, least=0)
    if number >= _END:
        raise ValueError(f"seed must be below 2**63, got {number}.")
    return number


def is_drawn_here(seed: object) -> bool:
    """Whether this very process drew a seed, so that others have drawn others."""
    return isinstance(seed, DrawnSeed) and seed.process == os.getpid()
