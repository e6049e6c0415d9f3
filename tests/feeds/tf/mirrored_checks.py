"""A process with several devices under MirroredStrategy: runs all checks, and prints what came of them as JSON."""

import json
import sys

import keras
import numpy as np
import tensorflow as tf
from tests.feeds.tf.distributed_models import model, trained, weights
from tests.feeds.tf.loop_of_one import BATCH, EPOCHS, arrays

import penstock as ps

DEVICES = int(sys.argv[1])
LOGICAL = [tf.config.LogicalDeviceConfiguration()] * DEVICES
tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], LOGICAL)
STRATEGY = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(DEVICES)])


def dataset(num_rows):
    return ps.from_arrays(arrays(num_rows)).batch(BATCH)


def by_keras(ds, strategy=STRATEGY, *, is_validated=False):
    made, feed = model(strategy), ds.to_keras()
    validation = ds.to_keras() if is_validated else None
    return {
        "history": made.fit(feed, epochs=EPOCHS, verbose=0, validation_data=validation).history,
        "weights": weights(made),
        "evaluate": made.evaluate(feed, verbose=0),
        "predict": made.predict(feed, verbose=0).tolist(),
    }


def distributed(num_rows, **given):
    with STRATEGY.scope():
        return dataset(num_rows).distribute(**given)


def looped(ds):
    return trained(STRATEGY.experimental_distribute_dataset(ds.to_tf()), STRATEGY)


def predicted(folder):
    made, feed = model(STRATEGY), dataset(100).to_keras()
    found = feed.predict_to(f"{folder}/predicted.npy", made)
    wanted = made.predict(feed, verbose=0)
    return [found.num_rows, float(np.abs(np.load(found.paths[0]) - wanted).max())]


class Stop(keras.callbacks.Callback):
    """Ends `fit` with an error after six steps."""

    steps = 0

    def on_train_batch_end(self, batch, logs=None):
        self.steps += 1
        if self.steps == 6:
            raise RuntimeError("stopped")


def resumed(folder):
    ds = distributed(221, uneven="pad")
    for stop in ([Stop()], []):
        made, feed = model(STRATEGY), ds.to_keras()
        saving = feed.checkpoint(folder, every_batches=1)
        try:
            made.fit(feed, epochs=EPOCHS, verbose=0, callbacks=[saving, *stop])
        except RuntimeError:
            continue
    return weights(made)


def error_of(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return ""


def refused():
    several = model(STRATEGY, steps_per_execution=2)
    outside = dataset(221).distribute(rank=0, world=1, uneven="pad")
    return {
        "steps_per_execution": error_of(lambda: several.fit(dataset(120).to_keras(), verbose=0)),
        "outside": error_of(lambda: model(STRATEGY).fit(outside.to_keras(), verbose=0)),
        "outside, to_tf": error_of(
            lambda: STRATEGY.experimental_distribute_dataset(outside.to_tf())
        ),
    }


def main(folder):
    found = {
        "pad": by_keras(distributed(221, uneven="pad"), is_validated=True),
        "pad by one": by_keras(dataset(221), None, is_validated=True),
        "plain loop": looped(dataset(240)),
        "pad loop": looped(distributed(221, uneven="pad")),
        "refused": refused(),
    }
    if DEVICES == 2:  # Once is enough for what does not depend on their number.
        found |= {
            "plain": by_keras(dataset(240)),
            "plain by one": by_keras(dataset(240), None),
            "predict_to": predicted(folder),
            "resumed": resumed(folder),
        }
    else:
        found |= {
            "static": by_keras(distributed(181, uneven="pad", static=True)),
            "static by one": by_keras(dataset(181), None),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[2])
