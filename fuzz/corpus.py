"""Write the seeds of the fuzzers: what TensorFlow writes, and what protobuf allows besides.

    PYTHONPATH=tests python fuzz/corpus.py OUT

makes OUT/scan, OUT/tensor and OUT/decode. The seeds are the same each time.
"""
# ruff: noqa: INP001  # a script, not a package

import sys
from pathlib import Path

from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from native.messages import contents, messy_examples, tensor_bytes
from native.tfrecord_twins import Feature, encode_example, frame

# The plans of fuzz_decode.cpp, in its order.
PLANS = [
    [Feature("x", "fixed", 1, [3]), Feature("y", "fixed", 9)],
    [Feature("x", "tensor", 1, [2, 2]), Feature("y", "fixed", 6)],
    [Feature("x", "variable", 19), Feature("y", "variable", 23), Feature("s", "variable", 7)],
    [Feature("x", "tensor", 3, [-1, -1]), Feature("s", "tensor", 7, [-1])],
    [Feature("x", "fixed", 2, [2]), Feature("y", "fixed", 10, [2]), Feature("u", "fixed", 7, [2])],
    [
        Feature("x", "tensor", 10, [3]),
        Feature("y", "tensor", 14, [-1]),
        Feature("s", "tensor", 7, [2]),
    ],
    [
        Feature("x", "tensor", 8, [-1]),
        Feature("y", "tensor", 23, [2]),
        Feature("u", "variable", 7),
    ],
    [
        Feature("x", "variable", 14),
        Feature("y", "variable", 5),
        Feature("", "tensor", 24, [-1]),
        Feature("z", "fixed", 22, [0]),
    ],
    [],
]


def generate(strategy, count):
    """The first `count` examples of a strategy, always the same ones."""
    found = []

    @seed(0)
    @settings(
        max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def collect(example):
        found.append(example)

    collect()
    return found


@st.composite
def records(draw, plan):
    """A record that mostly is what the plan asks for."""
    pairs = [(feature.name, draw(contents(feature))) for feature in plan]
    if draw(st.booleans()):
        return draw(messy_examples(pairs))
    return encode_example({name: pair for name, pair in pairs if pair[0]})


def write(folder, seeds):
    """Write a file for each seed."""
    folder.mkdir(parents=True, exist_ok=True)
    for index, content in enumerate(seeds):
        (folder / f"seed-{index}").write_bytes(content)


def main(out):
    """Write all seeds."""
    for number, plan in enumerate(PLANS):
        one = [bytes([number, 0]) + record for record in generate(records(plan), 40)]
        several = [bytes([number, 3]) + record * 4 for record in generate(records(plan), 10)]
        write(out / "decode" / str(number), one + several)
    write(out / "tensor", generate(tensor_bytes(), 200))
    write(
        out / "scan",
        [b"".join(map(frame, payloads)) for payloads in generate(st.lists(st.binary()), 50)],
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
