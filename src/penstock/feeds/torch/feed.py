"""to_torch(): batches as torch tensors; stands where a DataLoader would."""

from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError("to_torch needs torch: pip install 'penstock[torch]'") from error

from penstock.feeds.base import EpochFeed
from penstock.feeds.leafwise import leafwise
from penstock.feeds.on_device.choice import choose
from penstock.feeds.on_device.traffic import Traffic
from penstock.feeds.recipe import Recipe
from penstock.feeds.torch.arrays import converter
from penstock.feeds.torch.device import TorchDevice
from penstock.feeds.torch.upload import uploader


class TorchFeed(EpochFeed):
    """An EpochFeed with what loops written for a DataLoader look at."""

    num_workers = 0
    pin_memory = False
    drop_last = False
    sampler = None

    @property
    def batch_size(self) -> int | None:
        """The rows of a whole batch."""
        return self._recipe.batch_size

    @property
    def dataset(self) -> "TorchFeed":
        """Itself: what a DataLoader reads from."""
        return self


def torch_feed(recipe: Recipe, *, device: Any, device_memory: int | str | None) -> TorchFeed:
    """Return the batches as torch takes them: our memory on the CPU, copied beside the work on CUDA."""
    recipe.check_batched("to_torch()")
    recipe.check_numeric("torch")
    target = TorchDevice(torch.device("cpu" if device is None else device))
    functions = [converter(spec, torch) for _, spec in recipe.fields]
    share = leafwise(recipe.node.structure, functions)
    assert share is not None
    upload = uploader(target.target, torch)
    put = share if target.is_cpu else lambda batch: upload(share(batch))
    traffic = Traffic()
    residency = choose(recipe, target, put, traffic, device_memory)
    return TorchFeed(recipe, put, residency, traffic, is_ahead=not target.is_cpu)
