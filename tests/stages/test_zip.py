"""zip: rows side by side, and where the shortest ends."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.stages.conformance import (
    MAPPED,
    NUM_ROWS,
    ROWS,
    Chain,
    StageConformance,
    cases,
    is_odd,
    numbered,
    scaled,
)

import penstock as ps


def _swapped(row: Any) -> Any:
    return row["b"], row["a"]


CHAINS: dict[str, Chain] = {
    "zip": Chain(
        lambda ds: ps.zip(ds, ds.map(scaled)),
        list(zip(ROWS, MAPPED, strict=True)),
    ),
    "zip of a dict": Chain(
        lambda ds: ps.zip({"b": ds.map(scaled), "a": ds}),
        [{"a": row, "b": mapped} for row, mapped in zip(ROWS, MAPPED, strict=True)],
    ),
    "zip of a dict of flows": Chain(
        lambda ds: ps.zip({"b": ds.filter(is_odd), "a": ds.filter(is_odd)}).map(_swapped),
        [(row, row) for row in ROWS if is_odd(*row)],
    ),
    "zip to the shortest": Chain(
        lambda ds: ps.zip(ds, ds.take(4), strict=False),
        list(zip(ROWS[:4], ROWS[:4], strict=True)),
    ),
    "zip with what never ends": Chain(
        lambda ds: ps.zip(ds, ds.take(4).repeat(), strict=False),
        list(zip(ROWS, (ROWS[:4] * 6)[:NUM_ROWS], strict=True)),
    ),
}


class TestZip(StageConformance):
    case = cases(CHAINS)


def test_zip_of_unequal_flows_is_an_error_at_their_end():
    short = numbered().filter(is_odd)
    with pytest.raises(ps.LengthError, match=r"input 0 ended after 11 rows .* strict=False"):
        list(ps.zip(short, numbered()))
    with pytest.raises(ps.LengthError, match="input 'y' ended after 11 rows"):
        list(ps.zip({"x": numbered(), "y": short}))
    assert len(list(ps.zip(short, numbered(), strict=False))) == 11


def test_names_that_no_dict_of_rows_can_have_are_refused():
    with pytest.raises(TypeError, match="names of zip's datasets must be str, got 1"):
        ps.zip({1: numbered()})
    with pytest.raises(ValueError, match="zip needs at least one dataset"):
        ps.zip({})
    with pytest.raises(ps.LengthError, match="got 3 rows in 'a' and 23 rows in 'b'"):
        ps.zip({"b": numbered(), "a": numbered().take(3)})


def generated(values: np.ndarray) -> ps.Dataset:
    return ps.from_generator(lambda: iter(values), ps.ArraySpec(values.shape[1:], values.dtype))


def strings(values: np.ndarray) -> ps.Dataset:
    return ps.from_generator(lambda: (str(value) for value in values[:, 0]), ps.ArraySpec((), str))


NARROW, WIDE = np.arange(40_000).reshape(-1, 1), np.arange(400_000).reshape(-1, 10)
DIFFERENT: dict[str, Callable[[Path], tuple[ps.Dataset, ps.Dataset]]] = {
    "files with rows of other sizes": lambda path: (
        ps.from_files(path / "narrow.npy").shuffle(seed=3, window="200KB"),
        ps.from_files(path / "wide.npy").shuffle(seed=3, window="200KB"),
    ),
    "a file and an array": lambda path: (
        ps.from_files(path / "wide.npy").shuffle(window="200KB"),
        ps.from_arrays(NARROW).shuffle(),
    ),
    "other windows": lambda path: (
        ps.from_files(path / "wide.npy").shuffle(window="200KB"),
        ps.from_files(path / "wide.npy").shuffle(window="400KB"),
    ),
    "windows and an exact order": lambda path: (
        ps.from_files(path / "wide.npy").shuffle(window="200KB"),
        ps.from_files(path / "wide.npy").shuffle(exact=True, window="200KB"),
    ),
    "with stages between": lambda path: (
        ps.from_files(path / "wide.npy").shuffle(window="200KB").batch(10).take(50),
        ps.from_files(path / "narrow.npy")
        .map(np.negative)
        .shuffle(window="200KB")
        .batch(10)
        .take(50),
    ),
    "generators with rows of other sizes": lambda _: (
        generated(NARROW).shuffle(window="20KB"),
        generated(WIDE).shuffle(window="20KB"),
    ),
    "text and numbers that flow": lambda _: (
        generated(NARROW).shuffle(),
        strings(NARROW).shuffle(),
    ),
    "caches on disk of flows": lambda path: (
        generated(NARROW).cache(path / "a").shuffle(),
        generated(WIDE).cache(path / "b").shuffle(),
    ),
    "a length that is known and one that is not": lambda path: (
        ps.from_files(path / "narrow.npy").shuffle(),
        generated(NARROW).shuffle(),
    ),
    "a cache of the first epoch": lambda _: (
        ps.from_arrays(NARROW).shuffle().cache(),
        ps.from_arrays(WIDE).shuffle(),
    ),
    "one shuffle more in one of them": lambda path: (
        ps.zip(
            ps.from_arrays(NARROW).shuffle(seed=9),
            ps.from_files(path / "wide.npy").shuffle(window="200KB"),
        ),
        ps.from_files(path / "narrow.npy").shuffle(window="200KB"),
    ),
    "the third of three": lambda path: (
        ps.from_files(path / "wide.npy"),
        ps.zip(
            ps.from_files(path / "wide.npy").shuffle(window="200KB"),
            ps.from_files(path / "narrow.npy").shuffle(window="200KB"),
        ),
    ),
}


def number_of(line: str) -> np.ndarray:
    return np.array([int(line)])


def ten_times(line: str) -> np.ndarray:
    return np.array([10 * int(line)])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs")
    np.save(path / "narrow.npy", NARROW)
    np.save(path / "wide.npy", WIDE)
    (path / "lines.txt").write_text("\n".join(map(str, range(40_000))))
    return path


@pytest.mark.parametrize("name", DIFFERENT)
def test_one_seed_and_two_orders_are_refused(name: str, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"same seed, and yet in different orders[\s\S]*Zip first"):
        ps.zip(*DIFFERENT[name](folder))


ALIKE: dict[str, Callable[[Path], tuple[ps.Dataset, ps.Dataset]]] = {
    "arrays": lambda _: (ps.from_arrays(NARROW).shuffle(), ps.from_arrays(WIDE).shuffle()),
    "an exact order and an array": lambda path: (
        ps.from_arrays(NARROW).shuffle(),
        ps.from_files(path / "wide.npy").shuffle(exact=True, window="200KB"),
    ),
    "files no larger than a window": lambda path: (
        ps.from_files(path / "narrow.npy").shuffle(),
        ps.from_files(path / "wide.npy").shuffle(),
    ),
    "one file twice": lambda path: (
        ps.from_files(path / "wide.npy").shuffle(window="200KB").map(lambda row: row[:1] // 10),
        ps.from_files(path / "wide.npy").shuffle(window="200KB"),
    ),
    "caches in memory of flows": lambda _: (
        generated(NARROW).cache().shuffle(),
        generated(WIDE).cache().shuffle(),
    ),
    "caches of shuffled rows": lambda _: (
        ps.from_arrays(NARROW).shuffle().cache(),
        ps.from_arrays(WIDE).shuffle().cache(),
    ),
    "text that is read forward twice": lambda path: (
        ps.from_files(path / "lines.txt").shuffle(window="50KB").map(number_of),
        ps.from_files(path / "lines.txt").shuffle(window="50KB").map(ten_times),
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_one_seed_and_one_order_keep_pairs_together(name: str, folder: Path) -> None:
    narrow, wide = ALIKE[name](folder)
    for small, large in ps.zip(narrow, wide).batch(1000):
        assert (small[:, 0] == large[:, 0] // 10).all()
    other = ps.from_files(folder / "wide.npy").shuffle(seed=5, window="200KB")
    ps.zip(narrow, other)  # Another seed: not refused, but warned of.


def rows(values, seed=None):
    made = ps.from_arrays(np.asarray(values))
    return made if seed is None else made.shuffle(seed=seed)


X, Y = np.arange(10), np.arange(10) * 2


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ps.zip(rows(X, 0), rows(Y, 1)), ["shuffle(seed=0)", "shuffle(seed=1)"]),
        (lambda: ps.zip(rows(X, 0), rows(Y)), ["shuffle(seed=0)", "nothing"]),
        (
            lambda: ps.zip({"a": rows(X), "b": rows(Y, 3).map(abs)}),
            ["zip(a, b)", "shuffle(seed=3)"],
        ),
        (lambda: ps.zip(rows(X), rows(Y), rows(X, 0)).batch(2), ["input 0", "input 2"]),
        (lambda: ps.zip(rows(X, 0).filter(bool), rows(Y, 1).filter(bool)), ["shuffle(seed=1)"]),
    ],
)
def test_arrays_that_are_shuffled_apart_are_warned_of_once(make, words):
    ds = make()
    with pytest.warns(ps.PenstockWarning, match=r"wrong: ps.zip") as caught:
        list(ds)
    (told,) = caught
    assert told.filename == __file__
    assert all(word in str(told.message) for word in words)
    list(ds)  # Not once more.


@pytest.mark.parametrize(
    "make",
    [
        lambda: ps.zip(rows(X, 0), rows(Y, 0)),
        lambda: ps.zip(rows(X, 0), rows(Y, 1), strict=False),  # Any pairs will do.
        lambda: ps.zip(*(ds.shuffle(seed=seed) for ds, seed in ((ALL, 0), (ALL, 1)))),  # Mixing up.
        lambda: ps.zip(rows(X), rows(Y)).shuffle(seed=0),
    ],
)
def test_pairs_that_belong_together_or_need_not_are_not_warned_of(make):
    assert len(list(make())) == 10


ALL = rows(X)


def _fails_on(number: int, *, is_forward: bool = False) -> ps.Dataset:
    def picky(x: Any) -> Any:
        if x == number:
            raise ValueError("bad")
        return x

    ds = ps.from_arrays(np.arange(9))
    spec = ps.ArraySpec((), "int64")
    return (ds.filter(lambda x: True) if is_forward else ds).map(picky, spec=spec)


SKIP: dict[str, Any] = {"on_error": "skip", "max_errors": 5}


@pytest.mark.parametrize("is_forward", [False, True])
@pytest.mark.parametrize(
    "join",
    [
        lambda a, b: ps.zip(a, b).with_options(**SKIP),
        lambda a, b: ps.zip(a.with_options(**SKIP), b.with_options(**SKIP)),
        lambda a, b: ps.zip(a.with_options(**SKIP), b),
        lambda a, b: ps.zip({"a": a, "b": b}).with_options(**SKIP).batch(4),
        lambda a, b: ps.zip(a, b, strict=False).with_options(**SKIP),
        lambda a, b: ps.zip(a, b).with_options(on_error="raise").with_options(**SKIP).take(3),
    ],
)
def test_a_bad_row_of_an_input_is_never_skipped_alone(join: Any, *, is_forward: bool) -> None:
    ds = join(_fails_on(2, is_forward=is_forward), _fails_on(4, is_forward=is_forward))
    with pytest.raises(ps.FunctionError, match="failed on row 2: ValueError: bad") as caught:
        list(ds)
    (note,) = (one for one in caught.value.__notes__ if "zipped" in one)
    assert note.endswith("Zip first, and map behind it: ps.zip(a, b).map(f)")
    assert note in str(ds.explain())


def test_what_is_mapped_behind_a_zip_is_skipped_with_its_partner() -> None:
    def picky(a: Any, b: Any) -> Any:
        if a == 2:
            raise ValueError("bad")
        return a, b

    plain = ps.from_arrays(np.arange(5))
    for ds in (
        ps.zip(plain, plain).map(picky).with_options(**SKIP),
        ps.zip(plain.with_options(**SKIP), plain).map(picky),
    ):
        assert [(int(a), int(b)) for a, b in ds] == [(0, 0), (1, 1), (3, 3), (4, 4)]


@pytest.mark.parametrize("is_forward", [False, True])
def test_a_dataset_beside_itself_is_skipped_alike(*, is_forward: bool) -> None:
    one = _fails_on(2, is_forward=is_forward)
    skipping = one.with_options(**SKIP)
    wanted = [(n, n) for n in range(9) if n != 2]
    for ds in (
        ps.zip(skipping, skipping),
        ps.zip(one, one).with_options(**SKIP),
        ps.zip({"a": one, "b": one}).with_options(**SKIP).map(lambda row: (row["a"], row["b"])),
    ):
        assert [(int(a), int(b)) for a, b in ds] == wanted
    again = ps.zip(skipping, skipping).with_options(on_error="raise")
    with pytest.raises(ps.FunctionError, match="failed on row 2"):
        list(again)


@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_lines_of_files_side_by_side_are_not_skipped_in_one_of_them(
    tmp_path: Path, ending: str
) -> None:
    bad = "x" if ending == "csv" else '{"v": "x"}'
    for name, place in (("a", 2), ("b", 4)):
        values = range(6)
        lines = list(map(str, values)) if ending == "csv" else [f'{{"v": {v}}}' for v in values]
        lines[place] = bad
        head = ["v"] if ending == "csv" else []
        (tmp_path / f"{name}.{ending}").write_text("\n".join([*head, *lines]) + "\n")
    spec = {"v": ps.ArraySpec((), "int64")}
    ds = ps.from_files(
        {"p": tmp_path / f"a.{ending}", "q": tmp_path / f"b.{ending}"}, spec={"p": spec, "q": spec}
    ).with_options(**SKIP)
    with pytest.raises(ps.DataError, match=rf"a\.{ending}: line") as caught:
        list(ds)
    assert any("zipped" in one for one in caught.value.__notes__)


def test_datasets_of_which_files_were_skipped_are_not_zipped(tmp_path: Path) -> None:
    for name in "xy":
        (tmp_path / name).mkdir()
        for number in range(3):
            np.save(tmp_path / name / f"{number}.npy", np.arange(3) + 3 * number)
    (tmp_path / "x" / "1.npy").write_bytes(b"bad")
    (tmp_path / "y" / "2.npy").write_bytes(b"bad")
    x, y = (ps.from_files(tmp_path / name / "*.npy", on_error="skip") for name in "xy")
    with pytest.raises(ValueError, match=r"files were skipped: of input 0 1 of them.*1\.npy"):
        ps.zip(x, y)
    assert len(ps.zip(x, y, strict=False)) == 6
    # What comes of one dataset is skipped alike.
    assert [(int(a), int(b)) for a, b in ps.zip(x.map(lambda a: -a), x)][3:5] == [(-6, 6), (-7, 7)]
