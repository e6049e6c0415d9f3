"""Keras on PyTorch in several processes: what `fit` must share, and does not by itself.

Keras trains each process apart, even if the model is in a DistributedDataParallel: it takes gradients from its
variables, past the module. So for as long as `fit` reads a distributed feed, its optimizer is given gradients that are
averaged over all ranks. Before the first epoch, weights become those of rank 0. At the end of each epoch, metrics
become those of all rows, and what is not trained (the averages of BatchNorm) that of rank 0: then callbacks decide the
same on every rank, and none stops alone. `evaluate` and `predict` share nothing, so that one rank may call them.
"""

import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from types import FrameType
from typing import Any

import torch
from torch import distributed

from penstock.core.share import Share
from penstock.errors import warn_user

_BUCKET_NBYTES = 32 << 20
"""So many bytes are sent at once: as many again are held for that."""


class TorchRanks:
    """What the processes of one `fit` share. All of them must call `fit` with their part of the same dataset."""

    def __init__(self, share: Share) -> None:
        self._world = share.world
        self._fit: tuple[Callable[[], Any], Callable[[], Any]] = (_nobody, _nobody)
        """The epoch iterator and the model of the `fit` that read last."""
        self._is_in_epoch = False

    def begin_epoch(self, model: Any, owner: Any, life: Any) -> None:
        """Let gradients be averaged; `owner` is the epoch iterator of this `fit`, `life` ends when it does."""
        if not self._check():
            return
        self._is_in_epoch = True
        if self._fit[0]() is owner:
            return
        self._fit = (weakref.ref(owner), weakref.ref(model))
        optimizer = model.optimizer
        _broadcast([*model.trainable_weights, *model.non_trainable_weights])
        if optimizer is not None:
            _broadcast(optimizer.variables)
            averaging = _averaging(optimizer, weakref.ref(owner))
            vars(optimizer)["apply"] = averaging  # Past Keras, which keeps track of attributes.
            weakref.finalize(life, _give_back, weakref.ref(optimizer), averaging)

    def end_epoch(self) -> None:
        """Make metrics those of all ranks, and what is not trained that of rank 0."""
        model = self._fit[1]()
        if model is None or not self._is_in_epoch:
            return
        self._is_in_epoch = False
        _sum(model.metrics_variables)
        _broadcast(model.non_trainable_weights)

    def _check(self) -> bool:
        """Whether there are ranks to share with; raise if they are not those of the dataset."""
        if not (distributed.is_available() and distributed.is_initialized()):
            warn_user(
                f"the dataset is one of {self._world} ranks, and torch.distributed is not initialised: each trains a "
                'model of its own. Call torch.distributed.init_process_group("gloo") before fit.'
            )
            return False
        size = distributed.get_world_size()
        if size != self._world:
            raise ValueError(
                f"gradients are averaged over all processes of torch.distributed, of which there are {size}, and the "
                f"dataset is distributed over {self._world} ranks: both must be the same in fit."
            )
        return True


def _nobody() -> None:
    """Return None, as a reference does whose object is gone."""


def _averaging(optimizer: Any, owner: Callable[[], Any]) -> Callable[..., None]:
    """Return what an optimizer is to do instead of `apply`: average first, in the `fit` that reads from `owner`."""
    me = weakref.ref(optimizer)

    def apply(grads: Any, trainable_variables: Any = None) -> None:
        this: Any = me()
        if _is_in_fit_of(owner()):
            known = trainable_variables
            if known is None:
                known = this._trainable_variables  # noqa: SLF001  # as Keras does
            grads = average(list(grads), [variable.value for variable in known])
        type(this).apply(this, grads, trainable_variables)

    return apply


def _give_back(optimizer: Callable[[], Any], averaging: Callable[..., None]) -> None:
    """Let an optimizer apply gradients as it did before, unless another `fit` has begun meanwhile."""
    found = optimizer()
    if found is not None and vars(found).get("apply") is averaging:
        del vars(found)["apply"]


def _is_in_fit_of(owner: Any) -> bool:
    """Whether this is a step of the `fit` that reads from this epoch iterator, and not of another."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001  # there is no other way to a frame
    while frame is not None:
        if frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals:
            return owner is not None and frame.f_locals["epoch_iterator"] is owner
        frame = frame.f_back
    return False


def average(gradients: Sequence[Any], like: Sequence[Any]) -> list[Any]:
    """Return the mean of each gradient over all ranks; None if no rank has one.

    A rank that has none counts as zeros: the others may have one, and all must send the same.
    """
    has = torch.tensor([gradient is not None for gradient in gradients], dtype=torch.float32)
    whole = [
        torch.zeros_like(variable) if gradient is None else gradient
        for gradient, variable in zip(gradients, like, strict=True)
    ]
    has = has.to(whole[0].device)
    summed = _shared([has, *whole], distributed.all_reduce)
    found, world = summed[0].tolist(), distributed.get_world_size()
    return [
        mean.div_(world) if count else None for mean, count in zip(summed[1:], found, strict=True)
    ]


def _sum(variables: Sequence[Any]) -> None:
    """Make variables the sums over all ranks: a metric of Keras is counted and added up."""
    summed = _shared([variable.value for variable in variables], distributed.all_reduce)
    for variable, value in zip(variables, summed, strict=True):
        variable.assign(value)


def _broadcast(variables: Sequence[Any]) -> None:
    """Make variables those of rank 0."""
    values = [variable.value for variable in variables]
    for variable, value in zip(
        variables, _shared(values, lambda bucket: distributed.broadcast(bucket, 0)), strict=True
    ):
        variable.assign(value)


def _shared(tensors: Sequence[Any], share: Callable[[Any], Any]) -> list[Any]:
    """Return new tensors, after sharing their values: those of one dtype together, a few MB at a time."""
    found: list[Any] = [None] * len(tensors)
    for places in _buckets(tensors):
        parts = [tensors[place].detach() for place in places]
        bucket = torch.cat([part.reshape(-1) for part in parts])
        share(bucket)
        sizes = [part.numel() for part in parts]
        for place, part, piece in zip(places, parts, bucket.split(sizes), strict=True):
            found[place] = piece.reshape(part.shape)
    return found


def _buckets(tensors: Sequence[Any]) -> Iterator[list[int]]:
    """Yield the places of tensors that are sent together, in the same order on every rank."""

    def kind(place: int) -> tuple[str, str]:
        return str(tensors[place].dtype), tensors[place].device.type

    for _, group in groupby(sorted(range(len(tensors)), key=kind), key=kind):
        bucket: list[int] = []
        nbytes = 0
        for place in group:
            if bucket and nbytes + tensors[place].nbytes > _BUCKET_NBYTES:
                yield bucket
                bucket, nbytes = [], 0
            bucket.append(place)
            nbytes += tensors[place].nbytes
        if bucket:
            yield bucket
