"""A calendar date as written in about a thousand locales, in pieces: day, month, year, weekday, other.

    full    jeudi 5 mars 2015
    long    5 mars 2015
    medium  5 mars 2015
    short   05/03/2015

Names and patterns come from CLDR through Babel. In all-numeric dates, the order of day and month is a convention:
3/5/61 may be in May or in March, so no tagger can always be right.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from functools import lru_cache
from itertools import count, islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from seqlab.data.randomness import mix
from seqlab.data.records import Document

if TYPE_CHECKING:
    from babel import Locale

Format = Literal["full", "long", "medium", "short"]
FORMATS: tuple[Format, ...] = ("full", "long", "medium", "short")
FIRST, LAST = date(1900, 1, 1).toordinal(), date(2099, 12, 31).toordinal()
TAGS = {"d": "day", "M": "month", "L": "month", "y": "year", "E": "weekday", "c": "weekday"}
"""The tag of a pattern field, by its letter; eras and text between fields are `other`."""
OTHER = "other"


class DatePiece(NamedTuple):
    text: str
    tag: str


class WrittenDate(NamedTuple):
    locale: str
    format: Format
    day: date
    pieces: tuple[DatePiece, ...]

    @property
    def text(self) -> str:
        return "".join(piece.text for piece in self.pieces)


def written_date(number: int, locales: Sequence[str] | None = None) -> WrittenDate:
    """Return the date with that number, always the same: any day from 1900 to 2099, in any locale and format."""
    among = all_locales() if locales is None else locales
    locale, format = among[mix(number, 0) % len(among)], FORMATS[mix(number, 1) % len(FORMATS)]
    day = date.fromordinal(FIRST + mix(number, 2) % (LAST - FIRST + 1))
    return WrittenDate(locale, format, day, pieces(day, locale, format))


def pieces(day: date, locale: str, format: Format) -> tuple[DatePiece, ...]:
    """Return a date in pieces: each field of the pattern, and the text between them; joined, they are Babel's date."""
    from babel.dates import DateTimeFormat

    fields = DateTimeFormat(day, _known(locale))
    return tuple(DatePiece(fields[field] if field else text, tag) for field, text, tag in _pattern(locale, format))


@lru_cache(maxsize=2000)
def _known(locale: str) -> Locale:
    from babel import Locale

    return Locale.parse(locale)


@lru_cache(maxsize=5000)
def _pattern(locale: str, format: Format) -> list[tuple[str, str, str]]:
    """Return (field, "", its tag) or ("", literal text, other); "d MMMM" is d, a blank, and MMMM."""
    from babel.dates import get_date_format, tokenize_pattern

    found = []
    for _, token in tokenize_pattern(get_date_format(format, locale).pattern):
        if isinstance(token, str):
            found.append(("", token, OTHER))
        else:
            letter, length = token
            found.append((letter * length, "", TAGS.get(letter, OTHER)))
    return found


@lru_cache(maxsize=1)  # reads all CLDR data, which takes seconds
def all_locales() -> tuple[str, ...]:
    """Return the locales that name all months and weekdays; the others would write "2015 M03 5, Thu"."""
    from babel import localedata
    from babel.dates import get_day_names, get_month_names

    def names(locale: str) -> set[str]:
        of = (get_month_names("wide", locale=locale), get_day_names("wide", locale=locale))
        return {name for table in of for name in table.values()}

    nobody = set(localedata.load("root")["months"]["format"]["wide"].values())
    nobody |= set(localedata.load("root")["days"]["format"]["wide"].values())
    return tuple(one for one in sorted(localedata.locale_identifiers()) if nobody.isdisjoint(names(one)))


def date_parts(many: int) -> Iterator[Document]:
    """Yield `many` different dates, each as words with their tags.

    Pieces are cut at blanks, and punctuation counts as a word: "5. März" is 5, a point, and März. A date is named by
    its words, so that nothing else decides whether it is held out.
    """
    return islice(_different(), many)


def _different() -> Iterator[Document]:
    seen = set()
    for number in count():
        words = [(word, piece.tag) for piece in written_date(number).pieces for word in piece.text.split()]
        text = " ".join(word for word, _ in words)
        if text not in seen:
            seen.add(text)
            yield Document(text, {"text": text, "tags": " ".join(tag for _, tag in words)})
