"""ROUGE: n-grams, or a longest common subsequence, that a text shares with a reference.

Lin 2004, https://aclanthology.org/W04-1013. The scores equal those of rouge-score, which is not used because it needs
nltk.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, TypeVar

import numpy as np

from seqlab.metrics.metric import Metric, Numbers, signed
from seqlab.metrics.porter import stem
from seqlab.recipe import PartSettings

T = TypeVar("T")

SHORT = 3
"""Words of up to this many letters are not stemmed."""


class ROUGE(Metric):
    """F = 2 P R / (P + R), P = shared / in the hypothesis, R = shared / in the reference; the mean over lines

    Of several references, the one with the highest F counts.
    """

    class Settings(PartSettings):
        stem: bool = False
        """Whether to compare the stems (Porter) of words of more than three letters."""

    better = "higher"
    title: ClassVar[str]

    def __init__(self, settings: Settings) -> None:
        self.stem = settings.stem

    @abstractmethod
    def shared(self, hypothesis: list[str], reference: list[str]) -> tuple[int, int, int]:
        """Return the number of shared units, and their numbers in the hypothesis and in the reference."""

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        """Precision, recall, F, 1"""
        words = self._words(hypothesis)
        found = [self._scores(*self.shared(words, self._words(one))) for one in references]
        return np.array([*max(found, key=lambda scores: scores[2]), 1.0])

    def figure(self, sums: Numbers) -> float:
        return float(100 * sums[2] / sums[3])

    def parts(self, sums: Numbers) -> dict[str, float]:
        return {"precision": float(100 * sums[0] / sums[3]), "recall": float(100 * sums[1] / sums[3])}

    def signature(self, references: int | None) -> str:
        stems = "porter" if self.stem else "no"
        settings = {"case": "lc", "tok": "a-z0-9", "stem": stems, "f": "1", "text": "mean"}
        return signed(self.title, references, settings)

    @staticmethod
    def _scores(shared: int, ours: int, theirs: int) -> tuple[float, float, float]:
        precision, recall = shared / max(ours, 1), shared / max(theirs, 1)
        return precision, recall, 2 * precision * recall / (precision + recall) if shared else 0.0

    def _words(self, text: str) -> list[str]:
        """Return runs of the letters a to z and digits; everything else separates words, as in the original ROUGE."""
        words = re.findall("[a-z0-9]+", text.lower())
        return [stem(word) if len(word) > SHORT else word for word in words] if self.stem else words


class ROUGE1(ROUGE):
    """Words."""

    title = "ROUGE-1"

    def shared(self, hypothesis: list[str], reference: list[str]) -> tuple[int, int, int]:
        return _shared(Counter(hypothesis), Counter(reference))


class ROUGE2(ROUGE):
    """Pairs of words."""

    title = "ROUGE-2"

    def shared(self, hypothesis: list[str], reference: list[str]) -> tuple[int, int, int]:
        return _shared(Counter(pairwise(hypothesis)), Counter(pairwise(reference)))


class ROUGEL(ROUGE):
    """The longest common subsequence of words."""

    title = "ROUGE-L"

    def shared(self, hypothesis: list[str], reference: list[str]) -> tuple[int, int, int]:
        return longest_common(hypothesis, reference), len(hypothesis), len(reference)


def _shared(ours: Counter[T], theirs: Counter[T]) -> tuple[int, int, int]:
    return sum((ours & theirs).values()), ours.total(), theirs.total()


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of a longest common subsequence.

    A row of the table rises by 0 or 1 from each column to the next, so it is a number whose bits are 0 where it rises;
    the next row is a sum and a difference of such numbers. Hyyrö 2004, "Bit-parallel LCS-length computation revisited".
    """
    places: dict[str, int] = {}
    for place, word in enumerate(one):
        places[word] = places.get(word, 0) | 1 << place
    all_columns = (1 << len(one)) - 1
    row = all_columns
    for word in other:
        matches = row & places.get(word, 0)
        row = (row + matches | row - matches) & all_columns
    return len(one) - row.bit_count()
