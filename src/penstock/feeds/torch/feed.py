"""to_torch(): batches as torch tensors, in place of a DataLoader."""

from collections.abc import Iterator
from typing import Any, Never

try:
    import torch
except ImportError as error:
    raise ImportError("to_torch needs torch: pip install 'penstock[torch]'") from error

from penstock.core.arguments import whole_number
from penstock.core.fingerprint import fingerprint
from penstock.core.state import State, StateDict
from penstock.errors import StateError
from penstock.feeds.base import EpochFeed
from penstock.feeds.dtypes import check_dtypes
from penstock.feeds.facts import batch_size, check_batched, named_specs, num_batches
from penstock.feeds.leafwise import Convert, leafwise
from penstock.feeds.on_device.choice import Residency, choose
from penstock.feeds.torch.arrays import converter, has_dtype
from penstock.feeds.torch.device import TorchDevice
from penstock.feeds.torch.training_loops import (
    BatchNumbers,
    TorchRows,
    as_it_is,
    asking_loop,
    state_not_loaded,
)
from penstock.feeds.torch.upload import uploader
from penstock.outlets import Outlets


class TorchFeed(EpochFeed):
    """Batches of torch tensors, with what loops written for a DataLoader look at, and save."""

    num_workers = 0
    pin_memory = False
    drop_last = False
    sampler = None
    prefetch_factor = None
    collate_fn = staticmethod(as_it_is)

    def __init__(
        self, source: Outlets, put: Convert, residency: Residency, *, is_ahead: bool
    ) -> None:
        super().__init__(source, put, residency, is_ahead=is_ahead)
        self._rows = TorchRows(self)

    def __iter__(self) -> Iterator[Any]:
        if self._resumed is None:
            state = state_not_loaded(self)
            if state is not None:
                self.resume(state)
        return super().__iter__()

    def __getitem__(self, number: Any) -> Never:
        """Say what to write instead: a DataLoader of a feed, such as Hugging Face's Trainer makes, asks for numbers."""
        raise TypeError(
            f"a feed has no batches by number, got [{number!r}]: it takes the place of a DataLoader.\n"
            "  wrong: DataLoader(ds.batch(32).to_torch(), batch_size=None)\n"
            "  right: ds.batch(32).to_torch()\n"
            "  wrong: Trainer(train_dataset=ds.batch(32).to_torch())\n"
            "  right: a Trainer whose get_train_dataloader returns it (docs/training.md)"
        )

    @property
    def batch_size(self) -> int | None:
        """The rows of a whole batch."""
        return batch_size(self.source.node)

    @property
    def dataset(self) -> TorchRows:
        """The rows that the batches are made of: their number is its length."""
        return self._rows

    @property
    def batch_sampler(self) -> BatchNumbers:
        """The numbers of the batches, for `skip_first_batches` of accelerate and its like."""
        return BatchNumbers(self, self._rows)

    def state_dict(self) -> StateDict:
        """Return `state()`, under the name by which PyTorch Lightning and accelerate save it.

        Of batches that Lightning has fetched and not trained on, and of epochs that it ends early, it knows: the state
        is that of the batch trained on last.
        """
        asking = asking_loop(self)
        position = self._position_before(asking.num_ahead)
        if position.element >= asking.limit:
            position = position.at_end
        return position.to_dict()

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Let the next iteration go on from what `state_dict()` returned, as `resume` does."""
        self.resume(state_dict)

    def set_epoch(self, epoch: int) -> None:
        """Let the next iteration read this epoch, from its start or from a state of it that was loaded."""
        number, loaded = whole_number("epoch", epoch, least=0), self._resumed
        if loaded is not None and loaded.epoch == number:
            return
        if loaded is not None and loaded.element:
            raise StateError(
                f"set_epoch({number}) contradicts the state that was loaded, which is after batch {loaded.element} of "
                f"epoch {loaded.epoch}: load a state, or set the epoch."
            )
        self._resumed = State(fingerprint(self.source.node), number)

    def skip_to(self, number: int) -> None:
        """Let the next iteration begin with the batch of this number in its epoch."""
        begin = State(fingerprint(self.source.node), self._next().epoch)
        there = self._past(begin, number)
        if there.epoch != begin.epoch and num_batches(self.source.node) is None:
            raise StateError(
                f"epoch {begin.epoch} has fewer than {number} batches, and how many is not known before it was read: a "
                "loop that counts steps alone can't go on in a later epoch. Let the data be one epoch: .repeat()."
            )
        self._resumed = there

    def close(self) -> None:
        """End what is still being read, and processes that wait for more; let go of what is on the device."""
        self._rows.close()
        super().close()


def torch_feed(source: Outlets, *, device: Any, device_memory: int | str | None) -> TorchFeed:
    """Return the batches as torch takes them: without a copy on the CPU, copied beside the computation on CUDA."""
    check_batched(source.node, "to_torch()")
    check_dtypes(source.node, "torch", lambda dtype: has_dtype(dtype, torch))
    target = TorchDevice(_found_device(device))
    functions = [converter(spec, torch) for _, spec in named_specs(source.node)]
    share = leafwise(source.node.structure, functions)
    assert share is not None
    upload = uploader(target.target, torch)
    put = share if target.is_cpu else lambda batch: upload(share(batch))
    residency = choose(source, target, put, device_memory)
    return TorchFeed(source, put, residency, is_ahead=not target.is_cpu)


def _found_device(device: Any) -> Any:
    """Return the device of a name, or the CPU; raise if this torch, or this machine, does not have it."""
    try:
        found = torch.device("cpu" if device is None else device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(
            f"device must be a torch.device or its name, such as 'cpu', 'cuda' or 'cuda:1', got {device!r}."
        ) from error
    if found.type == "mps" and not torch.backends.mps.is_available():
        raise ValueError(
            f"to_torch(device={str(found)!r}) needs a GPU of Apple's, and torch {torch.__version__} finds none. Leave "
            "device out to get batches on the CPU, and look at torch.backends.mps.is_available()."
        )
    if found.type != "cuda":
        return found
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if (found.index or 0) >= count:
        has = "no CUDA device" if not count else f"only {count}, cuda:0 to cuda:{count - 1}"
        raise ValueError(
            f"to_torch(device={str(found)!r}) needs a CUDA device, and torch {torch.__version__} finds {has}. Leave "
            "device out to get batches on the CPU, or install a torch with CUDA, and look at torch.cuda.is_available()."
        )
    return found
