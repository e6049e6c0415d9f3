"""What can happen to the bytes of a file; which of it does follows from a generator of random numbers."""

import re
from collections.abc import Callable

import numpy as np

HUGE = [0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1]
Damage = Callable[[bytearray, np.random.Generator], None]


def place(data: bytearray, generator: np.random.Generator, width: int = 1) -> int:
    """Return where the damage is done: anywhere, or near one of the ends, where headers and indexes are."""
    last = max(1, len(data) - width + 1)
    near = min(last, 400)
    at = int(generator.integers(0, last if generator.random() < 0.5 else near))
    return at if generator.random() < 0.5 else last - 1 - at


def flip_bits(data: bytearray, generator: np.random.Generator) -> None:
    for _ in range(int(generator.integers(1, 4))):
        data[place(data, generator)] ^= 1 << int(generator.integers(0, 8))


def write_bytes(data: bytearray, generator: np.random.Generator) -> None:
    width = int(generator.integers(1, 9))
    at = place(data, generator, width)
    data[at : at + width] = generator.bytes(len(data[at : at + width]))


def write_a_number(data: bytearray, generator: np.random.Generator) -> None:
    """Put a number there that a length, a count or an offset should not be."""
    width = int(generator.choice([1, 2, 4, 8]))
    number = int(HUGE[generator.integers(0, len(HUGE))]) % (1 << 8 * width)
    at = place(data, generator, width)
    order = "little" if generator.random() < 0.7 else "big"
    data[at : at + width] = number.to_bytes(width, order)[: len(data[at : at + width])]


def add_a_little(data: bytearray, generator: np.random.Generator) -> None:
    """Lengths that are off by a few are the hardest to notice."""
    at = place(data, generator)
    data[at] = (data[at] + int(generator.integers(-3, 4))) % 256


def write_a_run(data: bytearray, generator: np.random.Generator) -> None:
    width = int(generator.integers(1, 65))
    at = place(data, generator, width)
    data[at : at + width] = bytes([int(generator.choice([0, 255]))]) * len(data[at : at + width])


def copy_a_range(data: bytearray, generator: np.random.Generator) -> None:
    width = int(generator.integers(1, 200))
    source, at = place(data, generator, width), place(data, generator, width)
    data[at : at + width] = data[source : source + width][: len(data[at : at + width])]


def cut_off(data: bytearray, generator: np.random.Generator) -> None:
    del data[place(data, generator) :]


def lose_a_range(data: bytearray, generator: np.random.Generator) -> None:
    width = int(generator.integers(1, 64))
    at = place(data, generator, width)
    del data[at : at + width]


def insert_a_range(data: bytearray, generator: np.random.Generator) -> None:
    at, source = place(data, generator), place(data, generator)
    data[at:at] = data[source : source + int(generator.integers(1, 64))]


def change_a_word(data: bytearray, generator: np.random.Generator) -> None:
    """Exchange a number, or a word in quotes, for another; in metadata that is text."""
    found = list(re.finditer(rb'-?\d+|"\w+"|true|false|null|[\[\]{}]', bytes(data)))
    if not found:
        flip_bits(data, generator)
        return
    words = [b"-1", b"0", b"1e400", b"99999999999999999999", b"2147483648", b"null", b"[]", b"{}"]
    words += [b'"\\ud800"', b'"../x"', b'"|O"', b"NaN", b'""', b"[" * 10, b"[" * 50_000, b"(" * 150]
    one = found[int(generator.integers(0, len(found)))]
    other = found[int(generator.integers(0, len(found)))]
    choices = [*words, other[0], other[0]]
    data[one.start() : one.end()] = choices[int(generator.integers(0, len(choices)))]


IN_PLACE: list[Damage] = [flip_bits, write_bytes, write_a_number, add_a_little, write_a_run]
ALL: list[Damage] = [
    *IN_PLACE,
    *IN_PLACE,
    copy_a_range,
    cut_off,
    lose_a_range,
    insert_a_range,
    change_a_word,
    change_a_word,
]
