"""One process of a training in JAX, which runs many checks and tells what it found. Run by test_spreading.py.

Usage: one_rank.py, with RANK, WORLD_SIZE and MASTER_PORT, and XLA_FLAGS for the number of its devices.
"""

import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from tests.processes import tell

import penstock as ps

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NUM_ROWS = 101  # Ends with a short batch, whatever the world.
BATCH = 24
CHECKS = {}


def check(function):
    CHECKS[function.__name__] = function
    return function


def join():
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(
        f"127.0.0.1:{os.environ['MASTER_PORT']}",
        WORLD,
        RANK,
        heartbeat_timeout_seconds=20,
        shutdown_timeout_seconds=20,
    )


def arrays(num_rows=NUM_ROWS):
    rng = np.random.default_rng(0)
    x = rng.random((num_rows, 8), np.float32)
    return {
        "x": x,
        "y": (x.sum(1) + 0.1).astype("float32"),
        "n": np.arange(num_rows, dtype="int32"),
    }


def dataset(num_rows=NUM_ROWS, batch=BATCH, **options):
    return ps.from_arrays(arrays(num_rows)).shuffle(seed=3).batch(batch, **options)


def mesh(*shape, names=("data", "model")):
    return Mesh(np.array(jax.devices()).reshape(shape), names[: len(shape)])


def over_data():
    return NamedSharding(mesh(len(jax.devices()), names=("data",)), P("data"))


def error_of(function):
    try:
        function()
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def as_global(array):
    """All rows of an array that is spread over processes, on each of them."""
    if array.is_fully_addressable:
        return np.asarray(array)
    everywhere = NamedSharding(array.sharding.mesh, P())
    return np.asarray(jax.jit(lambda a: a, out_shardings=everywhere)(array).addressable_data(0))


def losses_of(feed, epochs=3, *, is_weighted, sharding=None):
    """The losses of each step of a linear model, trained by `feed`."""
    compiled = []

    @jax.jit
    def step(weights, batch, row_weights):
        compiled.append(1)

        def loss_of(weights):
            error = batch["x"] @ weights["w"] + weights["b"] - batch["y"]
            return jnp.mean(row_weights * error**2)

        loss, slopes = jax.value_and_grad(loss_of)(weights)
        return jax.tree.map(lambda w, s: w - 0.05 * s, weights, slopes), loss

    weights = {"w": np.zeros(8, np.float32), "b": np.zeros((), np.float32)}
    if sharding is not None:
        weights = jax.device_put(weights, NamedSharding(sharding.mesh, P()))
    losses = []
    for _ in range(epochs):
        for element in feed:
            batch, row_weights = element if is_weighted else (element, np.float32(1))
            weights, loss = step(weights, batch, row_weights)
            losses.append(float(loss))
    return {"losses": losses, "w": np.asarray(weights["w"]).tolist(), "compiled": len(compiled)}


def alone():
    """The same training by one process and one device."""
    return losses_of(dataset().to_jax(sharding=jax.local_devices()[0]), is_weighted=False)


# -- one process, several devices --------------------------------------------------------------


@check
def shardings_of_one_process():
    batches = {}
    shardings = {
        "data": NamedSharding(mesh(4, 2), P("data")),
        "both": NamedSharding(mesh(4, 2), P(("data", "model"))),
        "all over": NamedSharding(mesh(4, 2), P()),
        "each": {
            "x": NamedSharding(mesh(4, 2), P("data", "model")),
            "y": NamedSharding(mesh(4, 2), P("data")),
            "n": NamedSharding(mesh(4, 2), P()),
        },
    }
    for name, sharding in shardings.items():
        feed = dataset(96).to_jax(sharding=sharding)
        rows, places = [], set()
        for batch in feed:
            rows += np.asarray(batch["n"]).tolist()
            assert np.array_equal(np.asarray(batch["x"]), arrays(96)["x"][np.asarray(batch["n"])])
            places = [str(batch[key].addressable_shards[0].data.shape) for key in ("x", "y", "n")]
        batches[name] = [rows, places]
    plain = np.concatenate([batch["n"] for batch in dataset(96).stream()]).tolist()
    return {"plain": plain, "spread": batches}


@check
def errors_of_one_process():
    data = NamedSharding(mesh(4, 2), P("data"))
    both = NamedSharding(mesh(4, 2), P(("data", "model")))
    wide = NamedSharding(mesh(4, 2), P("data", "model"))
    padded = dataset().distribute(rank=0, world=1, uneven="pad")
    dropped = dataset().distribute(rank=1, world=2, uneven="drop")

    def read(ds, sharding=both):
        return error_of(lambda: list(ds.to_jax(sharding=sharding)))

    return {
        "30 rows": error_of(lambda: dataset(90, 30).to_jax(sharding=both)),
        "5 rows": error_of(lambda: dataset(90, 5).to_jax(sharding=both)),
        "short": error_of(lambda: dataset().to_jax(sharding=both)),
        "short, known by a map": error_of(lambda: dataset().map(lambda b: b).to_jax(sharding=both)),
        "short, unknown": read(
            ps.from_arrays(np.arange(90, dtype="int32")).filter(lambda _: True).batch(24)
        ),
        "padded": error_of(lambda: padded.to_jax(sharding=both)),
        "its part": error_of(lambda: dropped.to_jax(sharding=both)),
        "its part fits": read(dropped, data),
        "7 columns": error_of(
            lambda: ps.from_arrays(np.zeros((96, 7), "f4")).batch(24).to_jax(sharding=wide)
        ),
        "one axis": error_of(lambda: dataset(96).to_jax(sharding=wide)),
        "a name": error_of(lambda: dataset(96).to_jax(sharding="data")),
        "a nest": error_of(lambda: dataset(96).to_jax(sharding={"x": data})),
        "static": read(dataset().distribute(rank=0, world=1, uneven="pad", static=True)),
        "short but left out": read(dataset(drop_remainder=True)),
        "short but not taken": read(dataset().take(2)),
    }


@check
def reused_memory():
    """A batch stays what it was when it was put, whatever becomes of the memory that it came from."""
    kept = np.zeros((NUM_ROWS, 8), np.float32)

    def again(x):
        kept[:24] = x
        return kept[:24]

    ds = ps.from_arrays(arrays(96)["x"]).batch(24).map(again)
    batches = list(ds.to_jax(sharding=over_data()))
    return np.array_equal(np.concatenate(batches), arrays(96)["x"])


# -- several processes ---------------------------------------------------------------------------


@check
def losses():
    """Ranks train as one process does, the short batch included; its shape is compiled once where it is static."""
    found = {"alone": alone()}
    for static in (True, False):
        ds = dataset().distribute(rank=RANK, world=WORLD, uneven="pad", static=static)
        sharding = over_data()
        if not static and NUM_ROWS % BATCH % len(sharding.device_set):
            continue  # Refused: see errors.
        found[f"static {static}"] = losses_of(
            ds.to_jax(sharding=sharding), is_weighted=True, sharding=sharding
        )
    return found


@check
def rows_of_global_batches():
    """The rows of each global batch, in the order of the global array."""
    ds = dataset(96).distribute(rank=RANK, world=WORLD)
    found = [as_global(batch["n"]).tolist() for batch in ds.to_jax(sharding=over_data())]
    return {"found": found, "batches": [batch["n"].tolist() for batch in dataset(96).stream()]}


@check
def a_rank_of_several_processes():
    """The model axis lies across processes: all of them are one data rank, and read whole batches."""
    devices = len(jax.devices())
    over = NamedSharding(mesh(1, devices), P("data", "model"))
    first = NamedSharding(mesh(1, devices), P("data"))
    everywhere = {"x": over if 8 % devices == 0 else first, "y": first, "n": first}
    ds = dataset(96).distribute(rank=0, world=1)
    batches = list(ds.to_jax(sharding=everywhere))
    rows = [as_global(batch["n"]).tolist() for batch in batches]
    values = [as_global(batch["x"]) for batch in batches]
    same = all(np.array_equal(arrays(96)["x"][n], x) for n, x in zip(rows, values, strict=True))
    spread = [as_global(b["n"]).tolist() for b in ds.to_jax(sharding=over_data())]
    return {"rows": rows, "same": same, "spread": spread}


@check
def errors():
    part = dataset(96).distribute(rank=RANK, world=WORLD)
    other = dataset(96).distribute(rank=(RANK + 1) % WORLD, world=WORLD)
    replicated = NamedSharding(mesh(len(jax.devices()), names=("data",)), P())
    padded = dataset().distribute(rank=RANK, world=WORLD, uneven="pad")
    devices = len(jax.devices())

    def fewer(batch):
        return {name: leaf[:devices] if RANK else leaf for name, leaf in batch.items()}

    def mixed(batch):
        return batch | {"n": batch["n"][:devices]}

    def with_constants(batch):
        return batch | {"scale": np.float32(2), "table": np.arange(5, dtype="float32")}

    return {
        "not distributed": error_of(lambda: dataset(96).to_jax(sharding=over_data())),
        "other rank": error_of(lambda: other.to_jax(sharding=over_data())),
        "replicated": error_of(lambda: part.to_jax(sharding=replicated)),
        "padded": error_of(lambda: padded.to_jax(sharding=over_data())),
        "fewer": error_of(lambda: list(part.map(fewer).to_jax(sharding=over_data()))),
        "mixed": error_of(lambda: list(part.map(mixed).to_jax(sharding=over_data()))),
        "constants": error_of(
            lambda: list(
                part.map(with_constants).to_jax(
                    sharding=dict.fromkeys("xyn", over_data())
                    | dict.fromkeys(("scale", "table"), replicated)
                )
            )
        ),
        "local": error_of(lambda: list(part.to_jax())),
    }


if __name__ == "__main__":
    if WORLD > 1:
        join()
    one = {"shardings_of_one_process", "errors_of_one_process", "reused_memory"}
    chosen = one if WORLD == 1 else CHECKS.keys() - one
    tell({name: CHECKS[name]() for name in CHECKS if name in chosen})
