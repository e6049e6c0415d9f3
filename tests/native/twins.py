"""The native kernels over again in plain Python and NumPy: slow, and plain enough to be believed."""

import math
from fractions import Fraction

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


def dealt_rows(key, num_runs, places, firsts, tail):
    """All rows that `_native.Dealt` chooses, in order: the pattern of each run, turned, and sorted."""
    run_rows = firsts.shape[1]
    rows = []
    for run in range(num_runs):
        found = mix(key + (run + 1) * 0x9E3779B97F4A7C15)
        turn = found * run_rows >> 64
        pattern = places[found & (len(places) - 1)].tolist()
        rows += sorted(run * run_rows + (place + turn) % run_rows for place in pattern)
    return np.array(rows + tail.tolist(), np.int64)


def marked_rows(words):
    """All rows whose bits are set."""
    rows = [64 * i + j for i, word in enumerate(words.tolist()) for j in range(64) if word >> j & 1]
    return np.array(rows, np.int64)


def ranks(words):
    """How many bits are set before every eighth word, and in all."""
    counts = [word.bit_count() for word in words.tolist()]
    return np.array([sum(counts[:end]) for end in range(0, len(counts) + 8, 8)], np.int64)


def gather(source, rows, out, at=None, rest=None):
    group_rows = out.shape[1]
    source = source if rest is None else np.concatenate([source, rest])
    for index, row in enumerate(rows):
        slot = index if at is None else at[index]
        out[slot // group_rows, slot % group_rows] = source[row]


def gather_arrays(arrays, rows, lengths, out, out_starts):
    """The bytes of each array that is asked for, one by one."""
    for row, length, start in zip(rows, lengths, out_starts, strict=True):
        data = np.frombuffer(arrays[row].tobytes(), np.uint8)
        assert len(data) == length
        out[start : start + length] = data


def gather_spans(source, starts, lengths, out, out_starts):
    source = np.frombuffer(source, np.uint8)
    for start, length, out_start in zip(starts, lengths, out_starts, strict=True):
        out[out_start : out_start + length] = source[start : start + length]


def unshuffle(packed, width):
    """Values of which all first bytes came first; what is left over of a value is as it was."""
    count = len(packed) // width
    whole = packed[: count * width].reshape(width, count).T.reshape(-1)
    return np.concatenate([whole, packed[count * width :]])


def fletcher32(content):
    """The sum of all words of 16 bits, and the sum of those sums, modulo 65535."""
    first = second = 0
    for at in range(0, len(content), 2):
        first = (first + int.from_bytes(content[at : at + 2].ljust(2, b"\0"), "big")) % 65535
        second = (second + first) % 65535
    return first, second


def records(data, separator, quote, is_last=True):
    """The records of text, each as (begin, start, end), with the faults of quotes; separator -1: lines of text."""
    found, faults = [], []
    unclosed = -1
    begin = start = at = 0
    while at < len(data):
        byte = data[at]
        if byte == ord("\n") or (separator >= 0 and byte == ord("\r")):
            if separator < 0 or at > start:
                found.append((begin, start, at))
                begin = at + 1
            start = at + 1
        elif separator >= 0 and byte == quote and (at == start or data[at - 1] == separator):
            first = at
            while True:
                at += 1
                if at >= len(data):
                    return found, faults, first
                if data[at] == quote:
                    if data[at + 1 : at + 2] == bytes([quote]):
                        at += 1
                    elif at + 1 == len(data) and not is_last:
                        return found, faults, first
                    else:
                        break
            follows = data[at + 1 : at + 2]
            if follows and follows not in (bytes([separator]), b"\n", b"\r"):
                faults.append(at + 1)
        at += 1
    if is_last and start < len(data):
        found.append((begin, start, len(data)))
    return found, faults, unclosed


def runs(data, separator, quote, most, is_last=True):
    """The ends of runs of whole records, of at most so many bytes unless a record is longer, and their records."""
    found, _, unclosed = records(data, separator, quote, is_last)
    ends, contents = [], []
    run_start, run = 0, []
    for begin, start, end in found:
        if run and min(end + 1, len(data)) - run_start > most:
            ends.append(begin)
            contents.append(run)
            run_start, run = begin, []
        run.append(data[start:end])
    if is_last and unclosed < 0:
        if run:
            ends.append(len(data))
            contents.append(run)
        elif ends:
            ends[-1] = len(data)
    return ends, contents


def first_fit(lengths, capacity, most_bins, fills):
    """The bin and the offset of each length, and the bins that closed with how many lengths were placed by then."""
    open_bins = dict(enumerate(fills))
    count = len(fills)
    placed, closed = [], []
    for index, length in enumerate(lengths):
        bin_ = next((b for b, fill in open_bins.items() if fill + length <= capacity), None)
        if bin_ is None:
            if len(open_bins) == most_bins:
                fullest = max(open_bins, key=open_bins.get)
                closed.append((fullest, index))
                del open_bins[fullest]
            bin_, count = count, count + 1
            open_bins[bin_] = 0
        placed.append((bin_, open_bins[bin_]))
        open_bins[bin_] += length
        if open_bins[bin_] == capacity:
            closed.append((bin_, index + 1))
            del open_bins[bin_]
    return placed, closed, count


def moments(rows):
    """Mean, squared deviations, minimum and maximum of each place of a row, in exact arithmetic."""
    columns = [list(column) for column in zip(*rows.tolist(), strict=True)]
    exact = [[Fraction(value) for value in column] for column in columns]
    means = [sum(column) / len(column) for column in exact]
    squares = [
        float(sum((value - mean) ** 2 for value in column))
        for column, mean in zip(exact, means, strict=True)
    ]
    return (
        [float(mean) for mean in means],
        squares,
        list(map(min, columns)),
        list(map(max, columns)),
    )
