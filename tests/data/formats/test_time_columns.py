"""Which columns of numbers only count time, and which are variables that happen to rise."""

import numpy as np
import pytest

from seqlab.data.formats.series import Layout, series_of
from seqlab.data.formats.time_columns import counts_time
from seqlab.recipe import DataSettings

DATA = DataSettings(train="unused")
YEARS = np.arange(1700.0, 1760.0)
MONTHS = np.cumsum(np.tile([31.0, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31], 5)) * 86400
GAPS = np.cumsum([1.0, 1, 1, 1, 3] * 10)
GROWTH = 100 * 1.02 ** np.arange(50)
NOISE = np.sin(np.arange(50.0))


@pytest.mark.parametrize(
    ("name", "values", "first", "expected"),
    [
        ("year", YEARS, True, True),
        ("Year", YEARS, False, True),
        ("years", YEARS, False, True),
        ("date", GAPS, False, True),  # 20240105, 20240108: with weekends between
        ("timestamp", 1.7e9 + MONTHS, False, True),
        ("unix_time", 1.7e9 + MONTHS, False, True),
        ("openTime", 1.7e12 + 6e4 * np.arange(50), False, True),
        ("decimal year", np.round(1749 + (np.arange(50) + 0.5) / 12, 3), False, True),
        ("t", np.arange(50.0), False, True),
        ("index", np.arange(1.0, 51), False, True),
        ("", np.arange(50.0), True, True),
        ("Unnamed: 0", np.arange(50.0), True, True),
        ("anything", np.arange(0, 5, 0.1), True, True),
        ("year", YEARS[::-1], True, True),
        # ------------------------------------------------ variables
        ("year", NOISE, True, False),
        ("year", np.r_[YEARS, YEARS], True, False),
        ("year", YEARS[:2], True, False),
        ("sales_this_year", np.cumsum([1.0, 5, 2, 9, 3, 3, 8, 1, 2, 7]), False, False),
        ("population", GROWTH, True, False),
        ("price index", GROWTH, False, False),
        ("index", GROWTH, False, False),
        ("id", GAPS, False, False),
        ("anything", np.arange(50.0), False, False),
        ("anything", np.arange(9.0), True, False),
        ("response time", np.abs(NOISE), False, False),
        ("t", np.ones(50), False, False),
    ],
)
def test_by_name_and_numbers(name, values, first, expected):
    assert counts_time(name, [values], first) is expected


def test_in_each_of_several_series():
    assert counts_time("year", [YEARS, YEARS[:20]], first=False)
    assert not counts_time("year", [YEARS, NOISE], first=False)
    assert not counts_time("v", [np.array([n, n + 1.0]) for n in range(30)], first=True)


def write(path, header, *columns):
    rows = "".join(",".join(f"{cell:g}" for cell in row) + "\n" for row in zip(*columns, strict=True))
    path.write_text(f"{header}\n{rows}")
    return path


def test_a_column_that_counts_time_is_left_out_of_tables(tmp_path):
    path = write(tmp_path / "a.csv", "year,spots", YEARS[:50], NOISE)
    found = series_of(path, DATA, Layout())
    assert (found.columns, found.left_out) == (("spots",), ("'year' (counts time)",))
    assert found.series[0].values.shape == (50, 1)
    for layout in (Layout(columns=("year", "spots")), Layout(keep=("year",)), Layout(keep_time=True)):
        found = series_of(path, DATA, layout)
        assert (found.columns, found.left_out) == (("year", "spots"), ())


def test_the_newest_first_is_said(tmp_path):
    path = write(tmp_path / "a.csv", "year,spots", YEARS[:50][::-1], NOISE)
    assert "backwards" in series_of(path, DATA, Layout()).left_out[0]


def test_the_only_column_is_a_variable(tmp_path):
    path = write(tmp_path / "a.csv", "year", YEARS)
    assert series_of(path, DATA, Layout()).columns == ("year",)
    path = write(tmp_path / "b.csv", "year,index", YEARS, YEARS)
    assert series_of(path, DATA, Layout()).columns == ("year", "index")


def test_within_each_series_of_a_table(tmp_path):
    path = tmp_path / "a.csv"
    rows = [f"{shop},{year},{np.sin(year + shop):.4f}\n" for shop in (1, 2) for year in range(2000, 2020)]
    path.write_text("shop,year,sales\n" + "".join(rows))
    assert series_of(path, DATA, Layout(by="shop")).columns == ("sales",)
    assert series_of(path, DATA, Layout()).columns == ("shop", "year", "sales")  # a single series, whose year falls


def test_arrays_and_plain_text(tmp_path):
    both = np.stack([np.arange(50.0), NOISE], axis=1)
    np.save(tmp_path / "a.npy", both)
    np.savetxt(tmp_path / "a.txt", both)
    for name in ("a.npy", "a.txt"):
        found = series_of(tmp_path / name, DATA, Layout())
        assert (found.columns, found.left_out) == (("2",), ("'1' (counts time)",))
        assert (
            len(series_of(tmp_path / name, DATA, Layout(columns=("x", "y"))).columns) == 2
        )  # as many as a model reads
    np.save(tmp_path / "b.npy", np.stack([both] * 3))
    assert series_of(tmp_path / "b.npy", DATA, Layout()).columns == ("2",)


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("monthly-sunspots.csv", ("Sunspots",)),
        ("airline-passengers.csv", ("Passengers",)),
        ("daily-min-temperatures.csv", ("Temp",)),
        ("ETTh1.csv", ("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT")),
    ],
)
@pytest.mark.parametrize("clock", ["as it is", "index", "year"])
def test_known_series_keep_all_their_columns(shared_data, tmp_path, name, columns, clock):
    """With dates, as they come; or with a number in their place."""
    lines = (shared_data("timeseries") / name).read_text().splitlines()
    if clock != "as it is":
        rows = [line.split(",", 1)[1] for line in lines if line.strip()]
        numbers = [clock, *(number if clock == "index" else 1749 + number / 12 for number in range(len(rows) - 1))]
        lines = [f"{number},{row}" for number, row in zip(numbers, rows, strict=True)]
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    found = series_of(tmp_path / "a.csv", DATA, Layout())
    assert found.columns == columns
    assert len(found.left_out) == 1
