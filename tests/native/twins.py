"""The native kernels over again in plain Python and NumPy: slow, and plain enough to be believed."""

import math

import numpy as np

MASK = 2**64 - 1


def mix(value):
    """The finalizer of splitmix64."""
    value &= MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK
    return value ^ (value >> 31)


def splitmix64(seed, count):
    """The first `count` outputs of splitmix64, as round keys."""
    return np.array(
        [mix(seed + 0x9E3779B97F4A7C15 * (i + 1)) for i in range(count)], dtype=np.uint64
    )


def ceil_sqrt(value):
    return math.isqrt(value - 1) + 1 if value else 0


def num_rounds(num_rows):
    """How many rounds an order of this many rows needs: the smaller the halves, the more."""
    bits = max(1.0, math.log2(ceil_sqrt(num_rows)))
    return min(64, max(8, 2 * math.ceil(24 / bits)))


def permute_one(position, num_rows, keys):
    left = ceil_sqrt(num_rows)
    right = -(-num_rows // left)
    while True:
        high, low = divmod(position, right)
        for index, key in enumerate(keys):
            if index % 2 == 0:
                high = (high + (mix(low + key) * left >> 64)) % left
            else:
                low = (low + (mix(high + key) * right >> 64)) % right
        position = high * right + low
        if position < num_rows:
            return position


def permute(positions, num_rows, keys):
    keys = [int(key) for key in keys]
    return np.array([permute_one(int(p), num_rows, keys) for p in positions], dtype=np.int64)


def gather(source, rows, out, at=None):
    group_rows = out.shape[1]
    for index, row in enumerate(rows):
        slot = index if at is None else at[index]
        out[slot // group_rows, slot % group_rows] = source[row]


def gather_spans(source, starts, lengths, out, out_starts):
    source = np.frombuffer(source, np.uint8)
    for start, length, out_start in zip(starts, lengths, out_starts, strict=True):
        out[out_start : out_start + length] = source[start : start + length]
