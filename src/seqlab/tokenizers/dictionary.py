"""Splits long texts into parts and counts their words, in bounded memory."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from seqlab.tokenizers.tokenizer import refuse_surrogates

DICTIONARY = 10_000_000
"""Default limit on the total characters of distinct words held at once: over a million words."""
FIRST_BLANK = re.compile(r"(?<=\S)[ \n]")
PART_SIZE = 1 << 15  # characters


def parts_of(text: str) -> Iterator[str]:
    """Split a long text into parts that contain the same words as the whole.

    A cut is always before the first of several spaces, so that words keep the space before them.
    """
    refuse_surrogates(text)
    start = 0
    while (cut := FIRST_BLANK.search(text, start + PART_SIZE)) is not None:
        yield text[start : cut.start()]
        start = cut.start()
    yield text[start:]


def count_words(texts: Iterable[str], cut: Callable[[str], Iterable[str]], room: int = DICTIONARY) -> Counter[str]:
    """Count the strings that `cut` splits texts into. Texts are read once and need not fit into memory.

    Counts are exact while all distinct words together have at most `room` characters. Whenever they have more, the
    rarest are dropped, those seen last first, until half the room is free: words that matter are soon seen again. The
    result depends only on the texts and their order. The size is checked whenever a quarter of `room` has been read, so
    it may exceed `room` by that much for a while.
    """
    counts: Counter[str] = Counter()
    unseen = 0  # characters read since the size was last checked
    for text in texts:
        for part in parts_of(text):  # the strings of a small part stay in the processor's cache: a seventh faster
            counts.update(cut(part))
        unseen += len(text)
        if 4 * unseen >= room:
            unseen = 0
            if sum(map(len, counts)) > room:
                counts = _most_frequent(counts, room // 2)
    return counts


def _most_frequent(counts: Counter[str], room: int) -> Counter[str]:
    """Keep the most frequent words, up to `room` characters in total; ties go to those seen first."""
    kept: Counter[str] = Counter()
    for word in sorted(counts, key=counts.__getitem__, reverse=True):
        room -= len(word)
        if room < 0:
            break
        kept[word] = counts[word]
    return kept
