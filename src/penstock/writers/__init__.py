"""The formats that rows can be written in: one module a format, each with a `write(job)`."""

from collections.abc import Callable

from penstock.writers import npy, on_ray, parquet, tfrecord, to_store, zarr
from penstock.writers.endings import format_of
from penstock.writers.job import Job

WRITERS: dict[str, Callable[[Job], None]] = {
    "npy": npy.write,
    "parquet": parquet.write,
    "tfrecord": tfrecord.write,
    "zarr": zarr.write,
}
SENDING = ("npy",)
"""Formats whose writers see to it themselves that files get to a URL: they can go on after a kill."""
ENGINES = ("local", "ray")


def write(job: Job, format: str) -> None:
    """Write all rows of a job; what the engine can't do is refused before anything is touched."""
    if job.url:
        to_store.check(job)
    if job.engine == "ray":
        on_ray.check(job)
    if job.url and format not in SENDING:
        to_store.write(job, WRITERS[format])
    else:
        WRITERS[format](job)


__all__ = ["ENGINES", "WRITERS", "Job", "format_of", "write"]
