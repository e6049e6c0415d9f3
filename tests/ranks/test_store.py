"""The store of no engine: there is none. Those of engines are tested with each, by processes that share one."""

import pytest

from penstock.ranks import by_torch
from penstock.ranks.store import find_store


def test_there_is_no_store_unless_an_engine_is_initialised(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert find_store() is None


def test_a_single_process_has_no_store(tmp_path):
    torch = pytest.importorskip("torch")
    address = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=address, rank=0, world_size=1)
    try:
        assert by_torch.place() == (0, 1, 1)
        assert find_store() is None
    finally:
        torch.distributed.destroy_process_group()


def test_an_engine_whose_parts_moved_has_no_store(monkeypatch):
    def moved():
        raise AttributeError("no such part")

    monkeypatch.setattr(by_torch, "store", moved)
    assert find_store() is None
