"""to_torch(): batches as torch tensors, in place of a DataLoader."""

from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError("to_torch needs torch: pip install 'penstock[torch]'") from error

from penstock.feeds.base import EpochFeed
from penstock.feeds.dtypes import check_dtypes
from penstock.feeds.facts import batch_size, check_batched, named_specs
from penstock.feeds.leafwise import leafwise
from penstock.feeds.on_device.choice import choose
from penstock.feeds.torch.arrays import converter, has_dtype
from penstock.feeds.torch.device import TorchDevice
from penstock.feeds.torch.upload import uploader
from penstock.outlets import Outlets


class TorchFeed(EpochFeed):
    """Batches of torch tensors, with the attributes that loops written for a DataLoader look at."""

    num_workers = 0
    pin_memory = False
    drop_last = False
    sampler = None

    @property
    def batch_size(self) -> int | None:
        """The rows of a whole batch."""
        return batch_size(self.source.node)

    @property
    def dataset(self) -> "TorchFeed":
        """Itself; of a DataLoader, this is the dataset that it reads from."""
        return self


def torch_feed(source: Outlets, *, device: Any, device_memory: int | str | None) -> TorchFeed:
    """Return the batches as torch takes them: without a copy on the CPU, copied beside the computation on CUDA."""
    check_batched(source.node, "to_torch()")
    check_dtypes(source.node, "torch", lambda dtype: has_dtype(dtype, torch))
    target = TorchDevice(torch.device("cpu" if device is None else device))
    functions = [converter(spec, torch) for _, spec in named_specs(source.node)]
    share = leafwise(source.node.structure, functions)
    assert share is not None
    upload = uploader(target.target, torch)
    put = share if target.is_cpu else lambda batch: upload(share(batch))
    residency = choose(source, target, put, device_memory)
    return TorchFeed(source, put, residency, is_ahead=not target.is_cpu)
