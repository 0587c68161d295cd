from datetime import date

from seqlab.data.date_parts import COUNTRIES, dates, written


def test_names_are_complete():
    for country in COUNTRIES.values():
        assert len(set(country.weekdays.split())) == 7
        assert len(set(country.months.split())) == len(set(country.short.split())) == 12


def test_a_date_in_each_country():
    day = date(1961, 4, 7)  # a Friday
    longest = {name: written(day, name, country.patterns[0]) for name, country in COUNTRIES.items()}
    assert {name: " ".join(piece for piece, _ in pieces) for name, pieces in longest.items()} == {
        "us": "Friday , April 7 , 1961",
        "gb": "Friday 7 April 1961",
        "de": "Freitag , 7 . April 1961",
        "fr": "vendredi 7 avril 1961",
        "es": "viernes , 7 de abril de 1961",
    }
    figures = [("4", "month"), ("/", "other"), ("7", "day"), ("/", "other"), ("61", "year")]
    assert written(day, "us", "n / d / yy") == figures


def test_they_are_always_the_same():
    assert [*dates()][:2] == [*dates()][:2]
