"""Words as the numbers of their characters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

LONGEST = 64
"""Of a longer word, both ends are read: one address of a page is not to make a whole batch wide."""


class Alphabet:
    """0 is no character, 1 an unknown one; then those that are known."""

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.numbers = {character: number for number, character in enumerate(characters, 2)}

    @classmethod
    def learnt(cls, words: Iterable[str]) -> Self:
        """Those that occur more than once. A single one teaches nothing but what to make of unknown ones."""
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
    """Many words spelt, one after the other in one array."""

    def __init__(self, words: Sequence[str], alphabet: Alphabet) -> None:
        spelt = [alphabet.spell(word) for word in words]
        self.lengths = np.array([len(word) for word in spelt], dtype=np.int64)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.flat = np.array([number for word in spelt for number in word], dtype=np.int64)

    def of(self, words: NDArray[np.int64]) -> NDArray[np.int64]:
        """The spellings of some words (U, longest), given by their numbers; 0 where a word is over."""
        places = np.arange(self.lengths[words].max())
        real = places < self.lengths[words][:, None]
        spelt = np.zeros(real.shape, dtype=np.int64)
        spelt[real] = self.flat[(self.starts[words][:, None] + places)[real]]
        return spelt
