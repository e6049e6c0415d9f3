"""The formats that rows can be written in: one module a format, each with a `write(job)`."""

from collections.abc import Callable

from penstock.writers import npy, tfrecord
from penstock.writers.job import Job

WRITERS: dict[str, Callable[[Job], None]] = {
    "npy": npy.write,
    "tfrecord": tfrecord.write,
}

__all__ = ["WRITERS", "Job"]
