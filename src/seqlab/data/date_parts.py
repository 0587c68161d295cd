"""Dates as people write them in four languages, each piece tagged day, month, year, weekday or other.

    vendredi    weekday
    7           day
    avril       month
    1961        year

Names and patterns are written by hand after the habits of each country. Where a date is figures alone, the order of day
and month is a habit too: 3/5/61 is a day in May or in March, nobody can tell, and no tagger is always right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from seqlab.data.randomness import mix

COUNT = 8000
FIRST, LAST = date(1900, 1, 1).toordinal(), date(2099, 12, 31).toordinal()

ENGLISH_DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday"
ENGLISH_MONTHS = "January February March April May June July August September October November December"


@dataclass(frozen=True)
class Country:
    """Names, and patterns of pieces: D a weekday, M a month's name, m a short one, d dd mm day and month in figures,
    n a month without a zero, y yy the year; all else stands for itself."""

    weekdays: str
    months: str
    short: str
    patterns: tuple[str, ...]


COUNTRIES = {
    "us": Country(
        ENGLISH_DAYS,
        ENGLISH_MONTHS,
        "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec",
        ("D , M d , y", "M d , y", "m d , y", "n / d / yy"),
    ),
    "gb": Country(
        ENGLISH_DAYS,
        ENGLISH_MONTHS,
        "Jan Feb Mar Apr May Jun Jul Aug Sept Oct Nov Dec",
        ("D d M y", "d M y", "d m y", "dd / mm / y"),
    ),
    "de": Country(
        "Montag Dienstag Mittwoch Donnerstag Freitag Samstag Sonntag",
        "Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
        "Jan. Feb. März Apr. Mai Juni Juli Aug. Sept. Okt. Nov. Dez.",
        ("D , d . M y", "d . M y", "d . m y", "dd . mm . y", "dd . mm . yy"),
    ),
    "fr": Country(
        "lundi mardi mercredi jeudi vendredi samedi dimanche",
        "janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
        "janv. févr. mars avr. mai juin juil. août sept. oct. nov. déc.",
        ("D d M y", "d M y", "d m y", "dd / mm / y"),
    ),
    "es": Country(
        "lunes martes miércoles jueves viernes sábado domingo",
        "enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
        "ene feb mar abr may jun jul ago sept oct nov dic",
        ("D , d de M de y", "d de M de y", "d m y", "d / n / yy"),
    ),
}


def dates() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """(name, pieces with their tags) of each; always the same ones."""
    countries = list(COUNTRIES)
    for number in range(COUNT):
        country = countries[mix(number, 0) % len(countries)]
        patterns = COUNTRIES[country].patterns
        pattern = patterns[mix(number, 1) % len(patterns)]
        day = date.fromordinal(FIRST + mix(number, 2) % (LAST - FIRST + 1))
        yield f"{country}/{number}", written(day, country, pattern)


def written(day: date, country: str, pattern: str) -> list[tuple[str, str]]:
    """The pieces of a date and their tags."""
    own = COUNTRIES[country]
    pieces = {
        "D": (own.weekdays.split()[day.weekday()], "weekday"),
        "M": (own.months.split()[day.month - 1], "month"),
        "m": (own.short.split()[day.month - 1], "month"),
        "d": (str(day.day), "day"),
        "dd": (f"{day.day:02}", "day"),
        "n": (str(day.month), "month"),
        "mm": (f"{day.month:02}", "month"),
        "y": (str(day.year), "year"),
        "yy": (f"{day.year % 100:02}", "year"),
    }
    return [pieces.get(piece, (piece, "other")) for piece in pattern.split()]
