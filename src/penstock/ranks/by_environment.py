"""RANK and WORLD_SIZE: what torchrun and many other launchers set, before any engine is initialised."""

import os

_CURE = "Set both as torchrun does, or give the numbers: distribute(rank=..., world=...)."


def place() -> tuple[int, int, int] | None:
    """Return rank, world and replicas by RANK and WORLD_SIZE; None if neither is set."""
    rank, world = (os.environ.get(name, "").strip() for name in ("RANK", "WORLD_SIZE"))
    if not rank and not world:
        return None
    if not rank or not world:
        came = f"RANK={rank!r} and no WORLD_SIZE" if rank else f"WORLD_SIZE={world!r} and no RANK"
        raise ValueError(f"RANK and WORLD_SIZE come together, got {came}. {_CURE}")
    if not (rank.isdecimal() and world.isdecimal() and int(rank) < int(world)):
        raise ValueError(
            "RANK must be a whole number from 0 to WORLD_SIZE - 1, "
            f"got RANK={rank!r} and WORLD_SIZE={world!r}. {_CURE}"
        )
    return int(rank), int(world), 1
