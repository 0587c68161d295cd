"""Date translation: a calendar date from one of twenty languages into another, or into ISO figures.

    jeudi 5 mars 2015        de     Donnerstag, 5. März 2015
    2015年3月5日木曜日        iso    2015-03-05

Both sides have the same CLDR format, full, long or medium: a missing weekday could not be translated. Given the target
language, a text has one right answer, whatever its own language: no source text means two days or is written the same
in two formats. `dates-unseen` has the language pairs that `dates` never has; `english-dates` are all into English.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date
from functools import lru_cache
from itertools import count, islice

from seqlab.data.builtin.dates import FIRST, LAST, Format, pieces
from seqlab.data.randomness import mix
from seqlab.data.records import Document

LOCALES = (
    "cs",
    "de",
    "el",
    "en",
    "es",
    "fi",
    "fr",
    "hu",
    "it",
    "ja",
    "ko",
    "nl",
    "pl",
    "pt",
    "ru",
    "sv",
    "tr",
    "uk",
    "vi",
    "zh",
)
FORMATS: tuple[Format, ...] = ("full", "long", "medium")
ISO = "iso"
AMBIGUOUS = {"en", "fr", "nl", "pl", "ru", "sv", "zh"}
"""Languages whose medium dates are only targets, never sources: some are long dates too ("May 5, 2015", or Polish "5
maj 2015" in Swedish), so the answer's format would be ambiguous."""
UNSEEN = ("cs pt", "de tr", "el fi", "en ja", "es hu", "fr ru", "it ko", "nl uk", "pl vi", "sv zh")
"""Language pairs left out in both directions: each language is in one of them, and is learnt from all its others."""
APART = {frozenset(pair.split()) for pair in UNSEEN}


def date_pairs(many: int, unseen: bool = False, into: str | None = None) -> Iterator[Document]:
    """Yield `many` different pairs, into all languages or one. The day decides what is held out in all languages."""
    return islice(_different(unseen, into), many)


def readable(locale: str, format: Format) -> bool:
    return format != "medium" or locale not in AMBIGUOUS


def written(day: date, locale: str, format: Format) -> str:
    """Return a date as Babel writes it, with every kind of whitespace as a plain blank."""
    if locale == ISO:
        return day.isoformat()
    return " ".join("".join(piece.text for piece in pieces(day, locale, format)).split())


def _different(unseen: bool, into: str | None) -> Iterator[Document]:
    seen, sides = set(), _sides(unseen, into)
    for number in count():
        locale, language, format = sides[mix(number, 0) % len(sides)]
        day = date.fromordinal(FIRST + mix(number, 1) % (LAST - FIRST + 1))
        source = written(day, locale, format)
        if (source, language) not in seen and not (unseen and _shared(day, locale, format, source)):
            seen.add((source, language))
            fields = {"source": source, "target": written(day, language, format), "language": language}
            yield Document(f"{locale}-{language}/{format}/{day}", fields, key=day.isoformat())


@lru_cache(maxsize=3)
def _sides(unseen: bool, into: str | None) -> list[tuple[str, str, Format]]:
    """Return (source, target, format of both). A single target language has no unseen pairs."""
    return [
        (locale, language, format)
        for locale in LOCALES
        for language in ([into] if into else (*LOCALES, ISO))
        for format in FORMATS
        if language != locale and readable(locale, format)
        if into or (frozenset((locale, language)) in APART) == unseen
    ]


def _shared(day: date, locale: str, format: Format, text: str) -> bool:
    """Return True if another language writes it the same way: then its translation has been learnt from there."""
    return any(written(day, other, format) == text for other in _alike(format)[locale])


@lru_cache(maxsize=3)
def _alike(format: Format) -> dict[str, list[str]]:
    """Return, for each language, the others that write some day of a year the same way."""
    year = [date.fromordinal(date(2000, 1, 1).toordinal() + number) for number in range(366)]
    texts = {one: {written(day, one, format) for day in year} for one in LOCALES if readable(one, format)}
    return {one: [other for other in texts if other != one and texts[one] & texts[other]] for one in texts}
