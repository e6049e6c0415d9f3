"""A folder as a store of bytes by key: what is read, and that nothing is read once it is closed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.errors import DataError, FileChangedError, StreamClosedError
from penstock.io import keys as module
from penstock.io.keys import open_keys
from penstock.io.location import Location


def test_a_key_is_read_in_part_or_whole_and_never_more_than_allowed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    keys = open_keys(Location(str(tmp_path), 0, is_directory=True))
    assert keys.get("a", 0, None) == b"0123456789"
    assert keys.get("a", 2, 4) == b"23"
    assert keys.get("a", -3, None) == b"789"
    assert keys.get("b", 0, None) is None
    with pytest.raises(
        DataError, match="10 bytes to be read at once, where there can be at most 9"
    ):
        keys.get("a", 0, None, most=9)
    keys.close()
    keys.close()


def test_closing_waits_for_the_reads_that_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    keys = open_keys(Location(str(tmp_path), 0, is_directory=True))
    is_reading, may_go_on = threading.Event(), threading.Event()
    fill = module._fill

    def slow(*arguments: Any) -> None:
        is_reading.set()
        may_go_on.wait()
        fill(*arguments)

    monkeypatch.setattr(module, "_fill", slow)
    with ThreadPoolExecutor(2) as pool:
        read = pool.submit(keys.get, "a", 0, None)
        is_reading.wait()
        closed = pool.submit(keys.close)
        with suppress(StreamClosedError):
            while True:  # Until the store is being closed, other keys are looked for.
                assert keys.get("b", 0, None) is None
        assert not closed.done()
        may_go_on.set()
        assert read.result() == b"abc"
        closed.result()


def test_a_key_that_is_written_to_while_it_is_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(100))
    keys = open_keys(Location(str(tmp_path), 0, is_directory=True))

    def changing(content: bytes) -> Any:
        def room(nbytes: int) -> Any:
            path.write_bytes(content)
            return np.empty(nbytes, np.uint8)

        return room

    with pytest.raises(FileChangedError, match="shrank while being read: wanted 90 bytes, got 0"):
        keys.read("a", 0, None, changing(bytes(10)))
    with pytest.raises(FileChangedError, match="written to while it was read"):
        keys.read("a", 0, None, changing(bytes(100)))
    keys.close()
