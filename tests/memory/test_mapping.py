"""Memory straight from the system."""

import numpy as np
import pytest

from penstock.io.local.bounce import address, aligned_empty
from penstock.memory.mapping import HUGE_NBYTES, map_memory


@pytest.mark.parametrize("nbytes", [1, 4096, HUGE_NBYTES, 3 * HUGE_NBYTES + 5])
def test_it_starts_on_a_page_and_can_be_written_to(nbytes: int) -> None:
    memory = np.frombuffer(map_memory(nbytes), np.uint8)
    assert len(memory) == nbytes
    assert address(memory) % 4096 == 0
    memory[:] = 7
    assert (memory == 7).all()


@pytest.mark.parametrize("nbytes", [1 << 17, HUGE_NBYTES, 2 * HUGE_NBYTES])
def test_memory_for_direct_reads_starts_on_a_huge_page_where_it_has_room_for_one(
    nbytes: int,
) -> None:
    memory = aligned_empty(nbytes)
    assert len(memory) == nbytes
    assert address(memory) % (HUGE_NBYTES if nbytes >= HUGE_NBYTES else 4096) == 0
    memory[-1] = 1
