"""Tables of torch tensors, gathered by `index_select`."""

from collections.abc import Sequence
from typing import Any

import torch

from penstock.feeds.on_device.device import Device


class TorchDevice(Device):
    """A CPU, or a CUDA device."""

    def __init__(self, target: Any) -> None:
        self.target = target
        self.is_cpu = target.type == "cpu"

    def free_nbytes(self) -> int | None:
        """Return the bytes that CUDA has left; None if the device is another."""
        if self.target.type != "cuda":
            return None
        return int(torch.cuda.mem_get_info(self.target)[0])

    def allocate(self, num_rows: int, like: Any) -> Any:
        """Return a tensor whose values are not set."""
        return torch.empty((num_rows, *like.shape[1:]), dtype=like.dtype, device=self.target)

    def write(self, table: Any, start: int, leaf: Any) -> Any:
        """Return the tensor itself, after copying rows into it."""
        table[start : start + len(leaf)].copy_(leaf)
        return table

    def gather(self, tables: Sequence[Any], rows: Any) -> list[Any]:
        """Return these rows of each table; their numbers are sent once."""
        numbers = torch.from_numpy(rows).to(self.target)
        return [table.index_select(0, numbers) for table in tables]

    def nbytes(self, leaf: Any) -> int:
        """Return its bytes."""
        return int(leaf.nbytes)
