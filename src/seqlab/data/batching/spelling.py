"""Words as sequences of character numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

LONGEST = 64
"""The most characters to read. Longer words keep both ends, so that one web address does not widen a whole batch."""


class Alphabet:
    """Maps characters to numbers: 0 is padding, 1 is unknown, then the known characters follow."""

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.numbers = {character: number for number, character in enumerate(characters, 2)}

    @classmethod
    def learnt(cls, words: Iterable[str]) -> Self:
        """Build an alphabet of the characters that occur more than once; the others train the unknown character."""
        counts: Counter[str] = Counter()
        for word in words:
            counts.update(word)
        return cls("".join(sorted(character for character, count in counts.items() if count > 1)))

    def __len__(self) -> int:
        return 2 + len(self.characters)

    def spell(self, word: str) -> list[int]:
        if len(word) > LONGEST:
            word = word[: LONGEST // 2] + word[-LONGEST // 2 :]
        return [self.numbers.get(character, 1) for character in word]


class Spellings:
    """The spellings of many words, concatenated in one array."""

    def __init__(self, words: Sequence[str], alphabet: Alphabet) -> None:
        spelt = [alphabet.spell(word) for word in words]
        self.lengths = np.array([len(word) for word in spelt], dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.flat = np.array([number for word in spelt for number in word], dtype=np.int64)

    def of(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the spellings of words (U, longest), given by number, padded with 0."""
        places = np.arange(self.lengths[words].max())
        real = places < self.lengths[words][:, None]
        spelt = np.zeros(real.shape, dtype=np.int64)
        spelt[real] = self.flat[(self.starts[words][:, None] + places)[real]]
        return spelt
