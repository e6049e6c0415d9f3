"""Rows dealt by one of their fields: shares of each class, and groups that stay together."""

import gc
import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conformance import Case, assert_same, run
from tests.stages.conformance import StageConformance

import penstock as ps
from penstock.memory import process_ledger
from penstock.stages.base.classes import Classes
from penstock.stages.split.dealing import deal_of
from penstock.stages.split.marking import marks_by_class, marks_by_group

RNG = np.random.default_rng(0)
RNG_OF_GROUPS = np.random.default_rng(1)
LABELS = RNG.choice(4, 403, p=[0.6, 0.3, 0.09, 0.01])
KINDS: dict[str, Any] = {
    "int64": LABELS,
    "uint8": LABELS.astype("u1"),
    "big-endian": LABELS.astype(">i2"),
    "bool": LABELS > 0,
    "float": LABELS.astype("f4"),
    "str": [f"class {label}" for label in LABELS],
    "bytes": [b"%d" % label for label in LABELS],
    "fixed str": LABELS.astype("U3"),
    "date": LABELS.astype("M8[D]"),
}


def plain(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def labels_of(ds: ps.Dataset) -> Counter[Any]:
    return Counter(plain(label) for _, label in run(ds))


def rows_of(ds: ps.Dataset) -> list[int]:
    return [int(row[0]) for row in run(ds)]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("is_flow", [False, True])
def test_each_part_has_its_share_of_each_class(kind: str, is_flow: bool):
    ds = ps.from_arrays((np.arange(len(LABELS)), KINDS[kind]))
    if is_flow:
        ds = ds.filter(lambda *_: True)
    whole = labels_of(ds)
    parts = ds.split(0.7, 0.2, seed=3, stratify=1)
    assert sorted(sum(map(rows_of, parts), [])) == list(range(len(LABELS)))  # noqa: RUF017
    for part, share in zip(parts, (0.7, 0.2, 0.1), strict=True):
        found = labels_of(part)
        assert all(abs(found[label] - share * count) < 2 for label, count in whole.items())
        assert len(part) == sum(found.values())
        assert abs(len(part) - share * len(LABELS)) < 2
        assert rows_of(part) == sorted(rows_of(part))


@given(
    st.lists(st.integers(0, 6), min_size=3, max_size=300),
    st.lists(st.integers(1, 9), min_size=2, max_size=4),
    st.integers(0, 3),
    st.integers(1, 64),
)
def test_marks_of_any_labels_are_apart_and_exact(
    labels: list[int], parts: list[int], seed: int, step: int
) -> None:
    shares = [part / sum(parts) for part in parts]
    deal = deal_of(shares, seed)
    classes = Classes(lambda nbytes: None)
    array = np.array(labels)
    for start in range(0, len(labels), step):
        piece = array[start : start + step]
        classes.add(column(piece), len(piece), "stratify")
    marks = marks_by_class(deal, classes, 1 << 40)
    owners = np.full(len(labels), -1)
    for part in range(deal.num_parts):
        rows = marks.rows(part, 0, len(labels))
        out = np.arange(marks.size(part))
        marks.choice(part).rows(out, out)
        np.testing.assert_array_equal(out, rows)
        assert (owners[rows] == -1).all()
        owners[rows] = part
    assert (owners >= 0).all()
    for part, share in enumerate(shares):
        for label, count in Counter(labels).items():
            mine = int(((owners == part) & (array == label)).sum())
            assert abs(mine - share * count) <= len(parts)
        # Rounding does not add up.
        assert abs(int((owners == part).sum()) - share * len(labels)) < len(parts)


def column(values: Any) -> Any:
    from penstock.core.columns import Fixed

    return Fixed(np.asarray(values)[None])


@pytest.mark.parametrize("options", [{"stratify": 1}, {"by": 1}])
def test_parts_do_not_depend_on_how_rows_are_cut_into_blocks(options: Any):
    labels = np.random.default_rng(3).integers(0, 60, 3000)[::-1] ** 2 % 47
    for values in (labels, [f"c{label}" for label in labels]):
        ds = ps.from_arrays((np.arange(3000), values))
        expected = [rows_of(one) for one in ds.split(0.85, 0.1, seed=2, **options)]
        for other in (
            ds.with_options(threads=0, memory="140KB"),
            ds.with_options(threads=3),
            ds.filter(every).with_options(processes=0),
            ds.map(pair).with_options(processes=0),
        ):
            assert [rows_of(one) for one in other.split(0.85, 0.1, seed=2, **options)] == expected


def pair(x: Any, y: Any) -> Any:
    return x, y


def test_classes_of_one_row_each_are_shared_out():
    ds = ps.from_arrays((np.arange(1000), np.arange(1000)))
    train, valid = ds.split(0.9, stratify=1)
    assert (len(train), len(valid)) == (900, 100)


@pytest.mark.parametrize("kind", ["int64", "str", "bytes", "fixed str", "date"])
@pytest.mark.parametrize("is_flow", [False, True])
def test_groups_stay_together(kind: str, is_flow: bool):
    groups = RNG.integers(0, 50, 2000)
    values: Any = [f"p{group}" for group in groups]
    values = {
        "int64": groups,
        "bytes": [v.encode() for v in values],
        "fixed str": np.array(values),
    }.get(kind, values)
    values = groups.astype("M8[D]") if kind == "date" else values
    ds = ps.from_arrays({"x": np.arange(2000), "patient": values})
    ds = ds.filter(lambda _: True) if is_flow else ds
    parts = [run(one) for one in ds.split(0.8, 0.1, by="patient", seed=1)]
    owned = [{plain(row["patient"]) for row in part} for part in parts]
    assert sum(len(one) for one in owned) == len(set.union(*owned)) == 50
    assert sorted(int(row["x"]) for part in parts for row in part) == list(range(2000))
    for part, share in zip(parts, (0.8, 0.1, 0.1), strict=True):
        assert abs(len(part) / 2000 - share) < 0.04


@given(st.lists(st.integers(1, 40), min_size=2, max_size=30), st.integers(0, 5))
def test_with_as_many_groups_as_parts_none_is_without(sizes: list[int], seed: int) -> None:
    classes = Classes(lambda nbytes: None)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    classes.add(column(labels), len(labels), "by")
    for shares in ([0.9], [0.05, 0.05]):
        deal = deal_of(shares, seed)
        if deal.num_parts <= len(sizes):
            marks = marks_by_group(deal, classes, 1 << 40)
            found = [marks.size(part) for part in range(deal.num_parts)]
            assert 0 not in found
            assert sum(found) == len(labels)


def sizes_of_parts(sizes: Any, shares: list[float], seed: int) -> list[int]:
    classes = Classes(lambda nbytes: None)
    labels = np.repeat(np.arange(len(sizes)), sizes)
    classes.add(column(labels), len(labels), "by")
    deal = deal_of(shares, seed)
    marks = marks_by_group(deal, classes, 1 << 40)
    return [marks.size(part) for part in range(deal.num_parts)]


@pytest.mark.parametrize("seed", range(20))
def test_a_few_large_groups_are_dealt_as_near_to_the_shares_as_an_order_of_them_allows(
    seed: int,
) -> None:
    # One order after the other: with the large group at its end, the second part would have half of the rows.
    assert sizes_of_parts([50, 10, 10, 10, 10, 10], [0.9], seed) == [90, 10]
    sizes = RNG_OF_GROUPS.integers(1, 1000, 12)
    found = sizes_of_parts(sizes, [0.7, 0.15], seed)
    for part, share in zip(found, (0.7, 0.15, 0.15), strict=True):
        assert abs(part / sizes.sum() - share) < 0.1 * share


def test_a_group_larger_than_a_share_goes_to_the_part_where_it_does_least_harm() -> None:
    for seed in range(10):
        assert max(sizes_of_parts([600, *[1] * 400], [0.5], seed)) <= 620
        assert sizes_of_parts([900, 800, 30, 20, 10], [0.8], seed) == [1700, 60]


def test_small_groups_are_dealt_by_one_order_as_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Golden: who is in which part is part of the interface."""
    monkeypatch.setattr("penstock.stages.split.marking._MOST_ORDERS", 1)
    patients = np.arange(4000) % 400
    ds = ps.from_arrays((np.arange(4000), patients))
    alone = [rows_of(one) for one in ds.split(0.8, 0.1, by=1, seed=7)]
    monkeypatch.undo()
    parts = [rows_of(one) for one in ds.split(0.8, 0.1, by=1, seed=7)]
    assert parts == alone
    assert [len(one) for one in parts] == [3200, 400, 400]
    assert sorted({int(patients[row]) for row in parts[2]})[:8] == [20, 24, 33, 34, 39, 41, 45, 65]


class TestStratified(StageConformance):
    @pytest.fixture(params=["rows", "flow"])
    def case(self, request: pytest.FixtureRequest) -> Case:
        x, y = np.arange(40, dtype="f4").reshape(20, 2), np.arange(20) % 3

        def make() -> ps.Dataset:
            ds = ps.from_arrays((x, y)).with_options(processes=0)
            ds = ds.filter(every) if request.param == "flow" else ds
            return ds.split(0.6, seed=1, stratify=1)[1]

        # Of 7, 7 and 6 rows.
        rows = sorted(int(row[0][0]) // 2 for row in run(make()))
        assert 7 <= len(rows) <= 9
        assert all(2 <= count <= 3 for count in Counter(y[rows].tolist()).values())
        return Case(make, [(x[i], y[i]) for i in rows])


def every(*_: Any) -> bool:
    return True


def test_only_the_field_is_read(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.zeros((100, 50)), y=np.arange(100) % 2)
    ds = ps.from_files(tmp_path / "a.npz", fields={"x": "x", "y": "y"})
    alone = ds.skip(10).take(50).shard(2, 0).node.only(1)  # type: ignore[attr-defined]
    assert [field.spec.shape for field in alone.fields] == [()]
    assert alone.num_rows == 25
    zipped = ps.zip(ds, ps.from_arrays(np.arange(100)))
    assert zipped.node.only(1).row_nbytes == zipped.node.only(2).row_nbytes == 8  # type: ignore[attr-defined]
    assert ds.map(lambda row: row).node.only(1) is None  # type: ignore[attr-defined]
    train, _ = zipped.split(0.9, stratify="0.y")
    assert len(train) == 90
    # A damaged field that is not needed does not matter.
    data = bytearray((tmp_path / "a.npz").read_bytes())
    data[2000] ^= 255
    (tmp_path / "b.npz").write_bytes(data)
    broken = ps.from_files(tmp_path / "b.npz", fields={"x": "x", "y": "y"})
    assert len(broken.split(0.9, stratify="y")[0]) == 90


def test_the_labels_of_images_are_known_without_decoding_them(tmp_path: Path):
    from PIL import Image

    for name, count in (("cat", 6), ("dog", 4)):
        (tmp_path / name).mkdir()
        for number in range(count):
            Image.new("RGB", (8, 8)).save(tmp_path / name / f"{number}.png")
    ds = ps.from_files(tmp_path)
    (tmp_path / "cat" / "3.png").write_bytes(b"no image")
    train, valid = ds.split(0.5, stratify="label")
    assert len(train) + len(valid) == 10
    assert abs(len(train) - 5) <= 1


def test_the_bits_are_counted_and_given_back():
    gc.collect()
    before = process_ledger.granted
    ds = ps.from_arrays((np.arange(80_000), np.arange(80_000) % 3))
    parts = ds.split(0.9, stratify=1)
    assert 2 * 10_000 <= process_ledger.granted - before <= 2 * 12_000
    copy = pickle.loads(pickle.dumps(parts[0]))
    assert process_ledger.granted - before >= 4 * 10_000
    assert rows_of(copy) == rows_of(parts[0])
    del parts, copy
    assert process_ledger.granted == before


def test_a_budget_that_is_too_small_is_refused_and_nothing_stays_granted():
    before = process_ledger.granted
    ds = ps.from_arrays((np.arange(3_000_000, dtype="i4"), np.arange(3_000_000) % 3))
    with pytest.raises(ps.BudgetError, match="the field stratify=1"):
        ds.with_options(memory="2MB", threads=0).split(0.9, stratify=1)
    assert process_ledger.granted == before


def test_a_state_belongs_to_the_labels_that_rows_were_dealt_by():
    x = np.arange(100)
    state = ps.from_arrays((x, x % 3)).split(0.9, stratify=1)[0].stream().state()
    state = json.loads(json.dumps(state))
    ps.from_arrays((x, x % 3)).split(0.9, stratify=1)[0].stream(state=state).close()
    for other in (
        ps.from_arrays((x, x // 40)).split(0.9, stratify=1)[0],
        ps.from_arrays((x, x % 3)).split(0.9, by=1)[0],
        ps.from_arrays((x, x % 3)).split(0.9)[0],
    ):
        with pytest.raises(ps.StateError, match="another pipeline"):
            other.stream(state=state)


def test_what_was_dealt_for_other_rows_is_refused():
    def broken(x: Any, y: Any) -> Any:
        if x == 3:
            raise ValueError("bad")
        return x, y

    ds = ps.from_arrays((np.arange(100), np.arange(100) % 3))
    train, _ = ds.map(broken, spec=ds.spec).with_options(on_error="skip").split(0.9, stratify=1)
    assert len(run(train)) in (88, 89, 90)
    train, _ = ds.map(lambda x, y: (x, y)).split(0.9, stratify=1)
    with pytest.raises(ValueError, match=r"right: ds.with_options\(on_error='skip'\).split"):
        train.with_options(on_error="skip")


def test_a_generator_that_gives_other_rows_later_is_an_error():
    sizes = [100]

    def generate() -> Any:
        return iter(np.arange(sizes[-1]))

    ds = ps.from_generator(generate, ps.ArraySpec((), "int64")).map(lambda x: (x, x % 2))
    train, _ = ds.split(0.9, stratify=1)
    for size, message in ((90, "gave 90, not 100"), (110, "gave more than 100")):
        sizes.append(size)
        with pytest.raises(ps.LengthError, match=message):
            run(train)
    sizes.append(100)
    assert len(run(train)) == 90


@pytest.mark.parametrize(
    ("rows", "options", "kind", "message"),
    [
        ({"x": np.zeros(4)}, {"stratify": "label"}, ValueError, "which has 'x'; got 'label'"),
        ((np.zeros(4), np.zeros(4)), {"by": 2}, ValueError, "which has 0, 1; got 2"),
        ({"x": np.zeros(4)}, {"stratify": 1.5}, TypeError, "stratify must name a field"),
        ({"x": np.zeros(4)}, {"stratify": True}, TypeError, "stratify must name a field"),
        (
            {"y": np.zeros((4, 1), int)},
            {"stratify": "y"},
            ValueError,
            r"one value a row, got rows of shape \(1,\)",
        ),
        (
            {"y": np.zeros((4, 1), int)},
            {"by": "y"},
            ValueError,
            r"one value a row, got rows of shape \(1,\)",
        ),
        ({"y": np.array([0, 1, np.nan, 0])}, {"stratify": "y"}, ValueError, "got nan in row 2"),
        ({"y": np.array([0, "NaT"], "M8[D]")}, {"by": "y"}, ValueError, "got NaT in row 1"),
        ({"y": np.zeros(4)}, {"by": "y"}, ValueError, "whole numbers, bools or text, got float64"),
        (
            {"y": np.zeros(4, "c8")},
            {"stratify": "y"},
            ValueError,
            "whole numbers, bools, floats or text, got complex64",
        ),
        (
            {"y": [np.arange(2), np.arange(3)]},
            {"stratify": "y"},
            ValueError,
            r"one value a row, got rows of shape \(None,\)",
        ),
        (
            {"y": np.zeros(4, int)},
            {"by": "y"},
            ValueError,
            "a group for each of 2 parts, and by= finds 1",
        ),
        (
            {"y": np.zeros(4, int)},
            {"by": "y", "stratify": "y"},
            ValueError,
            "stratify or by, not both",
        ),
        (
            {"y": np.zeros(1, int)},
            {"stratify": "y"},
            ValueError,
            "of 1 rows would leave part 0 without any",
        ),
    ],
)
def test_fields_that_can_not_be_dealt_by_are_refused(
    rows: Any, options: Any, kind: Any, message: str
):
    with pytest.raises(kind, match=message):
        ps.from_arrays(rows).split(0.9, **options)


def test_no_rows_have_parts_without_rows():
    ds = ps.from_arrays((np.zeros(0), np.zeros(0, int)))
    assert [len(one) for one in ds.split(0.9, stratify=1)] == [0, 0]


def test_a_path_of_any_form_names_a_field():
    ds = ps.from_arrays({"meta": {"id": np.arange(20) % 2}, "x": np.arange(20)})
    found = [rows(ds.split(0.5, stratify=path)[0]) for path in ("meta.id", ("meta", "id"))]
    assert found[0] == found[1]
    bare = ps.from_arrays(np.arange(20) % 2).split(0.5, stratify="value")
    assert len(bare[0]) == 10


def rows(ds: ps.Dataset) -> list[int]:
    return [int(row["x"]) for row in run(ds)]


def test_explain_tells_what_rows_were_dealt_by():
    ds = ps.from_arrays({"x": np.arange(100), "y": np.arange(100) % 5})
    text = str(ds.split(0.9, stratify="y")[0].explain())
    assert "split(0.9, seed=0, stratify='y')[0]" in text
    assert "9 of every 10 rows of each class of field y, by a bit a row: 90 of 100 rows" in text
    assert "whole groups of field y, by a bit a row: 80 of 100 rows" in str(
        ds.split(0.9, by="y")[0].explain()
    )


def test_stages_around_a_stratified_part_keep_its_rows(tmp_path: Path):
    np.savez(tmp_path / "a.npz", x=np.arange(600), y=np.arange(600) % 3)
    ds = ps.from_files(tmp_path / "a.npz", fields=("x", "y"))
    train, valid = ds.skip(60).split(0.9, stratify=1)
    assert_same(run(train.cache()), run(train))
    assert_same(run(train.shard(2, 1).take(5)), run(train)[1::2][:5])
    found = [int(x) for one in (train, valid) for x, _ in run(one.shuffle(window=500))]
    assert sorted(found) == list(range(60, 600))
    halves = train.split(0.5, by="1", seed=2)
    assert {int(y) for _, y in run(halves[0])}.isdisjoint(int(y) for _, y in run(halves[1]))
