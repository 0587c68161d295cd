"""Noise in texts: "Aoccdrnig to a rscheearch at Cmabrigde Uinervtisy, it deosn't mttaer in waht oredr ...".

In scripts without spaces, words cannot be told apart, and adjacent characters are swapped instead: 研究表明 becomes
研表究明.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from seqlab.data.randomness import mix
from seqlab.data.records import Record

RULE = 2
"""Raise this when the same text would be scrambled differently; part of the cache key of scrambled texts."""
FEWEST = 4
"""Words with three letters or fewer have nothing to shuffle."""
SPACELESS = {
    "Thai and Lao": [(0x0E00, 0x0EFF)],
    "Myanmar": [(0x1000, 0x109F), (0xA9E0, 0xA9FF), (0xAA60, 0xAA7F)],
    "Khmer": [(0x1780, 0x17FF)],
    "Tai Le, New Tai Lue, Tai Tham": [(0x1950, 0x19DF), (0x1A20, 0x1AAF)],
    "Balinese and Javanese": [(0x1B00, 0x1B7F), (0xA980, 0xA9DF)],
    "Han": [
        (0x2E80, 0x2FDF),
        (0x3005, 0x3007),
        (0x3400, 0x4DBF),
        (0x4E00, 0x9FFF),
        (0xF900, 0xFAFF),
        (0x20000, 0x323AF),
    ],
    "Hiragana and Katakana": [(0x3040, 0x30FF), (0x31F0, 0x31FF), (0xFF66, 0xFF9F), (0x1B000, 0x1B16F)],
    "Bopomofo": [(0x3100, 0x312F), (0x31A0, 0x31BF)],
    "Yi": [(0xA000, 0xA4CF)],
}
"""Unicode blocks of scripts without spaces between words."""
STACKERS = "\u1039\u17d2\u1a60"
"""Signs of Myanmar, Khmer and Tai Tham that stack the next letter below the previous one: one character to a reader."""


def _class_of(ranges: Iterable[tuple[int, int]]) -> str:
    return "".join(f"{chr(first)}-{chr(last)}" for first, last in ranges)


_RANGES = [one for ranges in SPACELESS.values() for one in ranges]
_BLOCKS = _class_of(_RANGES)
_SELECTORS = _class_of([(0xFE00, 0xFE0F), (0xE0100, 0xE01EF)])
_MARKS = (
    _SELECTORS
    + "\uff9e\uff9f"
    + "".join(
        chr(code)
        for first, last in _RANGES
        if last < 0x20000
        for code in range(first, last + 1)
        if unicodedata.category(chr(code)).startswith("M")
    )
)
WORD = re.compile(rf"[^\W\d_]+(?:(?<=[{_BLOCKS}])[{_MARKS}]+[^\W\d_]*)*")
"""Letters and, in scripts without spaces, their marks."""
SPACELESS_PART = re.compile(rf"([{_BLOCKS}{_SELECTORS}]+)")
CHARACTER = re.compile(rf".[{_MARKS}]*(?:[{STACKERS}].[{_MARKS}]*)*", re.DOTALL)
"""A letter with its marks and anything stacked below it: what a reader sees as one character."""


def scramble(text: str, share: float = 1.0, seed: int = 0, numbers: Iterator[int] | None = None) -> str:
    """Shuffle the inner letters of a fraction of the words with four letters or more.

    The result for each word depends only on the seed and the word's number in the text (`numbers` continues the count
    of an earlier text), so a larger share scrambles the same words and more. A chosen word always changes, unless its
    inner letters are all the same. Lengths and positions do not change.

    In scripts without spaces (`SPACELESS`), an unbroken run counts as one word: a fraction of its adjacent pairs are
    swapped, marks included; its first and last characters stay.
    """
    numbers = count() if numbers is None else numbers
    limit = int(share * 2**64)

    def changed(found: re.Match[str]) -> str:
        word = found[0]
        if len(word) < FEWEST:
            return word
        number = next(numbers)
        if SPACELESS_PART.search(word):
            return _scramble_spaceless(word, seed, number, limit)
        return scramble_word(word, mix(seed, number)) if mix(seed, number) < limit else word

    return WORD.sub(changed, text)


def _scramble_spaceless(word: str, seed: int, number: int, limit: int) -> str:
    """Scramble a word part by part: 使用Python has two parts."""
    parts = []
    for place, part in enumerate(SPACELESS_PART.split(word)):  # scripts without spaces are at odd places
        if place % 2:
            part = _exchange(part, seed, number, limit, place)
        elif len(part) >= FEWEST and mix(seed, number) < limit:
            part = scramble_word(part, mix(seed, number, place))
        parts.append(part)
    return "".join(parts)


def _exchange(part: str, seed: int, number: int, limit: int, place: int) -> str:
    characters = CHARACTER.findall(part)
    for left in range(1, len(characters) - 2, 2):
        if mix(seed, number, place, left) < limit:
            characters[left : left + 2] = characters[left + 1], characters[left]
    return "".join(characters)


def scramble_word(word: str, key: int) -> str:
    """Shuffle the inner letters by a hash of their places, until the word changes; the first and last stay."""
    inner = word[1:-1]
    mixed, turn = inner, 0
    while mixed == inner and len(set(inner)) > 1:
        places = sorted(range(len(inner)), key=lambda place: mix(key, turn, place))
        mixed, turn = "".join(inner[place] for place in places), turn + 1
    return word[:1] + mixed + word[len(word) - 1 :]


def scrambled(records: Iterable[Record], role: str, share: float) -> Iterator[Record]:
    """Yield the records with one role's field scrambled; words are numbered across all records."""
    numbers = count()
    for record in records:
        text = scramble(record.fields[role], share, numbers=numbers)
        yield replace(record, fields={**record.fields, role: text})
