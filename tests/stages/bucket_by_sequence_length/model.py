"""Buckets in plain Python: rows are dicts, and `tokens` have any length."""

from typing import Any

import numpy as np


def length(row: Any) -> int:
    return len(row["tokens"])


def bucketed(
    rows: list[Any], boundaries: list[int], sizes: list[int], *, drop: bool = False, pad: int = 0
) -> list[Any]:
    """The batches, in plain Python."""
    buckets: list[list[Any]] = [[] for _ in sizes]
    found = []

    def close(bucket: list[Any]) -> None:
        tokens = np.full((len(bucket), max(map(length, bucket))), pad)
        for place, row in zip(tokens, bucket, strict=True):
            place[: length(row)] = row["tokens"]
        others = {
            name: np.stack([row[name] for row in bucket]) for name in bucket[0] if name != "tokens"
        }
        found.append({"tokens": tokens, **others})
        bucket.clear()

    for row in rows:
        number = sum(length(row) >= boundary for boundary in boundaries)
        buckets[number].append(row)
        if len(buckets[number]) == sizes[number]:
            close(buckets[number])
    for bucket in buckets:
        if bucket and not drop:
            close(bucket)
    return found
