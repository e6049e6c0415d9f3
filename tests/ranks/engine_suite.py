"""What every engine must give: see compare() of one_rank.py, which each rank runs."""


def check_store(results):
    """Check what two ranks saw in the store, and in what they agreed."""
    assert sorted(results) == [0, 1]
    for one in results.values():
        assert one["missing"] is None
        assert one["seconds"] < 5  # It does not wait for a value.
        assert one["twice"] in ("1", "2 ä\n3")
        assert one["same"] == [False, ""]
        assert "rank 1 does not read the same as rank 0:\n  files: 1.npy" in one["other"]
        assert "0.npy 4000 bytes on rank 0\nGive every rank the same files" in one["other"]
        assert "seeds" not in one["other"].split("\n")[1]
    assert results[0]["other"] == results[1]["other"]
