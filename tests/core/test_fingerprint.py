"""Fingerprints: every argument that tells in the rows or their order counts, and no wording does."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import penstock as ps
from penstock.core.fingerprint import (
    changes,
    doubtful_code,
    doubts,
    fingerprint,
    made_from,
    walk,
)
from penstock.core.rows import Node
from penstock.core.spec import ArraySpec
from penstock.stages.base.functions import UserFunction
from penstock.stages.base.stage import Stage

RAGGED = [np.arange(i % 4) for i in range(20)]
Make = Callable[[], ps.Dataset]


def rows(num_rows: int = 20, dtype: str = "int64") -> ps.Dataset:
    return ps.from_arrays(np.arange(num_rows, dtype=dtype))


def ragged() -> ps.Dataset:
    return ps.from_arrays(RAGGED)


def double(x):
    return x * 2


def triple(x):
    return x * 3


def is_even(x):
    return x % 2 == 0


def is_odd(x):
    return x % 2 == 1


def numbers():
    return iter(range(5))


def digits():
    return iter(range(5))


INT, FLOAT = ps.ArraySpec((), "int64"), ps.ArraySpec((), "float64")
# Datasets of one line: no two of them may take each other's states.
DIFFERENT: dict[str, list[Make]] = {
    "arrays": [rows, lambda: rows(21), lambda: rows(20, "int32")],
    "batch": [lambda: rows().batch(4), lambda: rows().batch(5), lambda: rows().batch(4, True)],
    "padded_batch": [
        lambda: ragged().padded_batch(4),
        lambda: ragged().padded_batch(5),
        lambda: ragged().padded_batch(4, drop_remainder=True),
        lambda: ragged().padded_batch(4, padding_values=-1),
        lambda: ragged().padded_batch(4, lengths=True),
    ],
    "rebatch": [
        lambda: ragged().padded_batch(4).rebatch(2),
        lambda: ragged().padded_batch(4).rebatch(4),
        lambda: ragged().padded_batch(4).rebatch(2, drop_remainder=True),
        lambda: ragged().padded_batch(4).unbatch().padded_batch(2),
        lambda: rows().batch(4).rebatch(2),
        lambda: rows().batch(4).rebatch(3),
    ],
    "bucket_by_sequence_length": [
        lambda: ragged().bucket_by_sequence_length("value", [2], [2, 3]),
        lambda: ragged().bucket_by_sequence_length(len, [2], [2, 3]),
        lambda: ragged().bucket_by_sequence_length(sum, [2], [2, 3]),
        lambda: ragged().bucket_by_sequence_length("value", [3], [2, 3]),
        lambda: ragged().bucket_by_sequence_length("value", [2], [3, 3]),
        lambda: ragged().bucket_by_sequence_length("value", [2], [2, 3], padded_shapes=[9]),
        lambda: ragged().bucket_by_sequence_length("value", [2], [2, 3], padding_values=1),
        lambda: ragged().bucket_by_sequence_length(
            "value", [4], [2, 3], pad_to_bucket_boundary=True
        ),
        lambda: ragged().bucket_by_sequence_length("value", [4], [2, 3]),
        lambda: ragged().bucket_by_sequence_length("value", [2], [2, 3], no_padding=True),
        lambda: ragged().bucket_by_sequence_length("value", [2], [2, 3], drop_remainder=True),
    ],
    "pack": [
        lambda: ragged().pack(8),
        lambda: ragged().pack(9),
        lambda: ragged().pack(8, bins=3),
        lambda: ragged().pack(8, long="split"),
        lambda: ragged().pack(8, long="truncate"),
        lambda: ragged().pack(8, method="concat"),
        lambda: ragged().pack(8, padding_values=1),
        lambda: ragged().pack(8, drop_remainder=True),
    ],
    "take_while": [
        lambda: rows().take_while(is_even),
        lambda: rows().take_while(is_odd),
        lambda: rows().filter(is_odd),
    ],
    "flat_map": [
        lambda: rows().flat_map(double, spec=INT),
        lambda: rows().flat_map(triple, spec=INT),
        lambda: rows().map(triple, spec=INT),
    ],
    "distribute": [
        lambda: rows().batch(8).distribute(rank=1, world=2, uneven="pad"),
        lambda: rows().batch(8).distribute(rank=1, world=2, uneven="drop"),
        lambda: rows().batch(4).distribute(rank=1, world=2),
    ],
    "split": [
        lambda: rows().split(0.5)[0],
        lambda: rows().split(0.5)[1],
        lambda: rows().split(0.5, seed=1)[0],
        lambda: rows().split(0.6)[0],
        lambda: rows().split(0.5, 0.25)[0],
        lambda: rows().split(0.5, stratify="value")[0],
        lambda: rows().split(0.5, by="value")[0],
    ],
    "resample": [
        lambda: rows().resample("value"),
        lambda: rows().resample("value", seed=1),
        lambda: rows().resample("value", num_rows=21),
        lambda: rows().resample("value", weights={i: 1 + 19 * (i == 3) for i in range(20)}),
    ],
    "shuffle": [
        lambda: rows().shuffle(),
        lambda: rows().shuffle(seed=1),
        lambda: rows().shuffle().shuffle(),
        lambda: rows().shuffle(exact=True),
        lambda: rows().shuffle(window=100),
    ],
    "map": [
        lambda: rows().map(double),
        lambda: rows().map(triple),
        lambda: rows().map(lambda x, random: x, seed=0),
        lambda: rows().map(lambda x, random: x, seed=1),
        lambda: rows().map(double).with_options(on_error="skip"),
    ],
    "filter": [
        lambda: rows().filter(is_even),
        lambda: rows().filter(is_odd),
        lambda: rows().filter(is_even).with_options(on_error="skip"),
    ],
    "window": [
        lambda: rows().window(3),
        lambda: rows().window(4),
        lambda: rows().window(3, 1),
        lambda: rows().window(3, 1, 2),
    ],
    "unbatch": [lambda: rows().batch(4).unbatch(), lambda: rows().batch(4)],
    "take": [lambda: rows().take(3), lambda: rows().take(4), lambda: rows().skip(3)],
    "skip": [lambda: rows().skip(3), lambda: rows().skip(4)],
    "repeat": [lambda: rows().repeat(2), lambda: rows().repeat(3), lambda: rows().repeat()],
    "shard": [lambda: rows().shard(3, 0), lambda: rows().shard(3, 1), lambda: rows().shard(4, 1)],
    "enumerate": [lambda: rows().enumerate(), lambda: rows().enumerate(1)],
    "cache": [lambda: rows().cache(), rows, lambda: rows().shuffle().cache(), lambda: rows().cache().shuffle()],
    "zip": [
        lambda: ps.zip(rows(), rows()),
        lambda: ps.zip(rows(), rows(), rows()),
        lambda: ps.zip(rows(), rows(), strict=False),
        lambda: ps.zip({"a": rows(), "b": rows()}),
        lambda: ps.zip({"a": rows(), "c": rows()}),
        lambda: ps.concatenate(rows(), rows()),
    ],
    "concatenate": [
        lambda: ps.concatenate(rows(), rows(5)),
        lambda: ps.concatenate(rows(5), rows()),
        lambda: ps.concatenate(rows(), rows(5), rows(5)),
    ],
    "mix": [
        lambda: ps.mix([rows(), rows()]),
        lambda: ps.mix([rows(), rows()], seed=1),
        lambda: ps.mix([rows(), rows()], weights=[2, 1]),
        lambda: ps.mix([rows(), rows()], stop="all"),
    ],
    "generator": [
        lambda: ps.from_generator(numbers, INT),
        lambda: ps.from_generator(digits, INT),
        lambda: ps.from_generator(numbers, FLOAT),
        lambda: ps.from_generator(numbers, INT, length=5),
    ],
    "order of stages": [
        lambda: rows().take(8).shuffle(),
        lambda: rows().shuffle().take(8),
        lambda: rows().batch(2).shuffle(),
        lambda: rows().shuffle().batch(2),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_whatever_tells_in_the_rows_tells_in_the_fingerprint(name: str):
    found = [fingerprint(make().node) for make in DIFFERENT[name]]
    assert len(set(found)) == len(found)
    assert found == [fingerprint(make().node) for make in DIFFERENT[name]]


def test_every_stage_is_in_the_table():
    """Found by the classes themselves, so that a new stage is not forgotten."""
    called = {
        make().node.describe().partition("(")[0] for makes in DIFFERENT.values() for make in makes
    }

    def names(kind: type) -> set[str]:
        return {kind.__name__} | {name for one in kind.__subclasses__() for name in names(one)}

    # Buckets and Lengths are parts of bucket_by_sequence_length, _Items is the unbatch of from_generator.
    others = ("Stage", "Stutter", "Buckets", "Lengths", "_Items")
    stages = {name for name in names(Stage) if name not in others}
    camel = {"".join(word.title() for word in call.split("_")) for call in called}
    assert stages <= camel


def every_node(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Let every node and stage call itself something else."""

    def subclasses(kind: type) -> list[type]:
        return [kind, *(more for one in kind.__subclasses__() for more in subclasses(one))]

    for kind in {*subclasses(Node), *subclasses(Stage)}:
        if "describe" in vars(kind):
            monkeypatch.setattr(kind, "describe", lambda self: f"{type(self).__name__} {text}")


@pytest.mark.parametrize("name", DIFFERENT)
def test_wording_can_change_and_states_and_caches_still_fit(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    before = [
        (fingerprint(make().node), made_from(make().node, key="v1")) for make in DIFFERENT[name]
    ]
    every_node(monkeypatch, "in other words")
    monkeypatch.setattr(ArraySpec, "__repr__", lambda self: "another spec")
    for make, (identity, made) in zip(DIFFERENT[name], before, strict=True):
        assert fingerprint(make().node) == identity
        now = made_from(make().node, key="v1")
        assert now["stages"] != made["stages"]
        assert changes(made, now) == ""


def test_what_stands_for_a_missing_feature_tells_in_the_fingerprint(tmp_path: Path):
    ps.from_arrays({"y": np.arange(5)}).write(tmp_path / "r", format="tfrecord")
    found = {
        fingerprint(
            ps.from_tfrecord(tmp_path / "r", {"z": ps.FixedFeature((), "float32", default)}, index=index).node
        )
        for default in (0.0, 7.0)
        for index in (True, False)
    }  # fmt: skip
    assert len(found) == 4


def test_a_state_and_a_cache_of_files_still_fit_when_wording_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    np.save(tmp_path / "x.npy", np.arange(50))
    ps.from_arrays({"y": np.arange(50)}).write(tmp_path / "r", format="tfrecord")

    def made() -> list[ps.Dataset]:
        return [
            ps.from_files(tmp_path / "x.npy").cache(tmp_path / "a").shuffle(seed=1).batch(8),
            ps.from_tfrecord(tmp_path / "r").cache(tmp_path / "b").batch(8),
        ]

    states = []
    for ds in made():
        list(ds)
        with ds.stream() as stream:
            next(stream)
            states.append(stream.state())
    every_node(monkeypatch, "in other words")
    for ds, state in zip(made(), states, strict=True):
        assert "on disk, whole" in str(ds.explain())
        assert len(list(ds.stream(state=state))) == 6


def test_what_changed_is_said_in_words():
    one, other = made_from(rows().map(double).node), made_from(rows().map(triple).node)
    assert changes(one, other) == "it was made by map(double), and the dataset now has map(triple)"
    assert "was added" in changes(made_from(rows().node), one)
    assert "is gone" in changes(one, made_from(rows().node))
    old = {**one, "stages": ["from_arrays((20) int64)", "map(double)"]}
    assert changes(old, one) == "it was made by another version of penstock"


def test_every_function_of_the_users_is_evidence():
    """Found by what nodes and stages have, so that a new stage is not forgotten."""
    seen = set()
    for makes in DIFFERENT.values():
        for make in makes:
            for node in walk(make().node):
                holders = (node, getattr(node, "stage", node))
                if any(isinstance(getattr(one, "function", None), UserFunction) for one in holders):
                    assert [one.kind for one in node.evidence()] == ["code"]
                    seen.add(node.describe().partition("(")[0])
    assert seen == {"map", "filter", "from_generator", "lengths", "take_while", "flat_map"}


def test_what_is_proven_by_values_changes_with_them():
    def made(array):
        return made_from(ps.from_arrays({"x": array, "t": ["a"] * 5}).map(double_x).node)

    one, other = made(np.arange(5)), made(np.arange(5) + 1)
    assert changes(one, made(np.arange(5))) == ""
    assert changes(one, other) == "array 'x' of from_arrays is not what it was"
    assert doubts(one) == ""


def double_x(row):
    return row["x"] * 2


def test_what_can_not_be_compared_is_no_proof_but_for_the_same_run():
    node = ps.from_generator(numbers, INT).node
    words = (
        "from_generator(numbers) can't be compared: what a generator yields may depend on anything"
    )
    assert changes(made_from(node), made_from(node)) == words
    assert doubts(made_from(node)) == doubtful_code(node) == words
    assert changes(made_from(node, run="a"), made_from(node, run="b")) == words
    assert changes(made_from(node, run="a"), made_from(node, run="a")) == ""
    assert changes(made_from(node, key="a"), made_from(node, key="a")) == ""
    assert "key='a', and the dataset now has key='b'" in changes(
        made_from(node, key="a"), made_from(node, key="b")
    )


def test_inputs_that_come_or_go_are_named(tmp_path: Path):
    for name in "ab":
        np.save(tmp_path / f"{name}.npy", np.arange(5))
    one = made_from(ps.from_files(tmp_path / "a.npy").node)
    both = {**one, "inputs": [*one["inputs"], ["file b.npy", [1, 2, 3], ""]]}
    assert changes(one, both) == "file b.npy was not among its inputs"
    assert changes(both, one) == "file b.npy is no longer among its inputs"
    assert changes({**both, "inputs": both["inputs"][::-1]}, both) == "its inputs are others"
