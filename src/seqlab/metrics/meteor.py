"""METEOR with its exact and stem matchers. It needs no WordNet, so synonyms do not match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from seqlab.metrics.metric import Metric, Numbers, signed
from seqlab.metrics.porter import stem
from seqlab.recipe import PartSettings

ALPHA, BETA, GAMMA = 0.9, 3.0, 0.5


class METEOR(Metric):
    """(1 − γ (chunks / m)^β) · P R / (α P + (1 − α) R), P = m / words, R = m / reference words; the mean over lines

    m words are aligned: identical words first, then words with the same stem. A chunk is a run of words that are
    adjacent in both texts. Lavie & Agarwal 2007, https://aclanthology.org/W07-0734, α = 0.9, β = 3, γ = 0.5. Of several
    references, the one with the highest score counts. The scores equal nltk's with an empty WordNet.
    """

    class Settings(PartSettings):
        pass

    better = "higher"

    def __init__(self, settings: Settings) -> None:
        self.tokenize: Callable[[str], str] = Tokenizer13a()  # type: ignore[no-untyped-call]

    def statistics(self, hypothesis: str, references: Sequence[str]) -> Numbers:
        """Score, 1"""
        words = self._words(hypothesis)
        return np.array([max(meteor(words, self._words(one)) for one in references), 1.0])

    def figure(self, sums: Numbers) -> float:
        return float(100 * sums[0] / sums[1])

    def signature(self, references: int | None) -> str:
        settings = {"case": "lc", "tok": "13a", "match": "exact+porter", "a": f"{ALPHA}", "b": f"{BETA}"}
        return signed("METEOR", references, {**settings, "g": f"{GAMMA}", "text": "mean"})

    def _words(self, text: str) -> list[str]:
        return self.tokenize(text.rstrip()).lower().split()


def meteor(hypothesis: Sequence[str], reference: Sequence[str]) -> float:
    """Return METEOR of lower-cased words, from 0 to 1."""
    pairs = alignment(hypothesis, reference)
    if not pairs:
        return 0.0
    precision, recall = len(pairs) / len(hypothesis), len(pairs) / len(reference)
    mean = precision * recall / (ALPHA * precision + (1 - ALPHA) * recall)
    chunks = 1 + sum(after != (here[0] + 1, here[1] + 1) for here, after in pairwise(pairs))
    return float((1 - GAMMA * (chunks / len(pairs)) ** BETA) * mean)


def alignment(hypothesis: Sequence[str], reference: Sequence[str]) -> list[tuple[int, int]]:
    """Return pairs of positions, in the order of the hypothesis.

    From the end of the hypothesis to its start, each word takes the last matching word that is left. This is nltk's
    choice, which does not always give the fewest chunks.
    """
    ours, theirs = dict(enumerate(hypothesis)), dict(enumerate(reference))
    pairs: list[tuple[int, int]] = []
    matchers: list[Callable[[str], str]] = [str, stem]
    for likeness in matchers:
        places: defaultdict[str, list[int]] = defaultdict(list)
        for place, word in theirs.items():
            places[likeness(word)].append(place)
        for place in sorted(ours, reverse=True):
            if found := places[likeness(ours[place])]:
                pairs.append((place, found.pop()))
        for here, there in pairs:
            ours.pop(here, None)
            theirs.pop(there, None)
    return sorted(pairs)
