"""The folders that `write()` and `cache()` make: plain `.npy` shards and a manifest."""
