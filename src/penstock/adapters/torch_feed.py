"""to_torch(): batches as torch tensors; stands where a DataLoader would."""

from typing import Any

try:
    import torch
except ImportError as error:
    raise ImportError("to_torch needs torch: pip install 'penstock[torch]'") from error

from penstock.adapters.epochs import Device, EpochFeed
from penstock.adapters.mapping import leafwise
from penstock.adapters.recipe import Recipe
from penstock.adapters.residency import Residency, choose
from penstock.adapters.torch_arrays import converter
from penstock.adapters.torch_upload import uploader


class TorchFeed(EpochFeed):
    """An EpochFeed with what loops written for a DataLoader look at."""

    num_workers = 0
    pin_memory = False
    drop_last = False
    sampler = None

    def __init__(self, recipe: Recipe, device: Device, residency: Residency) -> None:
        super().__init__(recipe, device, residency)
        self.batch_size = recipe.batch_size

    @property
    def dataset(self) -> "TorchFeed":
        """Itself: what a DataLoader reads from."""
        return self


def torch_feed(recipe: Recipe, *, device: Any, device_memory: int | str | None) -> TorchFeed:
    """Return the batches as torch takes them: our memory on the CPU, copied beside the work on CUDA."""
    recipe.check_batched("to_torch()")
    recipe.check_numeric("torch")
    target = torch.device("cpu" if device is None else device)
    functions = [converter(spec, torch) for _, spec in recipe.fields]
    share = leafwise(recipe.node.structure, functions)
    assert share is not None
    upload = uploader(target, torch)
    free = torch.cuda.mem_get_info(target)[0] if target.type == "cuda" else None
    is_cpu = target.type == "cpu"
    residency = choose(recipe, device_memory, free)
    return TorchFeed(
        recipe,
        Device(
            put=share if is_cpu else lambda batch: upload(share(batch)),
            put_all=lambda array: torch.tensor(array).to(target),
            gather=lambda array, rows: array.index_select(0, torch.from_numpy(rows).to(target)),
            is_ahead=not is_cpu,
        ),
        residency,
    )
