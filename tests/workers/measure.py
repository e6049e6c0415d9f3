"""What worker processes cost and gain: `python tests/workers/measure.py`.

Prints how long a worker takes to start, what a task costs that does nothing to a block of 4 MB, and
how two workers compare with one process on a row function that holds the interpreter lock for about
100 microseconds (W10). Other programs disturb both sides of that comparison, so only rounds count in
which the one process had a core to itself; on a busy machine there may be none, and it says so.
"""

import statistics
import subprocess
import sys
import time
from collections import deque
from pathlib import Path

import numpy as np
from tests.workers.carving import carve, carved_nbytes

from penstock.workers import WorkerPool, holds_lock, pickle_function

ROW = ("float32", (100,))
ROWS_A_BLOCK = 300
BLOCKS = 40
# The share of a core that the one process must have had for a round to count.
UNDISTURBED = 0.95


def row_function(x):
    """Hold the lock for about 100 microseconds."""
    total = 0.0
    for value in x.tolist() * 28:
        total += value * 0.5
    return x + total


def run_rows(inputs, outputs, num_rows):
    source, target = inputs[0], outputs[0]
    begun = time.thread_time()
    for row in range(num_rows):
        target[row] = row_function(source[row])
    return time.thread_time() - begun


def do_nothing(inputs, outputs, meta):
    pass


def measure_starts(rounds=10):
    bare, started = [], []
    for _ in range(rounds):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import numpy"], check=True)
        bare.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        pickled = pickle_function(do_nothing)
        with WorkerPool(1, pickled, name="nothing") as pool:
            pool.ready.result()
            started.append(time.perf_counter() - begun)
    print(
        f"start of a worker, until it has loaded its function: best {min(started) * 1e3:.0f} ms, "
        f"median {statistics.median(started) * 1e3:.0f} ms "
        f"(python -c 'import numpy': best {min(bare) * 1e3:.0f}, "
        f"median {statistics.median(bare) * 1e3:.0f})"
    )


def measure_round_trips(rounds=2000):
    with WorkerPool(1, pickle_function(do_nothing), name="nothing") as pool:
        x, y = carve(pool.add_arena(8 << 20).memory, [("float32", (1 << 20,))] * 2)
        x[:] = y[:] = 0
        seconds = []
        for step in range(rounds):
            begun = time.perf_counter()
            pool.submit(step, inputs=[x], outputs=[y]).result()
            seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        for future in [pool.submit(step, inputs=[x], outputs=[y]) for step in range(rounds)]:
            future.result()
        piped = (time.perf_counter() - begun) / rounds
    copies = []
    for _ in range(50):
        begun = time.perf_counter()
        np.copyto(y, x)
        copies.append(time.perf_counter() - begun)
    print(
        f"a task on 4 MB in and 4 MB out that does nothing: best {min(seconds) * 1e6:.0f} us, "
        f"median {statistics.median(seconds) * 1e6:.0f} us; {piped * 1e6:.0f} us each when several are under way "
        f"(one copy of 4 MB: {min(copies) * 1e6:.0f} us)"
    )


def run_in_one_process(x, y):
    """Return the time all blocks took, and the processor time."""
    begun, used = time.perf_counter(), time.process_time()
    for _ in range(BLOCKS):
        run_rows([x], [y], ROWS_A_BLOCK)
    return time.perf_counter() - begun, time.process_time() - used


def run_in_workers(pool, blocks):
    """Return the time all blocks took, the processor time of all processes, and the workers' busy share."""
    used, cores = time.process_time(), sum(map(processor_seconds, pool.pids()))
    begun = time.perf_counter()
    pending, busy = deque(), 0.0
    for step in range(BLOCKS):
        if len(pending) == len(blocks):
            busy += pending.popleft().result().seconds
        x, y = blocks[step % len(blocks)]
        pending.append(pool.submit(step, inputs=[x], outputs=[y], meta=ROWS_A_BLOCK))
    busy += sum(future.result().seconds for future in pending)
    elapsed = time.perf_counter() - begun
    used += cores
    cores = sum(map(processor_seconds, pool.pids())) + time.process_time()
    return elapsed, cores - used, busy / elapsed / pool.num_workers


def processor_seconds(pid):
    """Return the processor time of another process, from its scheduler statistics."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) * 1e-9


def measure_scaling(rounds=8):
    kind, shape = ROW
    columns = [(kind, (ROWS_A_BLOCK, *shape))] * 2
    with WorkerPool(2, pickle_function(run_rows), name="map") as pool:
        pool.ready.result()
        blocks = [carve(pool.add_arena(carved_nbytes(columns)).memory, columns) for _ in range(8)]
        for x, y in blocks:
            x[:], y[:] = np.random.default_rng(0).random(x.shape), 0
        ratios, costs, shares = [], [], []
        for _ in range(rounds):
            alone, alone_cores = run_in_one_process(*(array.copy() for array in blocks[0]))
            beside, beside_cores, share = run_in_workers(pool, blocks)
            if alone_cores / alone >= UNDISTURBED:
                ratios.append(alone / beside)
            costs.append(beside_cores / alone_cores)
            shares.append(share)
        expected = np.zeros_like(blocks[0][1])
        run_rows([blocks[0][0]], [expected], ROWS_A_BLOCK)
        assert np.array_equal(expected, blocks[0][1])
    a_row = alone_cores / BLOCKS / ROWS_A_BLOCK
    found = "no round counts: the machine is too busy"
    if ratios:
        found = (
            f"best {max(ratios):.2f}x, median {statistics.median(ratios):.2f}x "
            f"of the {len(ratios)} rounds in {rounds} that count"
        )
    print(
        f"{ROWS_A_BLOCK} rows a block, {a_row * 1e6:.0f} us a row: two workers against one process: "
        f"{found}; a worker was in the function {statistics.median(shares):.0%} of the time; "
        f"processor time, parent included: {statistics.median(costs):.2f} of one process"
    )


def measure_probe():
    x = np.ones(100, np.float32)
    print("the row function", holds_lock(row_function, x).reason)
    print("a sort of 1 MB", holds_lock(np.sort, np.random.default_rng(0).random(1 << 17)).reason)


if __name__ == "__main__":
    measure_starts()
    measure_round_trips()
    measure_scaling()
    measure_probe()
