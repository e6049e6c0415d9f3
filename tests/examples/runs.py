"""Runs of an example: whole ones by its own command, and those in which a rank is killed."""

import itertools
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.processes import QUIET, free_port, start_ranks

ROOT = Path(__file__).parents[2]
NUM_ROWS, EPOCHS = 1001, 3
# What the processes that are left say: whichever of them notices first, and how.
CLEAR = (
    "onnection closed by peer",
    "onnection reset by peer",
    "heartbeat timeout",
    "another task died",
    "roken pipe",
)


def run(*command, seconds=240, **environment):
    """Run the one command of an example, as its docstring has it; return what it printed."""
    with subprocess.Popen(
        [sys.executable, *map(str, command)],
        cwd=ROOT,
        env=os.environ | QUIET | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            output, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.terminate()  # It ends its own processes, then.
            process.communicate()
            raise
    assert process.returncode == 0, output[-3000:] + errors[-6000:]
    return output


def by_torchrun(script, world, folder, **environment):
    # DistributedDataParallel of torch 2.13 leaves threads of gloo behind, which now and then abort a process at its
    # exit, with its work done. Then torchrun starts all of them again, and they find that nothing is left to do.
    command = ("-m", "torch.distributed.run", "--standalone", "--max-restarts", 3)
    command = (*command, "--nproc-per-node", world, f"examples/{script}", folder)
    try:
        return run(*command, seconds=100, **environment)
    except subprocess.TimeoutExpired:
        # On a busy machine, its gloo may wait for ever for two ranks to connect, before any row is read.
        return run(*command, seconds=140, **environment)


def by_start(script, world, folder, **environment):
    return run("examples/start.py", world, f"examples/{script}", folder, **environment)


def kill_a_rank(script, world, folder, moments, text="saved", **environment):
    """Start an example, and kill one of its ranks at a random moment: all others must end, and say why."""
    ends = free_port()
    with start_ranks(
        ROOT / "examples" / script, world, folder, COORDINATOR=f"127.0.0.1:{ends}", **environment
    ) as group:
        group.await_line(0, text, moments.randrange(1, 5 if text == "saved" else 3))
        time.sleep(moments.random() / 20)
        victim = moments.randrange(world)
        group.processes[victim].kill()
        others = [one for rank, one in enumerate(group.wait(60)) if rank != victim]
        assert all(one.returncode not in (0, None) for one in others), group.shown()
        # Whoever notices first says so. Another may stumble over what that one had half sent when it ended: Gloo then
        # takes it for a mismatch of collectives.
        assert any(text in one.errors for text in CLEAR for one in others), group.shown()


def check_kills(launch, load, script, folder, worlds, seed, **environment):
    """Kill a run once in each world but the last, and finish it there: it ends as one that nobody killed."""
    moments = random.Random(seed)
    whole, killed = folder / "whole", folder / "killed"
    whole.mkdir()
    killed.mkdir()
    launch(script, 2, whole, **environment)
    for world in worlds[:-1]:
        kill_a_rank(script, world, killed, moments, **environment)
        assert load(killed)["rows"] < EPOCHS * NUM_ROWS
    launch(script, worlds[-1], killed, **environment)
    wanted, found = load(whole), load(killed)
    # Each row once an epoch, and in the same global batches, or the weights would be others.
    assert found.pop("rows") == wanted.pop("rows") == EPOCHS * NUM_ROWS
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)


def loss_of(output):
    (line,) = [one for one in output.splitlines() if one.startswith("the loss of all rows")]
    return float(line.split()[-1])


def check_keras(launch, script, folder, seed=0, worlds=(2, 3)):
    """Kill a rank in each world but the last, where it is finished: the loss is that of one process."""
    moments = random.Random(seed)
    for world in worlds[:-1]:
        kill_a_rank(script, world, folder / "killed", moments, text="Epoch")
    found = launch(script, worlds[-1], folder / "killed")
    assert "Epoch 3/3" in found
    alone = launch(script, 1, folder / "whole")
    assert loss_of(found) == pytest.approx(loss_of(alone), rel=1e-3)


def kill_alone(script, folder, line, **environment):
    """Start an example of one process, and kill it once it has printed so many lines; return what it printed."""
    with subprocess.Popen(
        [sys.executable, "-u", f"examples/{script}", str(folder)],
        cwd=ROOT,
        env=os.environ | QUIET | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        printed = list(itertools.islice(process.stdout, line))
        process.kill()
    assert len(printed) == line, "".join(printed)
    return printed


def check_kills_alone(load, script, folder, lines, **environment):
    """Kill a run after some lines, each time, and finish it: it ends as one that nobody killed."""
    for name in ("whole", "killed"):
        (folder / name).mkdir()
    run(f"examples/{script}", folder / "whole", **environment)
    for line in lines:
        kill_alone(script, folder / "killed", line, **environment)
    run(f"examples/{script}", folder / "killed", **environment)
    wanted, found = load(folder / "whole"), load(folder / "killed")
    assert len(wanted) == len(found) > 0
    for one, other in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(one, other)
