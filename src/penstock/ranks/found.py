"""Which rank this process is: as the engine says that trains, or the environment if none is initialised."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from penstock.ranks import by_environment, by_jax, by_ray, by_tensorflow, by_torch

Place = Callable[[], tuple[int, int, int] | None]
_ENGINES: Mapping[str, Place] = {
    "torch.distributed": by_torch.place,
    "jax.distributed": by_jax.place,
    "tf.distribute": by_tensorflow.place,
    "ray.train": by_ray.place,
}
_ENVIRONMENT: Mapping[str, Place] = {
    "TF_CONFIG": by_tensorflow.configured_place,
    "RANK and WORLD_SIZE": by_environment.place,
}


@dataclass(frozen=True, slots=True)
class Found:
    """Which rank this process is, of how many, and who says so."""

    rank: int
    world: int
    replicas: int = 1
    """How many devices of this process share its rows: those of a tf.distribute strategy."""
    engine: str = ""
    """What says so: "tf.distribute", "RANK and WORLD_SIZE", ...; "" for a process by itself."""
    caution: str = ""
    """What looks wrong, for a warning; "" if nothing does."""


def find_rank() -> Found:
    """Return which rank this process is; rank 0 of 1 if nothing says otherwise.

    An engine that is initialised comes before environment variables, and one with several processes before one with
    a single process. Nothing is imported, and nothing is initialised by asking.
    """
    engines = _asked(_ENGINES)
    if not engines:
        return _chosen(_asked(_ENVIRONMENT))
    found = _chosen(engines)
    return replace(found, caution=_caution(found, engines))


def _asked(places: Mapping[str, Place]) -> list[Found]:
    answers = [(engine, place()) for engine, place in places.items()]
    return [Found(*answer, engine) for engine, answer in answers if answer is not None]


def _chosen(answers: Iterable[Found]) -> Found:
    """Return the answer that counts, of those in order of precedence."""
    answers = list(answers)
    several = [one for one in answers if one.world > 1]
    for one in several:
        if (one.rank, one.world) != (several[0].rank, several[0].world):
            raise ValueError(
                f"{_words(several[0])}, and {_words(one)}. "
                "Give the numbers that rows shall be cut by: distribute(rank=..., world=...)."
            )
    # A strategy over the devices of one process may stand beside an engine of several processes.
    replicas = max((one.replicas for one in answers), default=1)
    if several:
        return replace(several[0], replicas=replicas)
    return next((one for one in answers if one.replicas == replicas), Found(0, 1))


def _words(found: Found) -> str:
    verb = "say" if " and " in found.engine else "says"
    return f"{found.engine} {verb} that this is rank {found.rank} of {found.world}"


def _caution(found: Found, engines: Iterable[Found]) -> str:
    """Return what to warn of where several processes run, but each of them would train by itself."""
    if found.world == 1:
        return _caution_of_environment(found)
    if found.engine != "ray.train":
        return ""
    alone = [f"{one.engine} has one process" for one in engines if one.world == 1]
    # TensorFlow imports jax, too: with TF_CONFIG set, its strategy trains, which is not in scope here.
    if "jax" in sys.modules and not alone and not os.environ.get("TF_CONFIG"):
        alone = ["jax.distributed is not initialised"]
    if not alone:
        return ""
    return (
        f"Ray Train runs {found.world} workers, but {alone[0]}: workers would train apart, each on its part of the "
        "rows. Initialise the engine for all of them first."
    )


def _caution_of_environment(found: Found) -> str:
    try:
        told = _chosen(_asked(_ENVIRONMENT))
    except ValueError:  # Nobody follows these variables here: they need not be right.
        return ""
    if told.world == 1:
        return ""
    return (
        f"{_words(told)}, but {found.engine} has one process: each would train apart, on all rows. "
        "If it is to be one training, initialise the engine for all of them."
    )
