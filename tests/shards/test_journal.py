"""A journal that was changed or cut off: what it says of finished shards is not believed, and the rows are right."""

import json
import warnings

import numpy as np
import pytest

import penstock as ps

NUM_ROWS = 20


def interrupted(folder):
    """Leave some finished shards behind, and return the dataset that goes on."""
    ready = folder / "ready"

    def fail(x):
        if x == 13 and not ready.exists():
            raise RuntimeError("not yet")
        return x

    spec = ps.ArraySpec((), "int64")
    ds = ps.from_arrays(np.arange(NUM_ROWS)).map(fail, spec=spec).filter(lambda x: True)
    ds = ds.with_options(threads=0, processes=0)
    with pytest.raises(ps.FunctionError):
        ds.write(folder / "out", shard_rows=4)
    ready.touch()
    return ds, folder / ".out.penstock-part" / ".unfinished.jsonl"


def changed(line, key, value):
    return json.dumps(json.loads(line) | {key: value}).encode()


CHANGES = {
    "no cursor": lambda lines: [*lines[:3], changed(lines[3], "cursor", None), *lines[4:]],
    "another cursor": lambda lines: [*lines[:3], changed(lines[3], "cursor", [19, 19]), *lines[4:]],
    "more rows": lambda lines: [*lines[:3], changed(lines[3], "num_rows", 9), *lines[4:]],
    "another number": lambda lines: [*lines[:3], changed(lines[3], "shard", 7), *lines[4:]],
    "a line is cut off": lambda lines: [*lines[:3], lines[3][:20], *lines[4:]],
    "a line is no text": lambda lines: [*lines[:3], b"\xff\xfe", *lines[4:]],
    "a line of nothing": lambda lines: [*lines[:3], b"", *lines[3:]],
    "an odd line": lambda lines: [*lines[:3], b"[" * 10_000, b"7", b"null", *lines[3:]],
    "other inputs": lambda lines: [
        changed(lines[0], "made_from", {"inputs": 7, "stages": [[]]}),
        *lines[1:],
    ],
    "a foreign name": lambda lines: [*lines, b'{"begins": ["precious.txt", "../ready"]}'],
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_journal_that_was_changed_leads_to_no_wrong_row(how, tmp_path):
    ds, journal = interrupted(tmp_path)
    (journal.parent / "precious.txt").write_text("mine")
    lines = journal.read_bytes().rstrip(b"\n").split(b"\n")
    assert b'"shard"' in lines[3]
    journal.write_bytes(b"\n".join([*CHANGES[how](lines), b""]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ps.PenstockWarning)
        ds.write(tmp_path / "out", shard_rows=4)
    assert [int(row) for row in ps.from_files(tmp_path / "out")] == list(range(NUM_ROWS))
    assert (tmp_path / "out" / "precious.txt").read_text() == "mine"
    assert (tmp_path / "ready").exists()
