"""Noise on texts: "Aoccdrnig to a rscheearch at Cmabrigde Uinervtisy, it deosn't mttaer in waht oredr ..."."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from seqlab.data.randomness import mix
from seqlab.data.records import Record

LETTERS = re.compile(r"[^\W\d_]{4,}")  # of three letters or fewer there is nothing to permute


def scramble(text: str, share: float = 1.0, seed: int = 0, numbers: Iterator[int] | None = None) -> str:
    """Permute the inner letters of a share of the words of four letters and more.

    What happens to a word is a function of the seed and of its number in the text (`numbers` goes on with those
    of a text before), so a larger share scrambles the same words and more of them. A word that is chosen does
    change, unless its inner letters are all the same. Nothing becomes longer or shorter, or moves.
    """
    numbers = count() if numbers is None else numbers
    limit = int(share * 2**64)

    def changed(found: re.Match[str]) -> str:
        number = next(numbers)
        return scramble_word(found[0], mix(seed, number)) if mix(seed, number) < limit else found[0]

    return LETTERS.sub(changed, text)


def scramble_word(word: str, key: int) -> str:
    """First and last letter stay; the others are sorted by a hash of their places, until that changes something."""
    inner = word[1:-1]
    mixed, turn = inner, 0
    while mixed == inner and len(set(inner)) > 1:
        places = sorted(range(len(inner)), key=lambda place: mix(key, turn, place))
        mixed, turn = "".join(inner[place] for place in places), turn + 1
    return word[:1] + mixed + word[len(word) - 1 :]


def scrambled(records: Iterable[Record], role: str, share: float) -> Iterator[Record]:
    """The records with the field of one role scrambled, words numbered through all of them."""
    numbers = count()
    for record in records:
        text = scramble(record.fields[role], share, numbers=numbers)
        yield replace(record, fields={**record.fields, role: text})
