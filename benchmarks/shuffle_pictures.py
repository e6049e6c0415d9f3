"""Pictures of what each kind of shuffle makes of sorted data, for docs/guides/shuffling.md.

    python benchmarks/shuffle_pictures.py            # writes docs/pictures/shuffle-*.svg, prints the table

The data is a million rows of 256 bytes, sorted into ten classes. A picture has a dot for every thousandth row: to the
right its position in the epoch, upwards its place in the file. Below it are the classes of sixty batches of 32 rows,
taken at equal distances from the epoch, a column each. The orders follow from the seed: the pictures are the same on
every machine.
"""

import argparse
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import penstock as ps

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
NUM_ROWS, NUM_CLASSES, BATCH_SIZE = 1_000_000, 10, 32
ROW = np.dtype([("number", "<i8"), ("rest", "S248")])
COLOURS = (
    "#332288", "#0072b2", "#56b4e9", "#009e73", "#117733", "#ddcc77", "#e69f00", "#d55e00", "#cc79a7", "#882255",
)  # fmt: skip
NEAR = 1000  # Rows of the same thousand of the file are neighbours.
NUM_DOTS, NUM_COLUMNS = 1000, 60
WIDTH, HEIGHT, STRIP, MARGIN = 300, 220, 64, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to put the pictures")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    print("| | mixing | classes in a batch of 32 | rows with a neighbour in it | memory it needs |")
    print("|---|---|---|---|---|")
    rows = np.zeros(NUM_ROWS, ROW)
    rows["number"] = np.arange(NUM_ROWS)
    with tempfile.TemporaryDirectory() as scratch:
        np.save(f"{scratch}/sorted.npy", rows)
        file = ps.from_files(f"{scratch}/sorted.npy")
        kinds = {
            "none": ("no shuffle", file),
            "memory": ("arrays in memory: `shuffle(seed=0)`", ps.from_arrays(rows).shuffle(seed=0)),
            "files": ("a file: `shuffle(seed=0)`", file.shuffle(seed=0)),
            "small": (
                'a file: `shuffle(seed=0, window="4MB")`',
                file.shuffle(seed=0, window="4MB"),
            ),
            "exact": ("a file: `shuffle(seed=0, exact=True)`", file.shuffle(seed=0, exact=True)),
            "forward": ("a generator: `shuffle(seed=0)`", generated(rows).shuffle(seed=0)),
        }
        for name, (call, ds) in kinds.items():
            order = np.concatenate([batch["number"] for batch in ds.batch(1000)])
            plan = ds.batch(BATCH_SIZE).with_options(memory="1GB").explain()
            mixing = re.search(r"mixing (\d\.\d+)", str(plan))
            memory = f"{plan.need_nbytes / 1e6:.1f} MB"
            show(folder, name, order, call, mixing[1] if mixing else "", memory)
    order = np.fromiter(buffered(10_000), np.int64, NUM_ROWS)
    memory = f"{10_000 * ROW.itemsize / 1e6:.1f} MB"
    show(folder, "buffer", order, "elsewhere: a buffer of 10,000 rows", "", memory)


def generated(rows: np.ndarray) -> ps.Dataset:
    """Return the same rows, of a generator."""

    def blocks() -> Iterator[np.ndarray]:
        return iter(np.split(rows, 100))

    return ps.from_generator(blocks, ps.ArraySpec((), ROW), rows_per_item="many", length=len(rows))


def buffered(size: int) -> Iterator[int]:
    """Yield rows as a shuffle buffer does: any of those in it, which the next row of the file then replaces."""
    drawn = random.Random(0)
    buffer = list(range(size))
    for number in range(size, NUM_ROWS):
        at = drawn.randrange(size)
        yield buffer[at]
        buffer[at] = number
    drawn.shuffle(buffer)
    yield from buffer


def show(folder: Path, name: str, order: np.ndarray, call: str, mixing: str, memory: str) -> None:
    """Write the picture of an order, and print its line of the table."""
    assert np.array_equal(np.bincount(order), np.ones(NUM_ROWS)), "not every row came once"
    classes = order.reshape(-1, BATCH_SIZE) * NUM_CLASSES // NUM_ROWS
    different = np.mean([len(set(batch)) for batch in classes.tolist()])
    near = order.reshape(-1, BATCH_SIZE) // NEAR
    alone = np.mean(
        [sum(count == 1 for count in Counter(batch).values()) for batch in near.tolist()]
    )
    neighbours = f"{1 - alone / BATCH_SIZE:.0%}".replace("%", " %")
    print(f"| {call} | {mixing} | {different:.1f} of 10 | {neighbours} | {memory} |")
    (folder / f"shuffle-{name}.svg").write_text(picture(order, classes))


def picture(order: np.ndarray, classes: np.ndarray) -> str:
    """Return the SVG: on a light ground of its own, since pages may be dark."""
    dots: list[list[str]] = [[] for _ in COLOURS]
    bars: list[list[str]] = [[] for _ in COLOURS]
    for number in np.linspace(0, NUM_ROWS - 1, NUM_DOTS, dtype=int).tolist():
        place = int(order[number])
        x = MARGIN + WIDTH * number / NUM_ROWS
        y = MARGIN + HEIGHT * (1 - place / NUM_ROWS)
        dots[place * NUM_CLASSES // NUM_ROWS].append(f"M{x:.0f} {y:.0f}h0")
    top, width = HEIGHT + 2 * MARGIN, WIDTH / NUM_COLUMNS
    for column, batch in enumerate(np.linspace(0, len(classes) - 1, NUM_COLUMNS, dtype=int)):
        y = top
        for one, count in enumerate(np.bincount(classes[batch], minlength=NUM_CLASSES).tolist()):
            height = STRIP // BATCH_SIZE * count
            if height:
                x = MARGIN + column * width
                bars[one].append(f"M{x:.0f} {y}h{width:.0f}v{height}h-{width:.0f}z")
            y += height
    lines = [
        f'<path d="{"".join(one)}" stroke="{colour}" stroke-width="3" stroke-linecap="round"/>'
        f'<path d="{"".join(other)}" fill="{colour}"/>'
        for one, other, colour in zip(dots, bars, COLOURS, strict=True)
    ]
    total = (WIDTH + 2 * MARGIN, top + STRIP + MARGIN)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}" width="{total[0]}" '
        f'height="{total[1]}"><rect width="{total[0]}" height="{total[1]}" rx="6" fill="#fafafa"/>'
        + "".join(lines)
        + "</svg>\n"
    )


if __name__ == "__main__":
    main()
