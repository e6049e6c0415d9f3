"""A plain-Python model of datasets: a list of rows for each epoch, and the stages on such lists."""

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from tests.stages.bucket_by_sequence_length.model import bucketed
from tests.stages.packing.model import joined, packed, placed

import penstock as ps
from penstock.core.nest import field_names, flatten
from penstock.core.order import Permutation
from penstock.stages.split.dealing import deal_of

Row = Any


@dataclass(frozen=True)
class Model:
    """What a dataset should give: its rows in each epoch."""

    rows: Callable[[int], list[Row]]
    kind: str = "rows"
    """'rows' have random access, a 'flow' has none, a 'cached' flow has once it is full."""
    num_shuffles: int = 0
    is_batched: bool = False

    def with_rows(self, change: Callable[[list[Row], int], list[Row]], **changes: Any) -> "Model":
        before = self.rows
        return replace(self, rows=lambda epoch: change(before(epoch), epoch), **changes)


def stack(rows: list[Row]) -> Row:
    """Return the batch of some rows."""
    first, structure = flatten(rows[0])
    columns = list(zip(*(flatten(row)[0] for row in rows), strict=True))
    return structure.unflatten([_stacked(first[i], column) for i, column in enumerate(columns)])


def _stacked(example: Any, values: tuple[Any, ...]) -> Any:
    if isinstance(example, bytes | str):
        out = np.empty(len(values), object)
        out[:] = values
        return out
    return np.stack(values)


def unstack(batch: Row) -> list[Row]:
    """Return the rows of a batch."""
    leaves, structure = flatten(batch)
    return [structure.unflatten([leaf[i] for leaf in leaves]) for i in range(len(leaves[0]))]


def shuffle(model: Model, seed: int) -> Model:
    def change(rows: list[Row], epoch: int) -> list[Row]:
        words = (seed, epoch, model.num_shuffles) + ((0,) if model.kind == "flow" else ())
        order = Permutation(len(rows), words).rows(np.arange(len(rows)))
        return [rows[i] for i in order]

    kind = "rows" if model.kind == "rows" else "flow"
    return model.with_rows(change, num_shuffles=model.num_shuffles + 1, kind=kind)


def batch(model: Model, size: int, *, drop: bool) -> Model:
    def change(rows: list[Row], _: int) -> list[Row]:
        groups = [rows[i : i + size] for i in range(0, len(rows), size)]
        return [stack(group) for group in groups if not (drop and len(group) < size)]

    return model.with_rows(change, is_batched=True, kind=_flow(model))


def repeat(model: Model, count: int) -> Model:
    before = model.rows
    return replace(
        model,
        rows=lambda epoch: [row for p in range(count) for row in before(epoch * count + p)],
        kind=_flow(model),
    )


def cache(model: Model) -> Model:
    before = model.rows
    return replace(
        model, rows=lambda epoch: before(0), kind="rows" if model.kind == "rows" else "cached"
    )


def _flow(model: Model) -> str:
    return "rows" if model.kind == "rows" else "flow"


def equal(a: Row, b: Row) -> bool:
    """Whether two rows have the same nest, values and dtypes."""
    mine, one = flatten(a)
    theirs, other = flatten(b)
    return one == other and all(map(_equal, mine, theirs))


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, bytes | str):
        return type(a) is type(b) and a == b
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())


@st.composite
def sources(draw: st.DrawFn, most: int = 40) -> tuple[ps.Dataset, Model]:
    """A dataset over arrays in memory, and its model."""
    num_rows = draw(st.integers(0, most))
    x = np.arange(num_rows * 3, dtype="f4").reshape(num_rows, 3)
    y = np.arange(num_rows)
    nests = {
        "bare": y,
        "tuple": (x, y),
        "dict": {"b": y, "a": x},
        "nested": {"x": (x, y.astype("u1")), "y": y * 2},
    }
    if num_rows:
        nests["text"] = (y, [str(i) * (i % 3) for i in range(num_rows)])
    nest = nests[draw(st.sampled_from(sorted(nests)))]
    leaves, structure = flatten(nest)
    rows = [structure.unflatten([leaf[i] for leaf in leaves]) for i in range(num_rows)]
    return ps.from_arrays(nest), Model(lambda _: rows)


def key(row: Row) -> int:
    """A number that a row always has, for filters and maps that look at values."""
    leaf = flatten(row)[0][-1]
    return (
        len(leaf)
        if isinstance(leaf, str | bytes)
        else int(np.asarray(leaf, dtype=object).size and _number(leaf))
    )


def _number(leaf: Any) -> int:
    first = np.asarray(leaf).flat[0]
    return len(first) if isinstance(first, str | bytes) else int(first)


def is_kept(row: Row) -> bool:
    return key(row) % 3 != 0


def repack(*parts: Any) -> Any:
    """A map that changes the nest: it knows neither how many parts there are nor what they are."""
    return {"row": parts[0] if len(parts) == 1 else parts, "key": np.int64(key(parts))}


def apply(draw: st.DrawFn, ds: ps.Dataset, model: Model) -> tuple[ps.Dataset, Model]:
    """Put one stage behind a dataset and its model."""
    stage = draw(
        st.sampled_from(
            [
                "shuffle",
                "batch",
                "take",
                "skip",
                "repeat",
                "shard",
                "split",
                "enumerate",
                "cache",
                "filter",
                "map",
                "unbatch",
                "zip",
                "concatenate",
                "prefetch",
                "take_while",
                "flat_map",
                "rebatch",
                "bucket_by_sequence_length",
                "pack",
            ]
        )
    )
    flow = {"kind": _flow(model)}
    if stage == "shuffle":
        seed = draw(st.integers(0, 5))
        return ds.shuffle(seed=seed), shuffle(model, seed)
    if stage == "batch":
        leading = {s.shape for s in flatten(ds.spec)[0] if None in s.shape}
        if leading:
            return ds, model
        size, drop = draw(st.integers(1, 7)), draw(st.booleans())
        return ds.batch(size, drop_remainder=drop), batch(model, size, drop=drop)
    if stage == "take":
        count = draw(st.integers(-1, 20))
        return ds.take(count), model.with_rows(
            lambda rows, _: rows if count < 0 else rows[:count], **flow
        )
    if stage == "skip":
        count = draw(st.integers(-1, 10))
        return ds.skip(count), model.with_rows(
            lambda rows, _: [] if count < 0 else rows[count:], **flow
        )
    if stage == "repeat":
        count = draw(st.integers(0, 3))
        return ds.repeat(count), repeat(model, count)
    if stage == "shard":
        count = draw(st.integers(1, 3))
        index = draw(st.integers(0, count - 1))
        return ds.shard(count, index), model.with_rows(lambda rows, _: rows[index::count], **flow)
    if stage == "split":
        return _split(draw, ds, model)
    if stage == "enumerate":
        start = draw(st.integers(0, 3))
        numbered = model.with_rows(
            lambda rows, _: [(np.int64(i), row) for i, row in enumerate(rows, start)], **flow
        )
        return ds.enumerate(start), numbered
    if stage == "cache":
        return ds.cache(), cache(model)
    if stage == "filter":
        kept = model.with_rows(lambda rows, _: [row for row in rows if is_kept(row)], kind="flow")
        return ds.filter(lambda *parts: is_kept(parts[0] if len(parts) == 1 else parts)), kept
    if stage == "map":
        return ds.map(repack), model.with_rows(
            lambda rows, _: [repack(*(row if type(row) is tuple else (row,))) for row in rows],
            **flow,
        )
    if stage == "unbatch":
        return _unbatch(ds, model)
    if stage == "rebatch":
        return _rebatch(draw, ds, model)
    if stage == "take_while":
        limit = draw(st.integers(0, 60))
        taken = model.with_rows(
            lambda rows, _: list(itertools.takewhile(lambda row: key(row) < limit, rows)),
            kind="flow",
        )
        return ds.take_while(lambda *parts: key(parts) < limit), taken
    if stage == "flat_map":
        several = model.with_rows(
            lambda rows, _: [row for row in rows for _ in range(key(row) % 3)],
            kind="flow",
            is_batched=False,
        )
        return ds.flat_map(some_of_it, spec=ds.spec), several
    if stage in ("bucket_by_sequence_length", "pack"):
        return _sequences(draw, ds, model, stage)
    if stage == "zip":
        other = np.arange(1000, 1060)
        zipped = model.with_rows(lambda rows, _: list(zip(rows, other, strict=False)), **flow)
        return ps.zip(ds, ps.from_arrays(other), strict=False), zipped
    if stage == "concatenate":
        return ps.concatenate(ds, ds), model.with_rows(lambda rows, _: rows + rows, **flow)
    return ds.prefetch(draw(st.integers(0, 3))), model


def some_of_it(*parts: Any) -> Iterator[Any]:
    """A function for flat_map: a row none, one or two times."""
    yield from [parts[0] if len(parts) == 1 else parts] * (key(parts) % 3)


def tokens_of(*parts: Any) -> Any:
    """A row as a sequence: its length and its values follow from the key of the row."""
    number = key(parts)
    return {"tokens": np.arange(number % 7) + number}


TOKENS = {"tokens": ps.ArraySpec((None,), "int64")}


def _sequences(
    draw: st.DrawFn, ds: ps.Dataset, model: Model, stage: str
) -> tuple[ps.Dataset, Model]:
    """Make sequences of the rows, and put them into buckets, or pack them."""
    ds = ds.map(tokens_of, spec=TOKENS)
    size = draw(st.integers(1, 4))

    def sequences(rows: list[Row]) -> list[Row]:
        return [tokens_of(*(row if type(row) is tuple else (row,))) for row in rows]

    if stage == "pack":
        method = draw(st.sampled_from(["first_fit", "concat"]))

        def pack(rows: list[Row], _: int) -> list[Row]:
            made = sequences(rows)
            lengths = [len(row["tokens"]) for row in made]
            bins = joined(lengths, 8) if method == "concat" else placed(lengths, 8, size)
            return packed(made, bins, 8)

        packs = ds.pack(8, bins=size, method=method)
        return packs, model.with_rows(pack, kind="flow", is_batched=False)
    by = draw(st.sampled_from(["tokens", lambda row: len(row["tokens"])]))
    return ds.bucket_by_sequence_length(by, [2, 5], [3, size, 2]), model.with_rows(
        lambda rows, _: bucketed(sequences(rows), [2, 5], [3, size, 2]),
        kind="flow",
        is_batched=True,
    )


def _rebatch(draw: st.DrawFn, ds: ps.Dataset, model: Model) -> tuple[ps.Dataset, Model]:
    unbatched, rows = _unbatch(ds, model)
    if unbatched is ds or any(None in spec.shape for spec in flatten(unbatched.spec)[0]):
        return ds, model
    size, drop = draw(st.integers(1, 7)), draw(st.booleans())
    return ds.rebatch(size, drop_remainder=drop), batch(rows, size, drop=drop)


def _split(draw: st.DrawFn, ds: ps.Dataset, model: Model) -> tuple[ps.Dataset, Model]:
    fractions = draw(st.sampled_from([[0.9], [0.5], [0.5, 0.25], [0.125]]))
    part, seed = draw(st.integers(0, 1)), draw(st.integers(0, 3))
    try:
        found = ds.split(*fractions, seed=seed)[part]
    except ValueError:  # It can't follow, or a part would have no rows.
        return ds, model
    num_rows, deal = ds.node.num_rows, deal_of(fractions, seed)

    def change(rows: list[Row], _: int) -> list[Row]:
        owners = deal.owners(np.arange(len(rows)), num_rows)
        return [row for row, owner in zip(rows, owners, strict=True) if owner == part]

    return found, model.with_rows(change, kind=_flow(model))


def _unbatch(ds: ps.Dataset, model: Model) -> tuple[ps.Dataset, Model]:
    shapes = [spec.shape for spec in flatten(ds.spec)[0]]
    if not model.is_batched or any(not shape or shape[0] != shapes[0][0] for shape in shapes):
        return ds, model
    rows = model.with_rows(
        lambda batches, _: [row for one in batches for row in unstack(one)], is_batched=False
    )
    unbatched = ds.unbatch()
    try:
        len(unbatched)
        kind = _flow(model)
    except TypeError:
        kind = "flow"
    return unbatched, replace(rows, kind=kind)


@st.composite
def chains(draw: st.DrawFn, most_stages: int = 6) -> tuple[ps.Dataset, Model]:
    """A dataset with a random chain of stages, and its model."""
    ds, model = draw(sources())
    for _ in range(draw(st.integers(0, most_stages))):
        if len(model.rows(0)) > 400:
            break
        ds, model = apply(draw, ds, model)
    return ds, model


def _lengths(rng: random.Random) -> list[int]:
    """The lengths of rows that differ: all alike, uneven, growing, or with one very long row."""
    count, top = rng.choice([1, 3, 40, 300]), rng.choice([10, 1000, 20_000])
    return rng.choice(
        [
            [top] * count,
            [(number * 7919) % (top + 1) for number in range(count)],
            [int(10 * (top / 10) ** (number / count)) for number in range(count)],
            [top * 5 if number == count // 2 else 10 for number in range(count)],
        ]
    )


def any_source(rng: random.Random, folder: Path) -> ps.Dataset:
    """A dataset of some kind: in memory, on storage or read forward; of rows of one size or of many."""
    lengths = _lengths(rng)
    count = len(lengths)
    texts = ["a" * length for length in lengths]
    x = np.zeros((count, rng.choice([1, 8, 300])), "f4")
    path = folder / f"source-{rng.getrandbits(60)}"
    length = rng.choice([None, count])
    kind = rng.choice(
        ["arrays", "texts", "ragged", "rows", "many", "text", "csv", "npy", "npz", "shards"]
    )
    if kind == "texts":
        return ps.from_arrays((np.arange(count), texts))
    if kind == "ragged":
        arrays = [np.zeros(one // 4, "f4") for one in lengths]
        if rng.random() < 0.5:
            return ps.from_arrays(arrays)
        return ps.from_generator(lambda: iter(arrays), ps.ArraySpec((None,), "f4"), length=length)
    if kind == "rows":
        spec = (ps.ArraySpec(x.shape[1:], "f4"), ps.ArraySpec((), str))
        if rng.random() < 0.5:
            return ps.from_generator(lambda: iter(x), spec[0], length=length)
        return ps.from_generator(lambda: zip(x, texts, strict=True), spec, length=length)
    if kind == "many":
        many = [x[start : start + 50] for start in range(0, count, 50)]
        return ps.from_generator(
            lambda: iter(many), ps.ArraySpec(x.shape[1:], "f4"), rows_per_item="many"
        )
    if kind == "text":
        path.with_suffix(".txt").write_text("\n".join(texts))
        return ps.from_files(path.with_suffix(".txt"))
    if kind == "csv":
        lines = [f"{number},t{text}" for number, text in enumerate(texts)]
        path.with_suffix(".csv").write_text("\n".join(["a,b", *lines]))
        return ps.from_files(path.with_suffix(".csv"))
    if kind == "npy":
        np.save(path.with_suffix(".npy"), x)
        return ps.from_files(path.with_suffix(".npy"))
    if kind == "npz":
        save = rng.choice([np.savez, np.savez_compressed])
        save(path.with_suffix(".npz"), x=x, y=np.arange(count))
        return ps.from_files(path.with_suffix(".npz"), fields=("x", "y"))
    if kind == "shards":
        ps.from_arrays({"t": texts}).write(path)
        return ps.from_files(path)
    return ps.from_arrays((x, np.arange(count)))


def any_chain(
    rng: random.Random, folder: Path, *, regroups: bool = False
) -> tuple[ps.Dataset, str]:
    """A random chain of stages with arguments of any size, over any source; and what it is.

    With `regroups`, every other stage is one of those that regroup rows.
    """
    ds = any_source(rng, folder)
    stages: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
        "shuffle": lambda ds: ds.shuffle(seed=rng.randint(0, 3), exact=rng.random() < 0.2),
        "window": lambda ds: ds.shuffle(
            seed=1, window=rng.choice([1, 1000, 100_000, 5_000_000, "1TB"])
        ),
        "batch": lambda ds: ds.batch(
            rng.choice([1, 3, 32, 500, 10**6, 10**9]), drop_remainder=rng.random() < 0.3
        ),
        "padded": lambda ds: ds.padded_batch(rng.choice([1, 3, 32, 10**9])),
        "series": lambda ds: ds.window(rng.choice([1, 3, 20, 10**6]), shift=rng.choice([1, 2])),
        "take": lambda ds: ds.take(rng.choice([0, 3, 50])),
        "skip": lambda ds: ds.skip(rng.choice([0, 3, 50])),
        "repeat": lambda ds: ds.repeat(rng.choice([1, 2, 3])),
        "shard": lambda ds: ds.shard(3, 1),
        "enumerate": lambda ds: ds.enumerate(),
        "cache": lambda ds: ds.cache(),
        "folder": lambda ds: ds.cache(folder / f"cache-{rng.getrandbits(60)}", key="a"),
        "filter": lambda ds: ds.filter(_has_uneven_length),
        "map": lambda ds: ds.map(lambda *row: row[0] if len(row) == 1 else row),
        "unbatch": lambda ds: ds.unbatch(),
        "zip": lambda ds: ps.zip(ds, any_source(rng, folder), strict=False),
        "mix": lambda ds: ps.mix([ds, ds], weights=[1, 2]),
        "concatenate": lambda ds: ps.concatenate(ds, ds),
    }
    regrouping: dict[str, Callable[[ps.Dataset], ps.Dataset]] = {
        "take_while": lambda ds: ds.take_while(lambda *row: True),
        "rebatch": lambda ds: ds.rebatch(rng.choice([1, 3, 32])),
        "flat_map": lambda ds: ds.flat_map(_twice, spec=ds.spec),
        "buckets": lambda ds: ds.bucket_by_sequence_length(
            rng.choice([_length, "0", "value"]), [3, 30, 300], [rng.choice([1, 3, 32]), 8, 4, 2]
        ),
        "pack": lambda ds: _of_one_field(ds).pack(
            rng.choice([64, 4000]), bins=rng.choice([1, 8]), long="split"
        ),
        "concat": lambda ds: _of_one_field(ds).pack(rng.choice([64, 4000]), method="concat"),
        "split": lambda ds: ds.split(rng.choice([0.9, 0.3]))[rng.choice([0, 1])],
        "stratify": lambda ds: ds.split(0.5, stratify=_last_field(ds))[1],
        "resample": lambda ds: ds.resample(_last_field(ds), num_rows=rng.choice([None, 10, 1000])),
    }
    for number in range(rng.randint(0, 5)):
        some = regrouping if regroups and number % 2 else stages
        try:
            ds = some[rng.choice(sorted(some))](ds)
        except (TypeError, ValueError):  # This stage can't follow.
            continue
    return ds, str(ds.explain())


def _twice(*row: Any) -> Any:
    return [row[0] if len(row) == 1 else row] * 2


def _of_one_field(ds: ps.Dataset) -> ps.Dataset:
    if len(flatten(ds.spec)[0]) != 1:
        raise ValueError("fields may differ in length")
    return ds


def _length(*row: Any) -> int:
    leaf = flatten(row)[0][-1]
    return len(leaf) if isinstance(leaf, str | bytes) else int(np.size(leaf))


def _last_field(ds: ps.Dataset) -> str:
    return field_names(ds.node.structure)[-1]


def _has_uneven_length(*row: Any) -> bool:
    leaf = flatten(row)[0][-1]
    return len(leaf) % 3 != 0 if isinstance(leaf, str | bytes) else bool(np.size(leaf) % 2)
