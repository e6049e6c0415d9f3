"""The formats that rows can be written in: one module a format, each with a `write(job)`."""

from collections.abc import Callable

from penstock.writers import npy, on_ray, parquet, tfrecord, zarr
from penstock.writers.job import Job

WRITERS: dict[str, Callable[[Job], None]] = {
    "npy": npy.write,
    "parquet": parquet.write,
    "tfrecord": tfrecord.write,
    "zarr": zarr.write,
}
ENGINES = ("local", "ray")


def write(job: Job, format: str) -> None:
    """Write all rows of a job; what the engine can't do is refused before anything is touched."""
    if job.engine == "ray":
        on_ray.check(job)
    WRITERS[format](job)


__all__ = ["ENGINES", "WRITERS", "Job", "write"]
