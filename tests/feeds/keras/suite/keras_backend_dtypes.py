"""Every dtype reaches Keras with its values, or is refused when the feed is made; none is wrapped on the way."""

import re
import warnings

import numpy as np
import pytest

import penstock as ps
from feeds.dtypes_of_numpy import DTYPES, batches_of_dtype, dtype_of, is_plain_number, values_of
from feeds.keras.suite.models import BACKEND, spying_model
from penstock.core.nest import flatten


def read(feed):
    if BACKEND == "jax":
        return list(feed.get_jax_iterator())
    if BACKEND == "torch":
        return list(feed.get_torch_dataloader())
    return list(feed.get_tf_dataset())


@pytest.mark.parametrize("device_memory", [None, "1MB"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_dtype_arrives_with_its_values_or_is_refused(dtype, device_memory):
    warnings.filterwarnings("ignore", "JAX narrows field 'x.* from complex128")
    is_lacking = BACKEND == "torch" and dtype_of(dtype).name == "uint64"
    for form, ds in batches_of_dtype(dtype).items():
        try:
            feed = ds.to_keras(device_memory=device_memory)
        except TypeError as error:
            refusal = str(error)
        else:
            refusal = ""
        if refusal:
            assert re.match(rf"field 'x.* Keras on {BACKEND} has n.*\.map\(", refusal)
            assert is_lacking or not is_plain_number(dtype), (form, refusal)
            continue
        with_keras = [flatten(batch)[0] for batch in read(feed)]
        for found, wanted in zip(with_keras, ds, strict=True):
            for mine, theirs in zip(found, flatten(wanted)[0], strict=True):
                assert values_of(mine) == values_of(theirs), form


@pytest.mark.skipif(BACKEND != "jax", reason="only JAX narrows integers")
@pytest.mark.parametrize("device_memory", [None, "1MB"])
@pytest.mark.parametrize("dtype", ["int64", "uint64", ">i8"])
def test_a_number_that_jax_would_wrap_is_an_error(dtype, device_memory):
    y = np.arange(40, dtype=dtype)
    y[37] = 2**40
    ds = ps.from_arrays((np.zeros((40, 2), "float32"), y)).batch(16)
    model, _ = spying_model()
    with pytest.raises(ps.RangeError, match=r"field '1' has 1099511627776 in row .*jax_enable_x64"):
        model.fit(ds.to_keras(device_memory=device_memory), verbose=0)
