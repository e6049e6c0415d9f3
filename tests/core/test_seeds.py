"""Seeds: numbers of 63 bits, given or drawn, and a drawn one knows who drew it."""

import copy
import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import penstock as ps
from penstock.core.seeds import checked_seed, is_drawn_here


def test_a_given_seed_is_nobodys():
    assert checked_seed(7) == 7
    assert not is_drawn_here(checked_seed(7))
    assert not is_drawn_here(None)


def test_a_drawn_seed_is_that_of_its_process_however_it_is_handed_on():
    seed = checked_seed(None)
    assert 0 <= seed < 1 << 63
    assert seed != checked_seed(None)
    for handed in (seed, pickle.loads(pickle.dumps(seed)), copy.deepcopy(seed)):
        assert handed == seed
        assert is_drawn_here(handed)


def test_a_drawn_seed_is_not_that_of_another_process():
    seed = checked_seed(None)
    code = "import pickle, sys; sys.exit(is_drawn_here(pickle.load(sys.stdin.buffer)))"
    ended = subprocess.run(
        [sys.executable, "-c", f"from penstock.core.seeds import is_drawn_here; {code}"],
        input=pickle.dumps(seed),
        capture_output=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr.decode()


@pytest.mark.parametrize(
    ("seed", "error"),
    [(-1, ValueError), (1.5, TypeError), (True, TypeError), (1 << 63, ValueError)],
)
def test_a_seed_must_be_a_whole_number_of_63_bits(seed: Any, error: type[Exception]):
    for make in (checked_seed, lambda seed: ps.from_arrays(np.arange(3)).shuffle(seed=seed)):
        with pytest.raises(error, match="seed must be"):
            make(seed)
