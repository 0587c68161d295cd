"""The copy task: ten symbols, a long silence, and at a sign they are to be said again.

reads   c a h h b f a e d b _ _ _ _ : _ _ _ _ _ _ _ _ _ _        10 symbols of 8, T − 1 blanks, the sign, 10 blanks
says    _ _ _ _ _ _ _ _ _ _ _ _ _ _ _ c a h h b f a e d b        T + 10 blanks, then the 10 symbols

Who remembers nothing says blanks and then guesses: a mean loss of 10 ln 8 / (T + 20), or ln 8 = 2.08 of the last ten
alone (objective.first=-10). Hochreiter & Schmidhuber 1997; as in Arjovsky, Shah & Bengio 2016,
https://arxiv.org/abs/1511.06464
"""

from __future__ import annotations

from collections.abc import Iterator

from seqlab.data.randomness import mix
from seqlab.data.records import Document

SYMBOLS, BLANK, SIGN, REMEMBERED = "abcdefgh", "_", ":", 10


def copy(silence: int, many: int) -> Iterator[Document]:
    """So many sentences of `silence` + 20 words, a tag for each. Sets of different sizes have none in common."""
    for number in range(many):
        drawn = mix(silence, many, number)
        symbols = [SYMBOLS[drawn >> 3 * place & 7] for place in range(REMEMBERED)]
        read = [*symbols, *BLANK * (silence - 1), SIGN, *BLANK * REMEMBERED]
        said = [*BLANK * (silence + REMEMBERED), *symbols]
        yield Document(str(number), " ".join(read), tags=" ".join(said))
