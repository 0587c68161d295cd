"""Dates in pieces, against Babel's own dates in one piece."""

from datetime import date

import pytest
from babel.dates import format_date

from seqlab.data.builtin.dates import FORMATS, DatePiece, all_locales, pieces, written_date
from seqlab.data.builtin.sets import documents
from seqlab.errors import DataError

DAYS = [date(1903, 1, 1), date(1961, 4, 7), date(2000, 12, 31), date(2015, 3, 5), date(2024, 2, 29), date(2099, 9, 23)]


def test_pieces_joined_are_the_date_as_babel_writes_it():
    locales = all_locales()
    assert len(locales) > 900
    for locale in locales:
        for format in FORMATS:
            for day in DAYS:
                assert "".join(piece.text for piece in pieces(day, locale, format)) == format_date(day, format, locale)


def test_every_date_has_a_day_a_month_and_a_year():
    for locale in all_locales():
        for format in FORMATS:
            tags = [piece.tag for piece in pieces(DAYS[0], locale, format)]
            assert [tags.count(tag) for tag in ("day", "month", "year")] == [1, 1, 1], (locale, format)
            assert tags.count("weekday") <= 1


@pytest.mark.parametrize(
    ("locale", "expected"),
    [
        ("fr", "jeudi/weekday 5/day mars/month 2015/year"),
        ("de", "Donnerstag/weekday ,/other 5/day ./other März/month 2015/year"),
        ("en", "Thursday/weekday ,/other March/month 5/day ,/other 2015/year"),
        ("es", "jueves/weekday ,/other 5/day de/other marzo/month de/other 2015/year"),
        ("ja", "2015/year 年/other 3/month 月/other 5/day 日/other 木曜日/weekday"),
    ],
)
def test_a_thursday(locale, expected):
    found = pieces(date(2015, 3, 5), locale, "full")
    assert " ".join(f"{piece.text.strip()}/{piece.tag}" for piece in found if piece.text.strip()) == expected


def test_figures():
    assert pieces(date(2015, 3, 5), "en_US", "short") == (
        DatePiece("3", "month"),
        DatePiece("/", "other"),
        DatePiece("5", "day"),
        DatePiece("/", "other"),
        DatePiece("15", "year"),
    )


def test_a_number_is_always_the_same_date():
    assert written_date(7) == written_date(7)
    assert len({written_date(number).text for number in range(300)}) > 290
    chosen = [written_date(number, ["fr", "nl"]) for number in range(50)]
    assert {one.locale for one in chosen} == {"fr", "nl"}
    assert {one.format for one in chosen} == set(FORMATS)
    assert all(one.text == format_date(one.day, one.format, one.locale) for one in chosen)


def test_no_date_is_in_both_parts_whatever_their_number():
    small, large = (
        [{one.fields["text"] for one in documents(name, part)} for part in ("train", "valid")] for name in NAMES
    )
    assert [len(small[0]) + len(small[1]), len(large[0]) + len(large[1])] == [1500, 3000]
    assert small[0] < large[0]
    assert small[1] < large[1]
    assert not large[0] & large[1]


NAMES = ("date-parts:1500", "date-parts:3000")


@pytest.mark.parametrize("name", ["date-parts:x", "date-parts:10", "date-parts:2000:3", "python-docs:3"])
def test_bad_numbers_are_refused(name):
    with pytest.raises(DataError, match=name):
        documents(name, "train")
