"""Processes that wait for the next epoch do so for as long as a test takes."""

import pytest

from penstock.workers import service


@pytest.fixture(autouse=True)
def _a_busy_machine_may_take_its_time(monkeypatch):
    monkeypatch.setattr(service, "IDLE_SECONDS", 600)
