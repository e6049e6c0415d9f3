"""Batches on their way to a CUDA device: pinned memory, and a stream beside the one that computes.

Only a GPU can show that copies and kernels overlap; the order of calls is tested with a stand-in.
"""

from collections.abc import Callable
from typing import Any

from penstock.core.nest import flatten, unflatten


def uploader(target: Any, torch: Any) -> Callable[[Any], Any]:
    """Return a function that sends a batch of CPU tensors to `target`, on CUDA without waiting for it."""
    if target.type != "cuda":
        return lambda batch: _each(batch, lambda leaf: leaf.to(target))
    side = torch.cuda.Stream(target)

    def upload(batch: Any) -> Any:
        with torch.cuda.stream(side):
            sent = _each(batch, lambda leaf: leaf.pin_memory().to(target, non_blocking=True))
        # Whatever is computed from here on waits for the copy; what was queued before does not.
        current = torch.cuda.current_stream(target)
        current.wait_stream(side)
        for leaf in flatten(sent)[0]:
            leaf.record_stream(current)
        return sent

    return upload


def _each(batch: Any, function: Callable[[Any], Any]) -> Any:
    leaves, structure = flatten(batch)
    return unflatten(structure, [function(leaf) for leaf in leaves])
