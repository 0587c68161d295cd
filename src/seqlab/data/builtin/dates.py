"""A calendar date as people write it in about a thousand locales, in pieces: day, month, year, weekday, other.

    full    jeudi 5 mars 2015
    long    5 mars 2015
    medium  5 mars 2015
    short   05/03/2015

Names and patterns are those of CLDR, which come with Babel. Where a date is figures alone, the order of day and month
is a habit: 3/5/61 is a day in May or in March, nobody can tell, and no tagger is always right.
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
"""Of a field of a pattern, by its letter; eras and what stands between fields are other."""
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
    """The date of that number, which is always the same one: any day from 1900 to 2099, in any locale and format."""
    among = all_locales() if locales is None else locales
    locale, format = among[mix(number, 0) % len(among)], FORMATS[mix(number, 1) % len(FORMATS)]
    day = date.fromordinal(FIRST + mix(number, 2) % (LAST - FIRST + 1))
    return WrittenDate(locale, format, day, pieces(day, locale, format))


def pieces(day: date, locale: str, format: Format) -> tuple[DatePiece, ...]:
    """Joined, they are the date as Babel writes it: each field of the pattern by itself, and what is between them."""
    from babel.dates import DateTimeFormat

    fields = DateTimeFormat(day, _known(locale))
    return tuple(DatePiece(fields[field] if field else text, tag) for field, text, tag in _pattern(locale, format))


@lru_cache(maxsize=2000)
def _known(locale: str) -> Locale:
    from babel import Locale

    return Locale.parse(locale)


@lru_cache(maxsize=5000)
def _pattern(locale: str, format: Format) -> list[tuple[str, str, str]]:
    """(field, "", its tag) or ("", what stands there itself, other); "d MMMM" is d, a blank, and MMMM."""
    from babel.dates import get_date_format, tokenize_pattern

    found = []
    for _, token in tokenize_pattern(get_date_format(format, locale).pattern):
        if isinstance(token, str):
            found.append(("", token, OTHER))
        else:
            letter, length = token
            found.append((letter * length, "", TAGS.get(letter, OTHER)))
    return found


@lru_cache(maxsize=1)  # all data of CLDR are read for it, which takes seconds
def all_locales() -> tuple[str, ...]:
    """Those with names of their own for all months and weekdays; the others would write "2015 M03 5, Thu"."""
    from babel import localedata
    from babel.dates import get_day_names, get_month_names

    def names(locale: str) -> set[str]:
        of = (get_month_names("wide", locale=locale), get_day_names("wide", locale=locale))
        return {name for table in of for name in table.values()}

    nobody = set(localedata.load("root")["months"]["format"]["wide"].values())
    nobody |= set(localedata.load("root")["days"]["format"]["wide"].values())
    return tuple(one for one in sorted(localedata.locale_identifiers()) if nobody.isdisjoint(names(one)))


def date_parts(many: int) -> Iterator[Document]:
    """So many different dates, each as words with their tags.

    A piece is cut at its blanks, and punctuation is a word: "5. März" is 5, a point, and März. A date is named by its
    words, so that what is held out depends on nothing else.
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
