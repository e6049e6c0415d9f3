"""One worker of several under MultiWorkerMirroredStrategy: runs all checks, and prints what came of them as JSON."""

import json
import os
import sys
import time

import keras
import numpy as np
import tensorflow as tf
from keras.src.backend.tensorflow import trainer as keras_trainer
from keras.src.losses import loss as keras_losses
from tests.feeds.tf.distributed_models import model, trained, weights
from tests.feeds.tf.loop_of_one import BATCH, EPOCHS, arrays

import penstock as ps

STRATEGY = tf.distribute.MultiWorkerMirroredStrategy()


def dataset(num_rows):
    return ps.from_arrays(arrays(num_rows)).batch(BATCH)


def numbers(num_rows):
    return ps.from_arrays((np.arange(num_rows), np.zeros(num_rows))).batch(BATCH)


def error_of(call):
    """Return what a call raises, as text; '' if nothing."""
    try:
        call()
    except Exception as error:  # noqa: BLE001  # The test looks what it is.
        return f"{type(error).__name__}: {error}"
    return ""


def rows(spread):
    """Return the rows of each step of this worker."""
    of = STRATEGY.experimental_local_results
    return [np.concatenate(of(batch[0])).tolist() for batch in spread]


# -- Keras 3 ----------------------------------------------------------------------------------


def upstream():
    """Return how Keras fails, before it was mended, with what distribute_datasets_from_function makes."""
    made = model(STRATEGY)
    x, y = arrays(BATCH)
    data = tf.data.Dataset.from_tensor_slices((x, y)).batch(BATCH)
    spread = STRATEGY.distribute_datasets_from_function(lambda _: data)
    values = {"loss": tf.constant(1.0)}

    def reduce():
        return keras_trainer.reduce_per_replica(values, STRATEGY, "auto")

    return {
        "build": error_of(lambda: made.fit(spread, verbose=0)),
        "reduce": error_of(lambda: STRATEGY.run(lambda: None) or tf.function(reduce)()),
    }


def fitted(made, data, **given):
    history = made.fit(*data, epochs=EPOCHS, verbose=0, shuffle=False, **given).history
    return {"history": history, "weights": weights(made)}


def used(made, data):
    """Return what a model says of data: the figures of `evaluate`, and the outputs of `predict`."""
    evaluated = made.evaluate(*data, verbose=0, batch_size=BATCH if len(data) > 1 else None)
    return {"evaluate": evaluated, "predict": made.predict(data[0], verbose=0).tolist()}


def by_workers(num_rows, *, folder=None, **distributed):
    made = model(STRATEGY)
    feed = dataset(num_rows).distribute(**distributed).to_keras()
    if folder is None:
        return fitted(made, [feed]) | used(made, [feed])
    found = fitted(made, [feed], validation_data=feed) | used(made, [feed])
    path = os.path.join(folder, f"rank{STRATEGY.cluster_resolver.task_id}.npy")
    found["predict_to"] = feed.predict_to(path, made).num_rows
    found["normalization"] = np.ravel(feed.normalization().input_mean).tolist()
    return found


def by_one(num_rows, *, is_validated=False):
    """Return what Keras makes of the arrays without a strategy."""
    made, (x, y) = model(), arrays(num_rows)
    validation = (x, y) if is_validated else None
    found = fitted(made, [x, y], batch_size=BATCH, validation_data=validation)
    return found | used(made, [x, y]) | {"mean": x.mean(axis=0).tolist()}


class Stop(keras.callbacks.Callback):
    """Ends `fit` with an error after so many steps."""

    def __init__(self, after):
        super().__init__()
        self.left = after

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            raise RuntimeError("stopped")


def resumed(folder, num_rows):
    """Return the weights of a run that was stopped in its second epoch, and gone on with."""
    ds = dataset(num_rows).distribute(uneven="pad")
    stopped = ""
    for stop in ([Stop(6)], []):
        made, feed = model(STRATEGY), ds.to_keras()
        saving = feed.checkpoint(folder, every_batches=1)
        stopped += error_of(
            lambda made=made, feed=feed, saving=saving, stop=stop: made.fit(
                feed, epochs=EPOCHS, verbose=0, callbacks=[saving, *stop]
            )
        )
    return {"weights": weights(made), "stopped": stopped}


class Begun(keras.callbacks.Callback):
    """Ends `fit` with an error before its first step."""

    def on_train_begin(self, logs=None):
        raise RuntimeError("begun")


def elsewhere(folder):
    """Return how `fit` ends where only the first rank has the checkpoint, and where that is damaged."""
    feed = dataset(221).distribute(uneven="pad").to_keras()
    rank = STRATEGY.cluster_resolver.task_id
    places = [folder if rank == 0 else f"{folder}/none/{os.path.basename(folder)}", folder + "/bad"]
    if rank == 0:
        os.makedirs(places[1])
        with open(f"{places[1]}/checkpoint.npz", "wb") as file:
            file.write(b"no checkpoint")
    return [
        error_of(
            lambda place=place: model(STRATEGY).fit(
                feed, epochs=EPOCHS, verbose=0, callbacks=[feed.checkpoint(place), Begun()]
            )
        )
        for place in places
    ]


def refused():
    ds = dataset(2 * BATCH)
    world = STRATEGY.num_replicas_in_sync
    other = ds.distribute(rank=0, world=1)
    several = model(STRATEGY, steps_per_execution=2)
    return {
        "plain to_keras": error_of(lambda: model(STRATEGY).fit(ds.to_keras(), verbose=0)),
        "plain to_tf": error_of(lambda: model(STRATEGY).fit(ds.to_tf(), verbose=0)),
        "another world": error_of(lambda: model(STRATEGY).fit(other.to_keras(), verbose=0)),
        "another world of to_tf": error_of(
            lambda: STRATEGY.experimental_distribute_dataset(other.to_tf())
        ),
        "steps_per_execution": error_of(lambda: several.fit(ds.distribute().to_keras(), verbose=0)),
        "world": world,
    }


# -- tf.data, tf_keras, and loops of one's own ------------------------------------------------


def spread_rows():
    plain, ours = numbers(130), numbers(130).distribute(uneven="drop")
    distribute, by_function = (
        STRATEGY.experimental_distribute_dataset,
        STRATEGY.distribute_datasets_from_function,
    )
    return {
        "plain": rows(distribute(plain.to_tf())),
        "mapped": rows(distribute(plain.to_tf().map(lambda n, y: (n, y)))),
        "distributed": rows(distribute(ours.to_tf())),
        "by function": rows(by_function(lambda _: ours.to_tf())),
    }


def looped(num_rows):
    feed = dataset(num_rows).distribute(uneven="pad").to_tf()
    return trained(STRATEGY.experimental_distribute_dataset(feed), STRATEGY)


def trained_by_tf_keras(num_rows):
    import tf_keras

    tf_keras.utils.set_random_seed(1)
    with STRATEGY.scope():
        layer = tf_keras.layers.Dense(1, use_bias=False, kernel_initializer="ones")
        made = tf_keras.Sequential([tf_keras.Input((4,)), layer])
        made.compile(tf_keras.optimizers.SGD(0.02), "mse")
    pairs = dataset(num_rows).distribute(uneven="pad")
    made.fit(pairs.map(lambda batch, weight: (*batch, weight)).to_tf(), epochs=EPOCHS, verbose=0)
    return made.get_weights()[0].ravel().tolist()


def checks_to_run(folder):
    """Return the checks by their names."""
    checks = {
        "rows": spread_rows,
        "loop": lambda: looped(221),
        "tf_keras": lambda: trained_by_tf_keras(221),
    }
    if not hasattr(keras_losses, "scale_loss_for_distribution"):
        ds = dataset(2 * BATCH).distribute()
        checks["sums"] = lambda: error_of(lambda: model(STRATEGY).fit(ds.to_keras(), verbose=0))
        return checks
    checks |= {
        "pad": lambda: by_workers(221, uneven="pad", folder=folder),
        "pad by one": lambda: by_one(221, is_validated=True),
    }
    if (
        STRATEGY.num_replicas_in_sync == 2
    ):  # Once is enough for what does not depend on their number.
        checks = {"upstream": upstream} | checks
        checks |= {
            "refused": refused,
            "whole": lambda: fitted(model(STRATEGY), [dataset(240).distribute().to_keras()]),
            "whole by one": lambda: by_one(240),
            "one row": lambda: by_workers(181, uneven="pad", static=True),
            "one row by one": lambda: by_one(181),
            "resumed": lambda: resumed(folder, 221),
            "elsewhere": lambda: elsewhere(folder),
        }
    return checks


def main(folder):
    found = {}
    for name, check in checks_to_run(folder).items():
        begun = time.monotonic()
        found[name] = check()
        print(f"{name}: {time.monotonic() - begun:.1f} s", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
