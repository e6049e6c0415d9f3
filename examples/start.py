"""Start a script in several processes of this machine, as torchrun does: JAX has no command for that.

    python examples/start.py 2 examples/jax_multi_process.py run/

Each process finds RANK, WORLD_SIZE and COORDINATOR in its environment. When one of them fails, the others are ended.
On a cluster its own launcher does this: srun, mpirun or GKE tell jax.distributed.initialize() all it needs.
"""

import os
import socket
import subprocess
import sys
import time


def main(world: int, command: list[str]) -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        coordinator = f"127.0.0.1:{found.getsockname()[1]}"
    shared = os.environ | {"WORLD_SIZE": str(world), "COORDINATOR": coordinator}
    processes = [
        subprocess.Popen([sys.executable, *command], env=shared | {"RANK": str(rank)})
        for rank in range(world)
    ]
    try:
        while any(process.poll() is None for process in processes):
            if any(process.poll() for process in processes):
                return 1
            time.sleep(0.1)
        return max(abs(process.returncode) for process in processes)
    finally:
        for process in processes:
            process.kill()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2:]))
