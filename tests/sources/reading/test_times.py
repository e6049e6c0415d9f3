"""Text of times: what Python and NumPy make of it, and an error where NumPy makes another time of it."""

import datetime as dt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sources.reading.times import times, wider_unit

OFFSETS = st.integers(-23 * 60 - 59, 23 * 60 + 59)
NOON = dt.datetime(2024, 1, 31, 12)  # noqa: DTZ001 - Times without a zone are what is tested.


@given(
    st.lists(st.datetimes(NOON.replace(year=2), NOON.replace(year=9998)), max_size=5),
    st.lists(st.none() | OFFSETS, min_size=5, max_size=5),
    st.sampled_from(["us", "ms", "s", "m", "h", "D", "M", "Y"]),
    st.sampled_from(["T", " "]),
)
def test_times_are_those_of_python_in_utc(
    found: list[dt.datetime], offsets: list[int | None], unit: str, mark: str
) -> None:
    texts, wanted = [], []
    for time, offset in zip(found, offsets, strict=False):
        shift = dt.timedelta(minutes=offset or 0)
        zone = None if offset is None else dt.timezone(shift)
        texts.append(time.replace(tzinfo=zone).isoformat(mark))
        wanted.append(np.datetime64(time - shift, "us").astype(f"datetime64[{unit}]"))
    values = times(texts, np.dtype(f"datetime64[{unit}]"))
    assert values.dtype == f"datetime64[{unit}]"
    assert values.tolist() == [one.tolist() for one in wanted]


@given(st.datetimes(), st.sampled_from(["ns", "ps", "fs", "as"]))
def test_a_fine_unit_holds_the_time_or_refuses_it(time: dt.datetime, unit: str) -> None:
    per_microsecond = {"ns": 10**3, "ps": 10**6, "fs": 10**9, "as": 10**12}[unit]
    since = time - dt.datetime(1970, 1, 1)  # noqa: DTZ001 - As above.
    count = since // dt.timedelta(microseconds=1) * per_microsecond
    dtype = np.dtype(f"datetime64[{unit}]")
    if abs(count) < 2**63:
        assert times([time.isoformat()], dtype).view(np.int64).tolist() == [count]
    else:
        with pytest.raises(OverflowError, match="out of range"):
            times([time.isoformat()], dtype)
        assert wider_unit(time.isoformat(), dtype) in ("datetime64[ns]", "datetime64[us]")


@pytest.mark.parametrize(
    "text",
    [
        "20240131",
        "202401",
        "now",
        "today",
        "2024-01-31Z",
        "2024-01-31T12.5",
        "2024-01-31T12:00.5",
        "2024-01-31T12:00x",
        "2024-01-31T12:00+24:00",
        "2024-01-31T12:00+01:60",
        "12024-01-31",
    ],
)
def test_what_is_no_iso_time_is_refused_without_a_warning(text: str) -> None:
    for texts in ([text], ["2024-01-31T12:00:00.5", text]):
        with pytest.raises(ValueError, match=r"ISO|offset"):
            times(texts, np.dtype("datetime64[s]"))


def test_units_of_several_are_held_or_refused_alike() -> None:
    dtype = np.dtype("datetime64[7ns]")
    for text in ("1970-01-01T00:00:00.001", "2024-01-31T12:00:00.001"):
        assert times([text], dtype).tolist() == [np.datetime64(text, "7ns").tolist()]
    with pytest.raises(OverflowError, match=r"out of range for datetime64\[7ns\]"):
        times(["1500-01-01"], dtype)


def test_spans_of_time_are_not_cut_to_the_largest() -> None:
    for dtype in ("timedelta64[s]", ">m8[s]"):
        found = times(["5", "-3", "NaT", ""], np.dtype(dtype))
        assert found.tolist()[:2] == [dt.timedelta(seconds=5), dt.timedelta(seconds=-3)]
        assert np.isnat(found).tolist() == [False, False, True, True]
        for text in (str(2**63), str(-(2**63)), str(-(2**70))):
            with pytest.raises(OverflowError, match="out of range"):
                times(["1", text], np.dtype(dtype))
