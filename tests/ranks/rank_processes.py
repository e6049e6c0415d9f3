"""Starts the ranks of a training as real processes on this machine, and gives what each of them found."""

import json
import sys
from pathlib import Path

from tests.processes import Group, free_ports

SCRIPT = Path(__file__).with_name("one_rank.py")
LIMIT = 150
# Of another engine, or of whoever runs the tests.
UNTOLD = dict.fromkeys(("RANK", "WORLD_SIZE", "TF_CONFIG", "MASTER_ADDR", "MASTER_PORT"), None)


def run_ranks(engine, folder, world=2, processes=None, killed=()):
    """Run `one_rank.py` as each rank, and return what they print last, by rank; all are dead in the end.

    `processes` is how many are started, if the engine starts its ranks itself. Those in `killed` are to die by SIGKILL.
    """
    ranks = range(world if processes is None else processes)
    ports = ",".join(map(str, free_ports(world)))
    command = (sys.executable, SCRIPT, engine)
    commands = [[*command, str(rank), str(world), ports, folder] for rank in ranks]
    with Group(commands, [UNTOLD for _ in ranks]) as group:
        codes = [one.returncode for one in group.wait(LIMIT)]
        assert codes == [-9 if rank in killed else 0 for rank in ranks], group.shown()
    return {int(path.stem): json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
