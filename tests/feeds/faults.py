"""What every engine must do when one of its ranks is slow, or can't read."""

from pathlib import Path

import numpy as np
from tests.processes import start_ranks

SCRIPT = Path(__file__).with_name("faulty_rank.py")


def check_faults(engine, folder):
    """Run three ranks: all wait for the slow one; when it can't read its file, it says so, and all of them end."""
    rows = np.arange(101 * 4, dtype="float32").reshape(101, 4)
    np.save(folder / "rows.npy", rows)
    with start_ranks(SCRIPT, 3, engine, folder, PYTHONPATH=SCRIPT.parents[2]) as group:
        ended = group.wait(120)
        assert all(one.returncode not in (0, None) for one in ended), group.shown()
        assert "MissingFileError" in ended[1].errors, group.shown()
        assert "disk-1/rows.npy" in ended[1].errors, group.shown()
        for one in ended:
            slow = [line for line in one.output.splitlines() if line.startswith("slow")]
            assert slow == [f"slow {float(rows[:96].sum())}"], group.shown()
            assert "unreadable" not in one.output
