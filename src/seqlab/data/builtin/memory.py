"""Tasks of memory and order. `copy`: repeat ten symbols after a long silence, once a sign appears.

reads   c a h h b f a e d b _ _ _ _ : _ _ _ _ _ _ _ _ _ _        10 symbols of 8, T − 1 blanks, the sign, 10 blanks
says    _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ c a h h b f a e d b        T + 10 blanks, then the 10 symbols

Without memory, the best strategy is to say blanks and then guess: a mean loss of 10 ln 8 / (T + 20), or ln 8 = 2.08 on
the last ten alone (objective.first=-10). Hochreiter & Schmidhuber 1997; as in Arjovsky, Shah & Bengio 2016,
https://arxiv.org/abs/1511.06464
"""

from __future__ import annotations

from collections.abc import Iterator

from seqlab.data.randomness import mix
from seqlab.data.records import Document

SYMBOLS, BLANK, SIGN, REMEMBERED = "abcdefgh", "_", ":", 10
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def copy(silence: int, many: int) -> Iterator[Document]:
    """Yield `many` sentences of `silence` + 20 words, each with a tag. Sets of different sizes have none in common."""
    for number in range(many):
        drawn = mix(silence, many, number)
        symbols = [SYMBOLS[drawn >> 3 * place & 7] for place in range(REMEMBERED)]
        read = [*symbols, *BLANK * (silence - 1), SIGN, *BLANK * REMEMBERED]
        said = [*BLANK * (silence + REMEMBERED), *symbols]
        yield Document(str(number), {"text": " ".join(read), "tags": " ".join(said)})


def reverse(longest: int, many: int) -> Iterator[Document]:
    """Yield letters separated by blanks, and the same in reverse: c a f b → b f a c."""
    for source in _letters(longest, many):
        yield _pair(source, source[::-1])


def sort(longest: int, many: int) -> Iterator[Document]:
    """Yield letters and the same in alphabetical order: c a f b → a b c f."""
    for source in _letters(longest, many):
        yield _pair(source, sorted(source))


def _letters(longest: int, many: int) -> Iterator[list[str]]:
    """Yield letter sequences of half the maximum length up to all of it."""
    shortest = (longest + 1) // 2
    for number in range(many):
        length = shortest + mix(longest, number) % (longest - shortest + 1)
        yield [ALPHABET[mix(longest, number, place) % len(ALPHABET)] for place in range(length)]


def _pair(source: list[str], target: list[str]) -> Document:
    read = " ".join(source)
    return Document(read, {"source": read, "target": " ".join(target)})
