"""One rank of a training: it finds itself, and compares what it reads with the others. Run by rank_processes.py."""

import json
import os
import signal
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from penstock.errors import RankMismatchError
from penstock.ranks.agreement import Agreement
from penstock.ranks.found import find_rank
from penstock.ranks.store import find_store

SAME = {"files": "x.npy 4000 bytes", "seeds": "shuffle 3"}


def asked():
    """What find_rank() says, or raises."""
    try:
        return asdict(find_rank())
    except ValueError as error:
        return str(error)


def wait_for(event, seconds=60):
    until = time.monotonic() + seconds
    while not (found := event()):
        assert time.monotonic() < until, "nothing came"
        time.sleep(0.01)
    return found


def compare(rank, world, store):
    """Go through all that ranks do with a store; both ranks must take part."""
    results = {"missing": store.look("no such key")}
    started = time.monotonic()
    store.look("no such key")
    results["seconds"] = time.monotonic() - started
    store.put(f"twice/{rank}", "1")
    store.put(f"twice/{rank}", "2 ä\n3")
    results["twice"] = wait_for(lambda: store.look(f"twice/{1 - rank}"))
    wait_for(lambda: store.look(f"twice/{1 - rank}") == "2 ä\n3")

    same = Agreement(SAME, rank, world, "same", store)
    same.begin()
    wait_for(lambda: same.look() or same._is_same)
    results["same"] = [same.is_done, same.ended]

    other = Agreement({**SAME, "files": f"{rank}.npy 4000 bytes"}, rank, world, "other", store)
    other.begin()
    try:
        wait_for(lambda: other.look() or other.is_done)
        results["other"] = f"no error, {other.ended}"
    except RankMismatchError as error:
        results["other"] = str(error)
    store.put(f"end/{rank}", "yes")
    wait_for(lambda: store.look(f"end/{1 - rank}"))
    return results


def lose_rank_0(rank, world, store):
    """Kill rank 0, which has the store, while rank 1 looks into it."""
    alone = Agreement(SAME, rank, world, "lost", store)
    if rank == 0:
        store.put("process", str(os.getpid()))
        time.sleep(600)
    wait_for(lambda: store.look("process"))
    alone.begin()
    alone.look()
    was_done = alone.is_done
    os.kill(int(store.look("process")), signal.SIGKILL)
    wait_for(lambda: alone.look() or alone.is_done, 50)
    return {"was_done": was_done, "ended": alone.ended}


def of_torch(rank, world, ports, folder):
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": ports[0]}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    results = {"before": asked()}
    import torch.distributed

    results["no store before"] = find_store() is None
    torch.distributed.init_process_group("gloo")
    os.environ["RANK"] = "7"  # Nobody follows it any more.
    results["found"] = asked()
    store = find_store()
    results |= compare(rank, world, store)
    if rank == 1:
        results["lost"] = lose_rank_0(rank, world, store)
        return results
    save(folder, rank, results)
    return lose_rank_0(rank, world, store)


def of_jax(rank, world, ports, folder):
    import jax

    results = {"before": asked(), "no store before": find_store() is None}
    jax.distributed.initialize(f"127.0.0.1:{ports[0]}", world, rank)
    results["found"] = asked()
    results["no devices"] = not jax._src.xla_bridge.backends_are_initialized()
    store = find_store()
    results |= compare(rank, world, store)
    # Another engine, by which the ranks have other numbers.
    import torch.distributed

    address = f"tcp://127.0.0.1:{ports[1]}"
    torch.distributed.init_process_group(
        "gloo", init_method=address, rank=1 - rank, world_size=world
    )
    results["contradiction"] = asked()
    torch.distributed.destroy_process_group()
    results["after"] = asked()
    return results


def of_tensorflow(rank, world, ports, folder):
    jobs = {"chief": [f"127.0.0.1:{ports[0]}"], "worker": [f"127.0.0.1:{ports[1]}"]}
    task = {"type": ["chief", "worker"][rank], "index": 0}
    os.environ["TF_CONFIG"] = json.dumps({"cluster": jobs, "task": task})
    results = {"before": asked()}
    import tensorflow as tf

    results["no store before"] = find_store() is None
    devices = [tf.config.LogicalDeviceConfiguration()] * 4
    tf.config.set_logical_device_configuration(tf.config.list_physical_devices("CPU")[0], devices)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    with strategy.scope():
        results["found"] = asked()
    results["out of scope"] = asked()
    mirrored = tf.distribute.MirroredStrategy([f"CPU:{number}" for number in range(4)])
    with mirrored.scope():
        results["mirrored"] = asked()
        del os.environ["TF_CONFIG"]
        results["only mirrored"] = asked()
    results["nothing"] = asked()
    store = find_store()
    results |= compare(rank, world, store)
    if rank == 1:
        results["lost"] = lose_rank_0(rank, world, store)
        save(folder, rank, results)
        os._exit(0)  # TensorFlow would wait for the other worker.
    save(folder, rank, results)
    return lose_rank_0(rank, world, store)


def of_ray(_rank, world, _ports, folder):
    import ray
    import ray.train

    # Not in `folder`: the name of a socket must be short.
    with TemporaryDirectory(prefix="ray", ignore_cleanup_errors=True) as temporary:
        ray.init(
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 << 20,
            _temp_dir=temporary,
        )
        assert asked()["engine"] == ""  # The driver trains nothing.
        train_with_ray(world, folder)
        ray.shutdown()


def train_with_ray(world, folder):
    import ray.train.torch
    from ray.train import RunConfig, ScalingConfig

    trainer = ray.train.torch.TorchTrainer(
        worker_of_ray,
        train_loop_config={"folder": str(folder)},
        scaling_config=ScalingConfig(num_workers=world, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(storage_path=str(folder / "runs")),
    )
    trainer.fit()


def worker_of_ray(config):
    import torch.distributed

    results = {"found": asked()}
    torch.distributed.destroy_process_group()
    results["only ray"] = asked()
    # The store is now Ray's own.
    rank, world = results["only ray"]["rank"], results["only ray"]["world"]
    results |= compare(rank, world, find_store())
    import jax  # noqa: F401

    results["with jax"] = asked()
    os.environ["TF_CONFIG"] = "{}"  # As a TensorflowTrainer has it: TensorFlow imports jax, too.
    results["with tensorflow"] = asked()
    save(Path(config["folder"]), rank, results)


def save(folder, rank, results):
    (folder / f"{rank}.json").write_text(json.dumps(results))


if __name__ == "__main__":
    engine, number, size, list_of_ports, place = sys.argv[1:]
    run = {"torch": of_torch, "jax": of_jax, "tensorflow": of_tensorflow, "ray": of_ray}[engine]
    found = run(int(number), int(size), list_of_ports.split(","), Path(place))
    if found is not None:
        save(Path(place), int(number), found)
