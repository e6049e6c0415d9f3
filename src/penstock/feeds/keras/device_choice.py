"""Where the data of a Keras feed lives: on Keras' device, copied once with casts and weights, or streamed."""

from typing import Any

import keras

from penstock.core.nest import flatten
from penstock.feeds.keras.preparing import See, parts_spec, preparation, prepared_spec
from penstock.feeds.leafwise import Convert, chained, leafwise
from penstock.feeds.on_device.choice import Residency, choose
from penstock.feeds.on_device.device import Device
from penstock.feeds.on_device.resident import Resident
from penstock.feeds.on_device.traffic import Traffic
from penstock.outlets import Outlets

Weights = dict[int, float] | None


class KerasResidency:
    """Where the data of one feed lives; chosen anew if `fit` brings class weights that the device lacks."""

    def __init__(
        self,
        source: Outlets,
        class_weight: Weights,
        device_memory: int | str | None,
        see: See | None = None,
    ) -> None:
        """Choose; `see` is told of the classes of rows that are copied to the device."""
        self._source = source
        self._device_memory = device_memory
        self._weights = class_weight
        self._see = see
        self.traffic = Traffic()
        self.chosen = self._choose()

    def data(self, class_weight: Weights) -> Resident | None:
        """Return what stays on the device, weights included; None if batches are streamed."""
        if self.chosen.data is None:
            return None
        if _is_distributed():
            self.stream_because("keras.distribution spreads each batch over several devices")
        elif class_weight is not None and class_weight != self._weights:
            self._weights = class_weight
            self.chosen.close()
            self.chosen = self._choose()
        return self.chosen.data

    def trim(self, class_weight: Weights) -> Convert | None:
        """Return a function that drops class weights, for calls other than `fit`; None if there are none to drop."""
        is_weighed = self._weights is not None and class_weight is None
        return (lambda batch: batch[:2]) if is_weighed else None

    def stream_because(self, why: str) -> None:
        """Stream from now on."""
        self.chosen.close()
        self.chosen = Residency(why, traffic=self.traffic)

    def _choose(self) -> Residency:
        if _is_distributed():
            why = "keras.distribution spreads each batch over several devices"
            return Residency(why, traffic=self.traffic)
        if self._source.node.share is not None:
            device, _ = _device(parts_spec(self._source.node))
            why = "a rank streams its part of each batch"
            return Residency(why, traffic=self.traffic, is_shared=device.is_cpu)
        floatx = keras.backend.floatx()
        spec = prepared_spec(self._source.node, self._weights, floatx)
        device, put = _device(spec)
        prepared = preparation(self._source.node, self._weights, floatx, see=self._see)
        prepare = chained(prepared, put)
        assert prepare is not None
        return choose(self._source, device, prepare, self._device_memory, self.traffic)


def _is_distributed() -> bool:
    return keras.backend.backend() == "jax" and keras.distribution.distribution() is not None


def _device(spec: Any) -> tuple[Device, Convert]:
    """Return Keras' device, and what puts a prepared batch there."""
    backend = keras.backend.backend()
    if backend == "jax":
        from penstock.feeds.jax.device import JaxDevice

        jax_device = JaxDevice()
        return jax_device, jax_device.put
    if backend == "torch":
        import torch

        from penstock.feeds.keras.on_torch import torch_core
        from penstock.feeds.torch.arrays import keras_converter
        from penstock.feeds.torch.device import TorchDevice

        leaves, structure = flatten(spec)
        put = leafwise(structure, [keras_converter(leaf) for leaf in leaves])
        assert put is not None
        return TorchDevice(torch.device(torch_core().get_device())), put
    import tensorflow as tf

    from penstock.feeds.tf.device import TfDevice

    tf_device = TfDevice("/GPU:0" if tf.config.list_logical_devices("GPU") else None)
    return tf_device, tf_device.put
