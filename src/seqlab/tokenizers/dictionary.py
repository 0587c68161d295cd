"""Splits long texts into parts and counts their words, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from seqlab.tokenizers.tokenizer import refuse_surrogates

DICTIONARY = 10_000_000
"""Characters of different words that are held at once where the recipe does not say: over a million words."""
FIRST_BLANK = re.compile(r"(?<=\S)[ \n]")
PART_SIZE = 1 << 15  # characters


def parts_of(text: str) -> Iterator[str]:
    """A long text in parts that hold the same words as the whole.

    Words are cut off with the blank before them, so there is always a cut before the first of some blanks.
    """
    refuse_surrogates(text)
    start = 0
    while (cut := FIRST_BLANK.search(text, start + PART_SIZE)) is not None:
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def count_words(texts: Iterable[str], cut: Callable[[str], Iterable[str]], room: int = DICTIONARY) -> Counter[str]:
    """Count what `cut` makes of texts, which are read once and need not fit into memory.

    Counts are exact while all different words together have at most `room` characters. Whenever they have more,
    the rarest are forgotten, those seen last first, until half the room is free: words that matter are soon
    seen again. This depends on the order of the texts and on nothing else. It is looked into after every
    quarter of `room` that was read, so there may be as many characters more for a while.
    """
    counts: Counter[str] = Counter()
    unseen = 0  # characters read since the size was looked into
    for text in texts:
        for part in parts_of(text):  # strings of a small part stay in the processor's cache: a seventh sooner
            counts.update(cut(part))
        unseen += len(text)
        if 4 * unseen >= room:
            unseen = 0
            if sum(map(len, counts)) > room:
                counts = _most_frequent(counts, room // 2)
    return counts


def _most_frequent(counts: Counter[str], room: int) -> Counter[str]:
    """As many as have `room` characters together; of equally frequent ones, those that were seen first."""
    kept: Counter[str] = Counter()
    for word in sorted(counts, key=counts.__getitem__, reverse=True):
        room -= len(word)
        if room < 0:
            break
        kept[word] = counts[word]
    return kept
